"""A disk that is full.

A write that does not fit writes as much as does, and fails with ENOSPC, as
does a new directory when nothing is left.  What is cut back or removed gives
room again.  (To write over what is there needs none.)
"""

import errno
import os

from .recorder import RecordingDisk


class FullDisk(RecordingDisk):

    #: Bytes that are left; None: more than enough.
    room = None

    def __init__(self, recorder):
        super().__init__(recorder)
        self._reserved = {}  # inode -> up to where

    def _allocated(self, fd):
        """How much of the disk the file has."""
        status = os.fstat(fd)
        return max(status.st_size, self._reserved.get(status.st_ino, 0))

    def reserve(self, fd, position, length):
        growth = max(0, position + length - self._allocated(fd))
        if self.room is not None and growth > self.room:
            raise _full()
        super().reserve(fd, position, length)
        self._took(growth)
        self._reserved[os.fstat(fd).st_ino] = position + length

    def write(self, fd, data, position):
        growth = max(0, position + len(data) - self._allocated(fd))
        missing = 0 if self.room is None else max(0, growth - self.room)
        super().write(fd, data[:len(data) - missing], position)
        self._took(growth - missing)
        if missing:
            raise _full()

    def truncate(self, fd, size):
        before = self._allocated(fd)
        super().truncate(fd, size)
        self._reserved.pop(os.fstat(fd).st_ino, None)
        self._took(size - before)

    def make_directory(self, path):
        if self.room == 0:
            raise _full()
        super().make_directory(path)

    def replace(self, source, target):
        freed = _size_of_last_name(target)
        super().replace(source, target)
        self._took(-freed)

    def remove(self, path):
        freed = _size_of_last_name(path)
        super().remove(path)
        self._took(-freed)

    def _took(self, size):
        if self.room is not None:
            self.room -= size


def _size_of_last_name(path):
    """What its removal frees."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return 0
    return status.st_size if status.st_nlink == 1 else 0


def _full():
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
