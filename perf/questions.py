"""What tables and pictures answer: the questions of `fsync-time`, and more."""

from fsyncstorage.timing.results import questions
from fsyncstorage.timing.results import tables
from fsyncstorage.timing.results.questions import Question

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
    Question(
        'light-commits', 'How many commits a second can the server take?',
        'light', 'connections', 'light connections', 'commits a second',
        {'': 'txn_per_second'}),
    Question(
        'light-commit-times', 'How long does the server take for a commit?',
        'light', 'connections', 'light connections',
        'milliseconds a commit (median)', {'': 'p50_seconds'}, 1e3,
        table=False),
)


def show(document, console):
    tables.show(document, console, ALL)
