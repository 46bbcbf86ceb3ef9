"""What tables and pictures answer: the questions of `fsync-time`, and more."""

from fsyncstorage.timing.results import questions
from fsyncstorage.timing.results import tables
from fsyncstorage.timing.results.questions import Question
from fsyncstorage.timing.results.wording import size

ALL = (
    *questions.QUESTIONS,
    Question(
        'loads', 'How long does a load take while others commit?', 'loads',
        None, '', 'milliseconds a load', questions.TIMES, 1e3),
    Question(
        'reads-beside-commits',
        'How long does a cold read take while another client commits?',
        'read-beside-commit', None, '', 'milliseconds a read',
        questions.TIMES, 1e3),
)


#: What pictures answer, and tables do by a remark below a rate.
DRAWN = (
    *ALL,
    Question(
        'batches', 'How many commits share a sync?', 'commits',
        'threads', 'threads that commit', 'commits in a sync',
        {'': 'commits_per_sync'}),
    Question(
        'zeo-commit-times', 'How long does a commit take, over ZEO?', 'write',
        'clients', 'client processes', 'milliseconds a commit (median)',
        {'': 'p50_seconds'}, 1e3),
    Question(
        'zeo-read-times', 'How long does it take to read an object?', 'read',
        'clients', 'client processes', 'microseconds an object (median)',
        {how: f'{how}_p50_seconds' for how in questions.READS[:-1]}, 1e6),
    Question(
        'blob-read-speeds', 'How fast are blobs read?', 'blob-read',
        'size', 'size of a blob', 'MB a second, all clients',
        {title: f'{how}_bytes_per_second'
         for title, how in questions.BLOBS.items()},
        1 / (1 << 20), size),
)


def show(document, console):
    tables.show(document, console, ALL)
