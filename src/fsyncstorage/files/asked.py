"""What a request asks for: its conditions and its range (RFC 9110, sections 13
and 14).

Pure functions of the environ of a request (WSGI), the entity tag of what would
be sent (quoted, and strong), and its time in seconds.

A date says less than a tag, since two commits in one second have the same
date.  A date is used only if there is no tag.  It is never used for If-Range,
because the client could then mix two revisions.  An invalid date is ignored.

A range is `(start, stop)`, as in a slice; it is never empty, and lies within
the file.  A header that is invalid, or asks for several ranges, is ignored, as
the RFC allows: the whole file is sent.
"""

import functools
import re
from datetime import timezone
from email.utils import formatdate
from email.utils import parsedate_to_datetime

_TAG = re.compile(r'(W/)?("[^"]*")')

# No file needs more digits.
_RANGE = re.compile(
    r'bytes\s*=\s*([0-9]{0,20})-([0-9]{0,20})\s*', re.IGNORECASE)


class Unsatisfiable(Exception):
    """The range has no byte of the file."""


def refusal(environ, tag, modified):
    """304 or 412, in the RFC's order of precedence; None: answer in full."""
    reading = environ['REQUEST_METHOD'] in ('GET', 'HEAD')
    if not _holds_still(environ, tag, modified):
        return 412
    known = environ.get('HTTP_IF_NONE_MATCH')
    if known is not None:
        if _names(known, tag, weakly=True):
            return 304 if reading else 412
    elif reading:
        since = _seconds(environ.get('HTTP_IF_MODIFIED_SINCE'))
        if since is not None and modified <= since:
            return 304
    return None


def range_counts(environ, tag):
    """Does If-Range allow a part, because the client has this revision?"""
    return environ.get('HTTP_IF_RANGE', tag).strip() == tag


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


@functools.lru_cache(1000)  # files are asked for again
def http_date(seconds):
    return formatdate(seconds, usegmt=True)


def _holds_still(environ, tag, modified):
    wanted = environ.get('HTTP_IF_MATCH')
    if wanted is not None:
        return _names(wanted, tag, weakly=False)
    since = _seconds(environ.get('HTTP_IF_UNMODIFIED_SINCE'))
    return since is None or modified <= since


def _names(listed, tag, weakly):
    if listed.strip() == '*':
        return True
    return any(each == tag and (weakly or not weak)
               for weak, each in _TAG.findall(listed))


def _seconds(date):
    if date is None:
        return None
    try:
        parsed = parsedate_to_datetime(date)
    except (ValueError, OverflowError):
        return None
    # The oldest of the three formats does not name GMT.
    return (parsed if parsed.tzinfo else parsed.replace(
        tzinfo=timezone.utc)).timestamp()
