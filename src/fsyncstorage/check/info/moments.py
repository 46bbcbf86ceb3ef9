"""Times as people write them, and times in a file, both in UTC.

A time is `2026-11-23` or `2026-11-23 14:30`, optionally with seconds or an
offset from UTC.  Or it says how long ago: `3 days`, `12 hours` or `2w`.
"""

import re
from datetime import datetime
from datetime import timedelta
from datetime import timezone

from persistent.TimeStamp import TimeStamp

EXAMPLES = '2026-11-23, "2026-11-23 14:30", "3 days" or 12h'

_AGO = re.compile(
    r'(\d{1,9}) ?(min|minute|h|hour|d|day|w|week)s?( ago)?', re.ASCII)
_MINUTES = {'min': 1, 'minute': 1, 'h': 60, 'hour': 60, 'd': 1440,
            'day': 1440, 'w': 10080, 'week': 10080}
_FIRST_YEAR = 1900


def parse(text, now):
    """The time that `text` means; ValueError says what is wrong with it."""
    if ago := _AGO.fullmatch(text.strip()):
        try:
            meant = now - timedelta(
                minutes=int(ago[1]) * _MINUTES[ago[2]])
        except OverflowError:
            meant = datetime.min.replace(tzinfo=timezone.utc)
    else:
        meant = _from_iso(text)
    if meant > now:
        raise ValueError(f'{text} is in the future')
    if meant.year < _FIRST_YEAR:
        raise ValueError(f'{text} is before {_FIRST_YEAR}')
    return meant


def _from_iso(text):
    try:
        meant = datetime.fromisoformat(
            re.sub('Z$', '+00:00', text.strip()))
        if meant.tzinfo is None:
            return meant.replace(tzinfo=timezone.utc)
        return meant.astimezone(timezone.utc)
    except (ValueError, OverflowError):
        raise ValueError(
            f'{text} is no time; write {EXAMPLES}') from None


def tid_of(moment):
    """The first tid that a transaction of that time can have."""
    return TimeStamp(
        moment.year, moment.month, moment.day, moment.hour, moment.minute,
        moment.second + moment.microsecond / 1e6).raw()


def name(tid):
    """The time of a tid, to the second."""
    return str(TimeStamp(tid))[:len('2026-11-23 14:30:00')]
