"""Appends to a file, through a buffer; or to nowhere.  Leaves the disk to
others.

A pack syncs its file while it writes it, so often that each sync is short: a
commit on the same disk has to wait as long as a sync of the pack takes.  The
number of bytes between two syncs is adapted to the speed of the disk.

If it is given a rate, a pack also limits the bytes that it reads and writes in
a second.
"""

import time
from collections.abc import Callable

from .. import datafile
from ..format.window import Pread
from ..processes.rate import NO_LIMIT
from ..processes.rate import Rate
from .checksum import Checksum

# Seconds that a sync should take.  With 20 ms, the p99 of commits during a
# pack was longer (docs/internals/pack.rst).
AIM = 0.008
# Bytes between two syncs: at the beginning, at least, at most.
FIRST, LEAST, MOST = 1 << 20, 1 << 16, 1 << 26


class Pacer:

    def __init__(self, file: datafile.DataFile,
                 rate: Rate = NO_LIMIT) -> None:
        self._file = file
        #: Limits what is written.
        self.rate = rate
        self._written_to = self._synced_to = 0
        self._step = FIRST

    def written(self, end: int) -> None:
        """The file is written up to here."""
        self.rate.spent(end - self._written_to)
        self._written_to = end
        if end - self._synced_to >= self._step:
            begun = time.monotonic()
            self.sync(end)
            # (A sync that took no time at all counts as very short.)
            took = max(time.monotonic() - begun, AIM / 8)
            self._step = int(min(MOST, max(LEAST, self._step * AIM / took)))

    def sync(self, end: int) -> None:
        self._file.sync()
        self._synced_to = end


def reading_at(rate: Rate, pread: Pread) -> Pread:
    """A `pread` that keeps to the rate."""
    def read(length: int, position: int) -> bytes:
        data = pread(length, position)
        rate.spent(len(data))
        return data

    return read


class Output:
    BUFFER = 1 << 18

    def __init__(self, file: datafile.DataFile, end: int = 0,
                 written: Callable[[int], object] = lambda end: None,
                 checksum: Checksum | None = None) -> None:
        self._file = file
        self._begin = end           # of the buffer, in the file
        self._buffer = bytearray()
        self._written = written     # called with the position written up to
        #: Of the bytes that are written and do not change any more.
        self.checksum = checksum
        self._final = end           # bytes before this do not change any more

    @property
    def end(self) -> int:
        return self._begin + len(self._buffer)

    def append(self, data: bytes | memoryview) -> None:
        self._buffer += data
        if len(self._buffer) >= self.BUFFER:
            self.flush()

    def fill_in(self, data: bytes, position: int) -> None:
        """Replace bytes that were appended in one call.

        After this, nothing that was appended so far changes any more.
        """
        at = position - self._begin
        if at >= 0:
            self._buffer[at:at + len(data)] = data
        else:
            self._file.write_at(data, position)
        self._final = self.end

    def flush(self) -> None:
        if self._buffer:
            self._file.write_at(self._buffer, self._begin)
            self._begin = self.end
            self._buffer = bytearray()
            self._written(self._begin)
        if self.checksum is not None:
            self.checksum.read_to(self._final)


class Nowhere(Output):
    """Only its length is known."""

    def __init__(self) -> None:
        self._begin, self._buffer, self.checksum = 0, bytearray(), None

    def fill_in(self, data: bytes, position: int) -> None:
        pass

    def flush(self) -> None:
        self._begin = self.end
        self._buffer = bytearray()
