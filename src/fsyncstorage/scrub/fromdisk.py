"""Reads a file from the disk, and skips what the disk cannot read.

- It bypasses the page cache if the file system can do that (O_DIRECT).
- What cannot be read is tried again after a pause, block by block.  A block
  that cannot be read then, too, counts as zeros: so a walk through the file
  can go on behind it, and no block is tried over and over again.
- A direct read holds the kernel's lock of the file, and the write of a commit
  waits for this lock.  So each read is short.
"""

import errno
import fcntl
import mmap
import os
import time
from collections.abc import Callable

from ..format.window import Pread
from ..processes.reading import Reader

# Bytes of one read: the write of a commit may have to wait for it.  Smaller
# reads would need more processor time (docs/internals/scrub.rst has figures).
PIECE = 1 << 16
# Direct reads begin and end at multiples of this.  A bad place makes one block
# unreadable.
BLOCK = mmap.PAGESIZE
# Seconds for which a disk is left alone, at most.
LONGEST_REST = 60.0
# How many pauses there are at most: a file may have millions of bad places.
MOST_PAUSES = 20
# Error codes of disks and file systems for a place that they cannot read.
_BAD_PLACE = frozenset(
    getattr(errno, name) for name in (
        'EIO', 'ENODATA', 'EBADMSG', 'EILSEQ', 'EUCLEAN', 'EREMOTEIO')
    if hasattr(errno, name))
# The most blocks that are noted.  If there are more, those that were found
# first are forgotten: the walk has passed most of them.
_MOST_NOTED = 2048


class FromDisk:
    """Called like os.pread; `pread` is `past_the_cache`.

    `spent(size)` is called after each read, even if it has failed, with about
    the number of its bytes.  A pause has `pause` seconds.
    """

    def __init__(self, pread: Pread, spent: Callable[[int], object],
                 pause: float, wait: Callable[[float], object] = time.sleep,
                 clock: Callable[[], float] = time.monotonic) -> None:
        self._pread = pread
        self._spent = spent
        self._pause = pause
        self._pauses = 0
        self._wait = wait
        self._clock = clock
        #: Position of a block -> why it cannot be read.
        self._unreadable: dict[int, str] = {}

    def __call__(self, length: int, position: int) -> bytes:
        pieces = []
        while length > 0:
            piece = self._piece(min(length, PIECE), position)
            if not piece:
                break
            pieces.append(piece)
            length -= len(piece)
            position += len(piece)
        return b''.join(pieces)

    def pause(self) -> None:
        """Wait before something is read again."""
        self._pauses += 1
        if self._pauses <= MOST_PAUSES:
            self._wait(self._pause)

    def unreadable(self, begin: int, end: int) -> str | None:
        """Describe what cannot be read from `begin` to `end`."""
        noted = self._noted(begin, end)
        if not noted:
            return None
        return (f'the disk cannot read the block at {noted[0]}'
                f' ({self._unreadable[noted[0]]})')

    def _noted(self, begin: int, end: int) -> list[int]:
        return sorted(each for each in self._unreadable
                      if each < end and begin < each + BLOCK)

    def _piece(self, length: int, position: int) -> bytes:
        if not self._noted(position, position + length):
            try:
                return self._read(length, position)
            except OSError:
                self.pause()
        pieces, end = [], position + length
        while position < end:
            size = min(end - position, BLOCK - position % BLOCK)
            pieces.append(self._block(size, position))
            position += size
        return b''.join(pieces)

    def _block(self, length: int, position: int) -> bytes:
        """Bytes of one block; zeros if it cannot be read.

        OSError: the read failed for another reason than a bad place.
        """
        block = position - position % BLOCK
        if block not in self._unreadable:
            try:
                return self._read(length, position)
            except OSError as error:
                self._note(block, error)
        return bytes(length)

    def _read(self, length: int, position: int) -> bytes:
        begun = self._clock()
        try:
            data = self._pread(length, position)
        except OSError:
            tried_for = self._clock() - begun
            self._spent(BLOCK)
            self._wait(min(tried_for, LONGEST_REST))
            raise
        self._spent(max(len(data), BLOCK))
        return data

    def _note(self, block: int, error: OSError) -> None:
        if error.errno not in _BAD_PLACE:
            raise error
        self._unreadable[block] = str(error.strerror)
        if len(self._unreadable) > _MOST_NOTED:
            del self._unreadable[min(self._unreadable)]


def past_the_cache(number: int) -> Pread:
    """Direct reads, if possible.  No other reader may share this open file."""
    try:
        return _Direct(number)
    except (AttributeError, OSError):  # this system, or this file system
        return Reader(number)


class _Direct:
    """Called like os.pread, for at most PIECE bytes.

    OSError: the file system has no direct reads.
    """

    def __init__(self, number: int) -> None:
        self._number = number
        self._buffer = mmap.mmap(-1, PIECE + BLOCK)  # it begins with a page
        flags = fcntl.fcntl(number, fcntl.F_GETFL)
        fcntl.fcntl(number, fcntl.F_SETFL, flags | os.O_DIRECT)
        try:
            self(BLOCK, 0)
        except OSError as error:
            if error.errno not in _BAD_PLACE:
                fcntl.fcntl(number, fcntl.F_SETFL, flags)
                raise

    def __call__(self, length: int, position: int) -> bytes:
        before = position % BLOCK
        size = -(-(before + length) // BLOCK) * BLOCK
        with memoryview(self._buffer) as whole, whole[:size] as view:
            got = os.preadv(self._number, [view], position - before)
            return bytes(view[before:min(before + length, got)])
