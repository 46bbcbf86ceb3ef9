"""Transaction ids: when a transaction was given its place in the file.

They are those that ZODB.utils.newTid gives.  A tid has the minute, by the
calendar, and the part of it that is over.  To look into the calendar takes
longer than all the rest, and this happens under the append lock; so it is done
once a minute.
"""

import struct
import time

from persistent.TimeStamp import TimeStamp

_fraction = struct.Struct('>I')
_UNIT = 60.0 / (1 << 16) / (1 << 16)  # in seconds


class Tids:
    """One thread at a time asks."""

    def __init__(self) -> None:
        self._minute: float | None = None
        self._front = b''  # of the tids of this minute

    def next(self, last: bytes) -> bytes:
        """The current time; if that is not later, just behind `last`."""
        now = time.time()
        minute, seconds = divmod(now, 60)
        if minute != self._minute:
            self._front = TimeStamp(*time.gmtime(now)[:5]).raw()[:4]
            self._minute = minute
        tid = self._front + _fraction.pack(int(seconds / _UNIT))
        if tid <= last:
            tid = TimeStamp(tid).laterThan(TimeStamp(last)).raw()
        return tid
