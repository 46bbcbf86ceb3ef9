"""What pictures answer: the questions of `fsync-time`, and more."""

import importlib.util

from fsyncstorage.timing import wording
from fsyncstorage.timing.reports import pictures
from fsyncstorage.timing.reports.pictures import Question

from .web.load import AT_ONCE

_MB = 1 << 20

_COLD = 'cold: the blob cache does not have it'
_WAYS = {'warm: the file was sent before': 'warm', _COLD: 'cold'}


def _of_files(settings):
    return f'over HTTP, {AT_ONCE} requests at a time'


def _of_a_file(size):
    """Those of 2004 are no whole megabytes."""
    return f'{size >> 10:,} KB' if size % _MB else wording.size(size)


#: Colours and marks of those that have none in the pictures of `fsync-time`.
LOOKS = {
    'nginx': ('#000000', '*'),
    'x-accel:bare': ('#7b3294', '^'),
    'x-accel:direct': ('#08519c', '^'),
    'x-accel:fsync-client': ('#8c0d12', '^'),
    'waitress:direct': ('#4292c6', 'o'),
    'waitress:fsync-client': ('#e0383e', 'o'),
    'waitress:zeo': ('#606060', 'o'),
    'gunicorn:direct': ('#8fbfe0', 's'),
    'gunicorn:fsync-client': ('#f0938a', 's'),
    'gunicorn:zeo': ('#a8a8a8', 's'),
}


def drawing():
    """What draws them; None without matplotlib, which is an extra."""
    if importlib.util.find_spec('matplotlib') is None:
        return None
    from fsyncstorage.timing.reports import drawing
    drawing.LOOKS.update(LOOKS)
    return drawing


ALL = (
    *pictures.QUESTIONS,
    Question(
        'files', 'How many files a second are sent?', 'files',
        'size', 'size of a file', 'files a second',
        {title: f'{way}_per_second' for title, way in _WAYS.items()}, 1,
        _of_files, _of_a_file),
    Question(
        'file-speeds', 'How fast are files sent?', 'files',
        'size', 'size of a file', 'MB a second',
        {title: f'{way}_bytes_per_second' for title, way in _WAYS.items()},
        1 / _MB, _of_files, _of_a_file),
    Question(
        'first-bytes', 'How long until the first byte of a file?', 'files',
        'size', 'size of a file', 'milliseconds until the first byte',
        {_COLD: 'first_byte_seconds'}, 1e3,
        lambda settings: 'over HTTP, one request alone', _of_a_file),
    Question(
        'requests', 'How many requests a second does an application answer?',
        'wsgi', 'concurrency', 'requests at a time', 'requests a second',
        {'': 'requests_per_second'}, conditions=pictures.of_zeo,
        apart=('layout',), panel=lambda settings: settings['layout']),
)
