"""What a GET or HEAD asks for: its conditions and its range (RFC 9110,
sections 13 and 14).

Pure functions of the environ of a request (WSGI), the entity tag of what would
be sent (quoted, and strong), and its time in seconds.

A date says less than a tag, since two commits in one second have the same
date.  A date is used only if there is no tag.  It is never used for If-Range,
because the client could then mix two revisions.  An invalid date is ignored.

A range is `(start, stop)`, as in a slice; it is empty if the file has no byte
of what is asked for.  A header that is invalid, or asks for several ranges, is
ignored, as the RFC allows: the whole file is sent.
"""

import re
from datetime import timezone
from email.utils import parsedate_to_datetime

_TAG = re.compile(r'(W/)?("[^"]*")')

# No file needs more digits.
_RANGE = re.compile(
    r'bytes\s*=\s*([0-9]{0,20})-([0-9]{0,20})\s*', re.IGNORECASE)


def refusal(environ, tag, modified):
    """304 or 412, in the RFC's order of precedence; None: answer in full."""
    wanted = environ.get('HTTP_IF_MATCH')
    if wanted is not None:
        if not _names(wanted, tag, weakly=False):
            return 412
    elif _is_later(modified, environ.get('HTTP_IF_UNMODIFIED_SINCE'), False):
        return 412
    known = environ.get('HTTP_IF_NONE_MATCH')
    if known is not None:
        return 304 if _names(known, tag, weakly=True) else None
    return None if _is_later(
        modified, environ.get('HTTP_IF_MODIFIED_SINCE'), True) else 304


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
        return max(size - last, 0), size
    if last is None:
        return first, max(size, first)
    if last < first:
        return None
    return first, max(min(last + 1, size), first)


def _names(listed, tag, weakly):
    if listed.strip() == '*':
        return True
    return any(each == tag and (weakly or not weak)
               for weak, each in _TAG.findall(listed))


def _is_later(modified, date, otherwise):
    """Was it modified after this date?  `otherwise`: if it is no date."""
    try:
        parsed = parsedate_to_datetime(date or '')
    except (ValueError, OverflowError):
        return otherwise
    if not parsed.tzinfo:  # as in the oldest of the three formats
        parsed = parsed.replace(tzinfo=timezone.utc)
    return modified > parsed.timestamp()
