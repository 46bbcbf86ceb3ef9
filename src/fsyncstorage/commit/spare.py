"""A descriptor that is held back, to open the files that must be synced.

When the directory of a blob is opened for its sync, its transaction is in the
data file already, with others behind it: so it can no longer fail alone.  But
a process that has no descriptor left must not stop writing either, because no
sync has failed (I7).  So one descriptor is held back.  It is closed when an
opening finds no other, and opened again after the sync.

Another thread may take the descriptor that became free.  Then, and when the
kernel has no memory, the opening is tried again until it succeeds.

Nothing here needs a lock: a descriptor is closed when no object refers to it.
"""

import contextlib
import errno
import logging
import os
import time

from .. import datafile

logger = logging.getLogger(__name__)

#: Errors of an opening that can go away, perhaps when the operator acts.
PASSING = errno.EMFILE, errno.ENFILE, errno.ENOMEM
#: Seconds between two attempts.
PAUSE = 0.02


class Spare:

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._held: datafile.Descriptor | None = None
        self._take()

    def _take(self) -> None:
        if self._held is None:
            self._held = datafile.Descriptor(os.open(
                self._directory,
                os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))

    def close(self) -> None:
        self._held = None

    def sync_path(self, path: str) -> None:
        """Sync a file that other code wrote."""
        datafile.sync_path(path, self._open)
        self._take_again()

    def sync_directory(self, path: str) -> None:
        """Make the names in a directory durable."""
        datafile.disk.sync_directory(path, self._open)
        self._take_again()

    def _take_again(self) -> None:
        with contextlib.suppress(OSError):  # try again after the next sync
            self._take()

    def _open(self, path: str, flags: int) -> int:
        is_said = False
        while True:
            try:
                return datafile.disk.open(path, flags)
            except OSError as error:
                if error.errno not in PASSING:
                    raise
                if self._held is not None:
                    self._held = None
                    continue
                if not is_said:
                    is_said = True
                    logger.error(
                        'a sync cannot open its file (%s): it tries again'
                        ' until a descriptor is free, and commits wait for'
                        ' it', error)
                time.sleep(PAUSE)
