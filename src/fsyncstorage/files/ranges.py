"""Which bytes of a file a Range header asks for (RFC 9110, section 14).

A range is `(start, stop)`, as in a slice; it is never empty, and lies within
the file.  A header that is invalid, or asks for several ranges, is ignored, as
the RFC allows: the whole file is sent.
"""

import re

# No file needs more digits.
_RANGE = re.compile(
    r'bytes\s*=\s*([0-9]{0,20})-([0-9]{0,20})\s*', re.IGNORECASE)


class Unsatisfiable(Exception):
    """The range has no byte of the file."""


def select(header, size):
    """The range of a file of this size; None: send all of it."""
    match = _RANGE.fullmatch(header or '')
    if match is None or not any(match.groups()):
        return None
    first, last = (int(each) if each else None for each in match.groups())
    if first is None:  # `last` bytes at the end
        start, stop = max(size - last, 0), size
    elif last is None:
        start, stop = first, size
    elif last < first:
        return None
    else:
        start, stop = first, min(last + 1, size)
    if start >= stop:
        raise Unsatisfiable(header)
    return start, stop


def content_range(start, stop, size):
    return f'bytes {start}-{stop - 1}/{size}'
