"""Room on the disk for transactions that are voted and not written yet.

A transaction is written at its finish, which must not fail because the disk is
full: other databases may have finished the same transaction by then.  So a
vote reserves the bytes that its finish will write: blocks are allocated behind
the end of the file, which keeps its size.  More blocks are allocated than
needed, so that most votes find enough already.

The reserve belongs to an open file.  Any truncate frees all of it, even one
that does not change the size; after a cut-back the reserve is made anew.

Not every file system can do this, and some report success but do nothing.
`is_real` is true if the blocks were seen to be allocated, on a file system
that writes to the blocks that it allocates.  If it is false, nothing is
reserved here, and a vote must write its transaction.

`_mutex` is held around an allocation, and while the file is replaced.
"""

import errno
import logging
import os
import threading
from collections.abc import Callable

from .. import allocation
from .. import datafile
from ..datafile import DataFile
from .turns import Owner

logger = logging.getLogger(__name__)

#: Bytes that are allocated ahead.
AHEAD = 4 << 20
_BLOCK = 512  # of st_blocks, whatever the file system
_FULL = errno.ENOSPC, errno.EDQUOT


class Reserve:

    def __init__(self, file: DataFile, end: Callable[[], int]) -> None:
        """`end()` returns where the file ends.  Between calls of `renew`, it
        only grows."""
        self._mutex = threading.Lock()
        self._end = end
        # Owner -> bytes.  Each use is atomic: if two votes reserve at the same
        # time, the later one counts both.
        self._sizes: dict[Owner, int] = {}
        self._file = file
        self._reserved_to = end()
        self.give_back()
        self.is_real = self._allocates()

    def _allocates(self) -> bool:
        descriptor = self._file.descriptor
        if not allocation.is_in_place(descriptor.number):
            return False
        before = os.fstat(descriptor.number).st_blocks
        try:
            datafile.disk.reserve(descriptor.number, self._end(), AHEAD)
        except OSError:  # a full disk: each vote will report it
            return False
        after = os.fstat(descriptor.number).st_blocks
        # (Some of the room may be in the last block of the data.)
        if (after - before) * _BLOCK < AHEAD // 2:
            return False
        self._reserved_to = self._end() + AHEAD
        return True

    def promise(self, owner: Owner, size: int) -> None:
        """Reserve this many bytes for an owner, or raise OSError."""
        self._sizes[owner] = size
        if self.is_real and (
                self._end() + sum(self._sizes.values()) > self._reserved_to):
            with self._mutex:
                try:
                    self._extend()
                except OSError as error:
                    error.filename = self._file.name
                    raise

    def let_go(self, owner: Owner) -> None:
        """The owner's bytes were written, or never will be."""
        self._sizes.pop(owner, None)

    @property
    def total(self) -> int:
        """The bytes of all owners."""
        return sum(self._sizes.values())

    def renew(self) -> None:
        """Reserve again: the file was cut back, or replaced by another one."""
        with self._mutex:
            self._reserved_to = self._end()
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
        # Check first: an allocation that fails keeps the blocks that it got.
        if (position - max(end, self._reserved_to)
                > allocation.free(descriptor.number)):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        datafile.disk.reserve(descriptor.number, end, position - end)
        self._reserved_to = position

    # Other files

    def prepare(self, file: DataFile, end: int) -> None:
        """Reserve in a file that will replace this one, or raise OSError."""
        with self._mutex:
            if self.total and self.is_real:
                descriptor = file.descriptor
                datafile.disk.reserve(descriptor.number, end, self.total)

    def move(self, file: DataFile) -> None:
        """Another file has replaced this one."""
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
