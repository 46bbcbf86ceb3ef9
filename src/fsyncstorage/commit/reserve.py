"""Room on the disk for what was voted and is not written yet.

What is voted is written at its finish, and that is too late for a full disk:
others may have finished their part of the same transaction by then.  So a vote
reserves the bytes that its finish will write: blocks are allocated behind the
end of the file, which keeps its size.  They are allocated some way ahead, so
that most votes find theirs.

The reserve belongs to an open file.  Any truncate frees all of it, even one
that changes no size; after a cut-back it is made anew.  It is given back when
the file is closed; what a process that was killed has left, the next opening
gives back.

Not every file system can do this, and some say that they do and do nothing.
`is_real` is true where it was seen that blocks were allocated, on a file
system that writes to the blocks that it allocates.  Where it is false, nothing
is reserved here, and a vote must write.

Near a full disk only what is needed is allocated.

`_mutex` is held around an allocation, and while it becomes another one.
"""

import errno
import logging
import os
import threading
from collections.abc import Callable

from .. import allocation
from .. import datafile
from ..datafile import DataFile
from .locks import Owner

logger = logging.getLogger(__name__)

#: Bytes that are allocated ahead.
AHEAD = 4 << 20
_BLOCK = 512  # of st_blocks, whatever the file system
_FULL = errno.ENOSPC, errno.EDQUOT


class Reserve:

    def __init__(self, file: DataFile, end: Callable[[], int]) -> None:
        """`end()`: where the file ends; it only grows while this file is
        open, except for `renew`."""
        self._mutex = threading.Lock()
        self._end = end
        # Owner -> bytes.  Each line that uses it is one step: of two votes at
        # once, the later one counts both.
        self._sizes: dict[Owner, int] = {}
        self._file = file
        self._kept_to = end()
        self.give_back()
        self.is_real = self._allocates()

    def _allocates(self) -> bool:
        descriptor = self._file.descriptor
        if not allocation.is_in_place(descriptor.number):
            return False
        before = os.fstat(descriptor.number).st_blocks
        try:
            datafile.disk.reserve(descriptor.number, self._end(), AHEAD)
        except OSError:  # a full disk: each vote will say so
            return False
        after = os.fstat(descriptor.number).st_blocks
        # (The last block of the data may have room for some of it.)
        if (after - before) * _BLOCK < AHEAD // 2:
            return False
        self._kept_to = self._end() + AHEAD
        return True

    def promise(self, owner: Owner, size: int) -> None:
        """There will be room for so many bytes, or OSError."""
        self._sizes[owner] = size
        if self.is_real and (
                self._end() + sum(self._sizes.values()) > self._kept_to):
            with self._mutex:
                self._extend()

    def let_go(self, owner: Owner) -> None:
        """Its bytes are written, or will not be."""
        self._sizes.pop(owner, None)

    @property
    def total(self) -> int:
        """Of all owners."""
        return sum(self._sizes.values())

    def renew(self) -> None:
        """The file was cut back, which has freed all of it, or is another."""
        with self._mutex:
            self._kept_to = self._end()
            if self.total and self.is_real:
                try:
                    self._extend()
                except OSError as error:
                    logger.error(
                        '%s: the room for %d bytes of transactions that are'
                        ' voted could not be reserved again (%s); their'
                        ' commits may fail', self._file.name, self.total,
                        error)

    def _extend(self) -> None:
        needed = self._end() + self.total
        try:
            self._allocate_up_to(needed + AHEAD)
        except OSError as error:
            if error.errno not in _FULL:
                raise
            self._allocate_up_to(needed)

    def _allocate_up_to(self, position: int) -> None:
        descriptor = self._file.descriptor
        end = self._end()
        # What an allocation got before it failed would be kept.
        if (position - max(end, self._kept_to)
                > allocation.free(descriptor.number)):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        datafile.disk.reserve(descriptor.number, end, position - end)
        self._kept_to = position

    # Other files

    def prepare(self, file: DataFile, end: int) -> None:
        """Another file will take the place of this one: is there room?"""
        with self._mutex:
            if self.total and self.is_real:
                descriptor = file.descriptor
                datafile.disk.reserve(descriptor.number, end, self.total)

    def move(self, file: DataFile) -> None:
        """Another file took the place of this one."""
        with self._mutex:
            self._file = file
        self.renew()

    def give_back(self) -> None:
        """Free the blocks behind the end; the file keeps its size."""
        descriptor = self._file.descriptor
        status = os.fstat(descriptor.number)
        if status.st_blocks * _BLOCK - status.st_size >= AHEAD // 2:
            try:
                datafile.disk.truncate(descriptor.number, status.st_size)
            except OSError as error:
                logger.warning(
                    '%s: room behind its end could not be given back (%s)',
                    self._file.name, error)
