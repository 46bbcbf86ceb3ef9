"""Syncs a file while it is written, so often that each sync is short.

A commit on the same disk stands behind the sync of a large file for as long
as that takes.  So the number of bytes between two syncs is adapted to the
disk.
"""

import time

from .. import datafile

# Seconds that a sync should take.
AIM = 0.02
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
