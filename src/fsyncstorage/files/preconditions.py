"""Whether a request needs a full answer (RFC 9110, section 13).

Pure functions of the environ of a request (WSGI), the entity tag of what would
be sent (quoted, and strong), and its time in seconds.

A date says less than a tag, since two commits in one second have the same
date.  A date is used only if there is no tag.  It is never used for If-Range,
because the client could then mix two revisions.  An invalid date is ignored.
"""

import functools
import re
from datetime import timezone
from email.utils import formatdate
from email.utils import parsedate_to_datetime

_TAG = re.compile(r'(W/)?("[^"]*")')


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
