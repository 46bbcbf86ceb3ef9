"""Transaction ids: when a transaction was given its position in the file.

They equal those of ZODB.utils.newTid.  A tid contains the minute, by the
calendar, and the part of the minute that has passed.  Tids are made under the
append lock, so the calendar, which takes longest, is used only once a minute.
"""

import struct
import time

from persistent.TimeStamp import TimeStamp

_fraction = struct.Struct('>I')
_UNIT = 60.0 / (1 << 16) / (1 << 16)  # in seconds


class Tids:
    """Used by one thread at a time."""

    def __init__(self) -> None:
        self._minute: float | None = None
        self._front = b''  # first bytes of the tids of this minute

    def next(self, last: bytes) -> bytes:
        """The tid of this moment, or the next one after a later `last`."""
        now = time.time()
        minute, seconds = divmod(now, 60)
        if minute != self._minute:
            self._front = TimeStamp(*time.gmtime(now)[:5]).raw()[:4]
            self._minute = minute
        tid = self._front + _fraction.pack(int(seconds / _UNIT))
        if tid <= last:
            tid = TimeStamp(tid).laterThan(TimeStamp(last)).raw()
        return tid
