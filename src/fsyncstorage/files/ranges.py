"""Which bytes of a file a Range header asks for (RFC 9110, section 14).

Pure functions.  A range is `(start, stop)`, as in a slice; what is selected is
never empty, lies within the file, and comes in the order of the header.

An invalid header is ignored, as in the RFC: the whole file is sent.  It is
also sent for requests that serve no purpose but cost much: more than `MOST`
ranges, and ranges that overlap so much that together they are larger than the
file.
"""

import re

#: A request for more ranges gets the whole file.
MOST = 16

# No file needs more digits.
_RANGE = re.compile(r'([0-9]{0,20})-([0-9]{0,20})')


class Unsatisfiable(Exception):
    """None of the ranges has a byte of the file."""


def select(header, size):
    """The ranges of a file of this size; None: send all of it."""
    asked = _parse(header)
    if asked is None or len(asked) > MOST:
        return None
    ranges = [(start, stop) for start, stop in
              (_within(*pair, size) for pair in asked) if start < stop]
    if not ranges:
        raise Unsatisfiable(header)
    if sum(stop - start for start, stop in ranges) > size:
        return None
    return ranges


def content_range(start, stop, size):
    return f'bytes {start}-{stop - 1}/{size}'


def _parse(header):
    """Pairs of the first and the last byte, either of which may be None."""
    unit, equals, listed = (header or '').partition('=')
    if unit.strip().lower() != 'bytes' or not equals:
        return None
    pairs = []
    for text in filter(None, map(str.strip, listed.split(','))):
        match = _RANGE.fullmatch(text)
        if match is None or text == '-':
            return None
        first, last = (int(each) if each else None for each in match.groups())
        if None not in (first, last) and last < first:
            return None
        pairs.append((first, last))
    return pairs or None


def _within(first, last, size):
    if first is None:  # `last` bytes at the end
        return max(size - last, 0), size
    return first, size if last is None else min(last + 1, size)
