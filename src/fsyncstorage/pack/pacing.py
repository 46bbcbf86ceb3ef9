"""How a pack leaves the disk to others.

It syncs its file while it writes it, so often that each sync is short: a
commit on the same disk has to wait as long as a sync of the pack takes.  The
number of bytes between two syncs is adapted to the speed of the disk.

If it is given a rate, a pack also limits the bytes that it reads and writes in
a second.
"""

import time
from collections.abc import Callable

from .. import datafile
from ..format.window import Pread
from ..processes.rate import Rate

# Seconds that a sync should take.  With 20 ms, the p99 of commits during a
# pack was longer (docs/internals/pack.rst).
AIM = 0.008
# Bytes between two syncs: at the beginning, at least, at most.
FIRST, LEAST, MOST = 1 << 20, 1 << 16, 1 << 26


class Pacer:

    def __init__(self, file: datafile.DataFile, synced_to: int = 0) -> None:
        self._file = file
        self._synced_to = synced_to
        self._step = FIRST

    def written(self, end: int) -> None:
        """The file is written up to here."""
        if end - self._synced_to >= self._step:
            begun = time.monotonic()
            self.sync(end)
            # (A sync that took no time at all counts as very short.)
            took = max(time.monotonic() - begun, AIM / 8)
            self._step = int(min(MOST, max(LEAST, self._step * AIM / took)))

    def sync(self, end: int) -> None:
        self._file.sync()
        self._synced_to = end


def reading_at(rate: Rate | None, pread: Pread) -> Pread:
    """A `pread` that keeps to the rate; None: it reads as fast as it can."""
    if rate is None:
        return pread

    def read(length: int, position: int) -> bytes:
        data = pread(length, position)
        rate.spent(len(data))
        return data

    return read


def writing_at(rate: Rate | None,
               written: Callable[[int], object]) -> Callable[[int], object]:
    """The same for writing: wraps `written(end)`, called after each write."""
    if rate is None:
        return written
    begin = 0

    def note(end: int) -> None:
        nonlocal begin
        rate.spent(end - begin)
        begin = end
        written(end)

    return note
