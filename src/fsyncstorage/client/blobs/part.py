"""Parts: the files of downloads; and locks on files, by `flock`.

A process that dies loses its locks.  A child of a fork shares the locks of its
parent, and would keep them: so it closes the files that it inherits (forks).
"""

import contextlib
import fcntl
import io
import os
import struct

from ... import forks

PROGRESS = '.progress'
GUEST = '.guest'

# The size of a blob, and how many bytes of it are there.
_SAID = struct.Struct('>QQ')


class LockedFile(io.FileIO):
    """An open file that can be locked, also against other opens of it."""

    def __init__(self, path: str, create: bool = True) -> None:
        flag = os.O_CREAT if create else 0
        super().__init__(path, 'r+', opener=lambda path, flags: os.open(
            path, flags | flag, 0o600))
        self.path = path
        forks.in_child(self)

    def lock(self, wait: bool = False) -> bool:
        """Lock it; return whether it is locked now."""
        try:
            fcntl.flock(self, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            return False
        return True

    def has_its_name(self) -> bool:
        """Does the path still lead to this file?"""
        try:
            return os.path.samestat(
                os.fstat(self.fileno()), os.stat(self.path))
        except FileNotFoundError:
            return False

    def unlock(self) -> None:
        """Closing is not enough: a child may have inherited the file before
        `in_child` knew of it."""
        fcntl.flock(self, fcntl.LOCK_UN)

    def forked(self) -> None:
        super().close()


class Part(LockedFile):
    """Who downloads the blob has its part locked; others may read it.

    It is as long as the room that it takes.  How much of a long blob is there
    is said in a file beside its part.
    """

    _progress: io.FileIO | None = None

    @property
    def length(self) -> int:
        return os.fstat(self.fileno()).st_size

    @property
    def is_guest(self) -> bool:
        return self.path.endswith(GUEST)

    def say(self, size: int, there: int) -> None:
        """Say how large the blob is, and how many bytes are there."""
        if self._progress is None:
            self._progress = open(self.path + PROGRESS, 'wb', 0)
        os.pwrite(self._progress.fileno(), _SAID.pack(size, there), 0)

    def said(self) -> tuple[int, int] | None:
        """What was said last; None if nothing was."""
        if self._progress is None:
            try:
                progress = open(self.path + PROGRESS, 'r+b', 0)
            except FileNotFoundError:
                return None
            # If the part has lost its name, that may be of a later one.
            if not self.has_its_name():
                progress.close()
                return None
            self._progress = progress
        data = os.pread(self._progress.fileno(), _SAID.size, 0)
        if len(data) < _SAID.size:
            return None
        size, there = _SAID.unpack(data)
        return (size, there) if there <= min(size, self.length) else None

    def complete(self) -> None:
        """It is about to lose its name: another part may get it."""
        if self._progress is not None:
            os.remove(self.path + PROGRESS)

    def remove(self) -> None:
        # In this order: a new part never finds the progress of an older one.
        for path in self.path + PROGRESS, self.path:
            with contextlib.suppress(FileNotFoundError):
                os.remove(path)

    def close(self) -> None:
        if self._progress is not None:
            self._progress.close()
        if not self.closed:
            self.unlock()
        super().close()
