"""What tables and pictures answer: the questions of `fsync-time`, and more."""

import functools

from fsyncstorage.timing.results import questions
from fsyncstorage.timing.results import tables
from fsyncstorage.timing.results import wording
from fsyncstorage.timing.results.questions import Question

from .web import memory
from .web.load import AT_ONCE

_MB = 1 << 20

_COLD = 'cold: the blob cache does not have it'
_WAYS = {'warm: the file was sent before': 'warm', _COLD: 'cold'}


def _of_a_file(size):
    """The text for a size: those of 2004 are no whole megabytes."""
    return f'{size >> 10:,} KB' if size % _MB else wording.size(size)


_of_files = functools.partial(
    Question, workload='files', setting='size', along='size of a file',
    put=_of_a_file)

ALL = (
    *questions.QUESTIONS,
    _of_files(
        'files', f'How many files a second are sent, {AT_ONCE} at a time?',
        up='files a second',
        figures={title: f'{way}_per_second' for title, way in _WAYS.items()}),
    _of_files(
        'file-speeds', f'How fast are files sent, {AT_ONCE} at a time?',
        up='MB a second', scale=1 / _MB, table=False,
        figures={title: f'{way}_bytes_per_second'
                 for title, way in _WAYS.items()}),
    _of_files(
        'first-bytes', 'How long until the first byte of a file?',
        up='milliseconds until the first byte', scale=1e3,
        figures={_COLD: 'first_byte_seconds'}),
    _of_files(
        'memory', 'How many MB did a process have in memory at most?',
        up='MB', scale=1 / _MB, picture=False,
        figures={f'{role}:': memory.figure(role) for role in memory.ROLES}),
    Question(
        'requests', 'How many requests a second does an application answer?',
        'wsgi', 'concurrency', 'requests at a time', 'requests a second',
        {'': 'requests_per_second'}, apart='layout', table=False),
    Question(
        'layouts', 'How many requests a second does an application answer?',
        'wsgi', 'layout', 'server, processes x threads', 'requests a second',
        {'': 'requests_per_second'}, picture=False),
)


def show(document, console):
    tables.show(document, console, ALL)
