"""How a pack leaves room for others at the disk.

It syncs its file while it is written, so often that each sync is short: a
commit on the same disk stands behind the sync of a large file for as long as
that takes.  So the number of bytes between two syncs is adapted to the disk.

And it reads and writes at most so many bytes a second, if that is wanted.
"""

import time
from collections.abc import Callable

from .. import datafile
from ..format.window import Pread

# Seconds that a sync should take.
AIM = 0.02
# Bytes between two syncs: at the beginning, at least, at most.
FIRST, LEAST, MOST = 1 << 20, 1 << 16, 1 << 26
# What was slower than a rate is caught up with for so many seconds.
CATCH_UP = 1.0


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


class Rate:
    """At most so many bytes a second, on average; None: as many as can be."""

    def __init__(self, most: int | None) -> None:
        self._most = most
        #: When all that was read or written may have been.
        self._due = time.monotonic()

    def spend(self, count: int) -> None:
        """So many bytes were read or written: wait until they may have
        been."""
        if self._most is None:
            return
        now = time.monotonic()
        self._due = max(self._due, now - CATCH_UP) + count / self._most
        if self._due > now:
            time.sleep(self._due - now)

    def of_reading(self, pread: Pread) -> Pread:
        def read(length: int, position: int) -> bytes:
            data = pread(length, position)
            self.spend(len(data))
            return data

        return pread if self._most is None else read

    def of_writing(self, written: Callable[[int], object]
                   ) -> Callable[[int], object]:
        """Of `written(end)`, which is called behind each write."""
        begin = 0

        def note(end: int) -> None:
            nonlocal begin
            self.spend(end - begin)
            begin = end
            written(end)

        return written if self._most is None else note
