"""The files that a pack makes beside the data file.

They are made while no other process has the data file open, or packs it: only
then may files of these names be removed.
"""

import contextlib
import os
from collections.abc import Callable

from .. import datafile
from . import naming
from . import packedblobs

Guard = Callable[[], contextlib.AbstractContextManager[object]]


class Files:
    """`like` is the open data file, and `reopen()` opens it once more.

    `guard()` is a context in which no other process has the data file open.
    """

    def __init__(self, path: str, blob_dir: str | None,
                 like: datafile.DataFile,
                 reopen: Callable[[], datafile.DataFile],
                 guard: Guard = contextlib.nullcontext) -> None:
        self._path = path
        self._like = like
        self._reopen = reopen
        self._guard = guard
        self._open: list[datafile.DataFile] = []
        self._made: list[datafile.DataFile] = []
        self.removed: datafile.DataFile | None = None
        with guard():
            try:
                self.new = self._make(path + naming.PACKED)
                self.index = self._make(path + naming.INDEX_OF_PACKED)
                if blob_dir:
                    self.removed = self._make(
                        os.path.join(blob_dir, packedblobs.LIST))
            except BaseException:
                self.leave_nothing()
                raise

    def old(self) -> datafile.DataFile:
        """The old file, opened once more, for a child process to read."""
        old = self._reopen()
        self._open.append(old)
        return old

    def another_index(self) -> datafile.DataFile:
        with self._guard():
            self.index = self._make(self._path + naming.INDEX_OF_PACKED)
            return self.index

    def _make(self, path: str) -> datafile.DataFile:
        # The old file may be for its owner alone.
        file = datafile.open_new(path, 0o600)
        self._open.append(file)
        self._made.append(file)
        naming.give_owner(self._like, file)
        return file

    def leave_nothing(self) -> None:
        """Remove the files that were made.

        Files of others are left alone: if the data file is not ours any more,
        another process may be packing, and its files may have these names.
        """
        for file in self._made:
            datafile.remove_if_it_is(str(file.name), file)

    def close(self) -> None:
        for file in self._open:
            file.close()
