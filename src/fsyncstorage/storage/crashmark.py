"""The mark beside a data file whose last commits may not be on the disk.

Under `none` and `interval` a commit is acknowledged before it is synced.  The
mark, `Data.fs.unsynced`, exists from before the first such commit until a
close that has synced the whole file.  If an opening finds the mark, there was
no such close: commits that were acknowledged, and perhaps seen by clients, may
be missing.

Then the mark stays until a later transaction is in the file: until then, a
client that has seen a missing commit could not notice the loss.
"""

import logging
import os

from .. import datafile

logger = logging.getLogger(__name__)


class Mark:

    def __init__(self, file_name: str, last_tid: bytes) -> None:
        self._path = file_name + '.unsynced'
        self._last_tid = last_tid
        self._made = False
        #: Commits that were acknowledged may be missing from the file.
        self.found = os.path.exists(self._path)

    def make(self) -> None:
        """Commits will be acknowledged before they are synced."""
        self._made = True
        if not self.found:
            with datafile.open_new(self._path):
                pass
            datafile.disk.sync_directory(os.path.dirname(self._path))

    def remove(self, last_tid: bytes) -> None:
        """Everything up to this tid is synced, and the file will be closed."""
        if (last_tid > self._last_tid if self.found else self._made):
            try:
                datafile.remove_if_there(self._path)
            except OSError as error:
                logger.warning('%s stays, though nothing is missing: %s',
                               self._path, error)
