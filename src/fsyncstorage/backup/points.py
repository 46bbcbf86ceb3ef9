"""A point that an operator names: a time in UTC, or a tid."""

import datetime
import re

from persistent.timestamp import TimeStamp

_TID = re.compile('[0-9a-fA-F]{16}')
_DATE = re.compile('[0-9]{4}-')
_UTC = datetime.timezone.utc


def tid_of(text: str) -> bytes:
    """The tid itself, or the last one that a transaction of that time could
    have; ValueError."""
    if _TID.fullmatch(text):
        return bytes.fromhex(text)
    try:
        if not _DATE.match(text):
            raise ValueError
        time = datetime.datetime.fromisoformat(re.sub('[zZ]$', '+00:00', text))
        if time.tzinfo is not None:
            time = time.astimezone(_UTC)
        return _tid(time)
    except (ValueError, OverflowError):
        raise ValueError(
            f'{text!r} is neither a time, like 2027-01-31T14:30:00, nor a tid'
            ' of 16 hexadecimal digits') from None


def tid_of_time(seconds: float) -> bytes:
    return _tid(datetime.datetime.fromtimestamp(seconds, _UTC))


def _tid(time: datetime.datetime) -> bytes:
    stamp: bytes = TimeStamp(
        time.year, time.month, time.day, time.hour, time.minute,
        time.second + time.microsecond / 1e6).raw()
    return stamp


def time_of(tid: bytes) -> str:
    """For people."""
    time = datetime.datetime.fromtimestamp(TimeStamp(tid).timeTime(), _UTC)
    return time.strftime('%Y-%m-%dT%H:%M:%S.%f')[:-3] + 'Z'


def named(tid: bytes) -> str:
    """Time and tid."""
    return f'{time_of(tid)} (tid {tid.hex()})'
