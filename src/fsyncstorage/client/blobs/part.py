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

GUEST = '.guest'

# The size of a blob, and how many bytes of it are there.
_SAID = struct.Struct('>QQ')
OF_WHAT_IS_SAID = _SAID.size


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

    It is as long as the room that it takes.  Behind a long blob is said how
    large that is, and how much of it is there, until it is complete.
    """

    @property
    def length(self) -> int:
        return os.fstat(self.fileno()).st_size

    @property
    def is_guest(self) -> bool:
        return self.path.endswith(GUEST)

    def say(self, size: int, there: int) -> None:
        """Say how large the blob is, and how many bytes are there."""
        os.pwrite(self.fileno(), _SAID.pack(size, there), size)

    def said(self) -> tuple[int, int] | None:
        """What was said last; None if nothing is."""
        size = self.length - OF_WHAT_IS_SAID
        if size <= 0:
            return None
        data = os.pread(self.fileno(), OF_WHAT_IS_SAID, size)
        if len(data) < OF_WHAT_IS_SAID:  # it is complete by now
            return None
        said, there = _SAID.unpack(data)
        return (size, there) if there <= size == said else None

    def remove(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.remove(self.path)

    def close(self) -> None:
        if not self.closed:
            self.unlock()
        super().close()
