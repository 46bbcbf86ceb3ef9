"""A descriptor kept in reserve, to open what has to be synced.

When the directory of a blob is opened for its sync, its transaction is in the
data file already, and others are behind it: too late for it to fail alone.  A
process that has no descriptor left must not stop writing for that, for nothing
was tried that could have failed (I7).  So one descriptor is kept back, which
is closed when an opening finds none, and opened again after the sync.

Another thread can be faster, and take the one that was given up.  Then the
opening is tried again until it succeeds: the transactions that wait for that
sync wait, everybody else goes on.  The same goes for memory of the kernel.

Nothing here is locked: a descriptor is closed when nobody refers to it.
"""

import errno
import logging
import os
import time

from .. import datafile

logger = logging.getLogger(__name__)

#: Errors of an opening that pass by themselves, or when somebody acts.
PASSING = errno.EMFILE, errno.ENFILE, errno.ENOMEM
#: Seconds between two attempts.
PAUSE = 0.02
#: Seconds between two lines in the log.
SILENCE = 60.0


class Spare:

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._held: datafile.Descriptor | None = None
        self._silent_until = 0.0
        self._take()

    def _take(self) -> None:
        if self._held is None:
            self._held = datafile.Descriptor(os.open(
                self._directory,
                os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))

    def close(self) -> None:
        self._held = None

    def sync_path(self, path: str) -> None:
        """Sync a file that something else wrote."""
        datafile.sync_path(path, self._open)
        self._take_again()

    def sync_directory(self, path: str) -> None:
        """Make the names in a directory durable."""
        datafile.disk.sync_directory(path, self._open)
        self._take_again()

    def _take_again(self) -> None:
        try:
            self._take()
        except OSError:
            pass  # after the next sync, perhaps

    def _open(self, path: str, flags: int) -> int:
        while True:
            try:
                return datafile.disk.open(path, flags)
            except OSError as error:
                if error.errno not in PASSING:
                    raise
                if self._held is None:
                    self._complain(error)
                    time.sleep(PAUSE)
                self._held = None

    def _complain(self, error: OSError) -> None:
        now = time.monotonic()
        if now >= self._silent_until:
            self._silent_until = now + SILENCE
            logger.error(
                'a sync waits, it cannot open its file (%s): commits wait'
                ' with it until there is room for one more', error)
