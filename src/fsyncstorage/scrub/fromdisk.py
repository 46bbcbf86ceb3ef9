"""Reads a file from the disk, and skips what the disk cannot read.

- It bypasses the page cache if the file system can do that (O_DIRECT).  So it
  reads what is on the disk, and takes no room in the cache from others.  On
  other file systems, what is in the cache is read there, and nothing is put
  into the cache (processes.reading).
- A block that cannot be read is noted, and counts as zeros.  So a walk through
  the file can go on behind it, and find which transaction is damaged.
- A direct read holds the kernel's lock of the file, and the write of a commit
  waits for this lock.  So each read is short.  When a disk has tried for long
  to read a bad place, it is left alone for the same time before the next read.
"""

import errno
import fcntl
import mmap
import os
import time
from collections.abc import Callable
from collections.abc import Iterator

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
# Error codes of disks and file systems for a place that they cannot read.
_BAD_PLACE = frozenset(
    getattr(errno, name) for name in (
        'EIO', 'ENODATA', 'EBADMSG', 'EILSEQ', 'EUCLEAN', 'EREMOTEIO')
    if hasattr(errno, name))
# The most blocks that are noted.  If there are more, the first one and this
# many of the last ones stay noted.
_MOST_NOTED, _LAST = 2048, 1024


class FromDisk:
    """Called like os.pread; `pread` is `past_the_cache`.

    `spent(size)` is called after each read, even if it has failed, with about
    the number of its bytes.
    """

    def __init__(self, pread: Pread, spent: Callable[[int], object],
                 wait: Callable[[float], object] = time.sleep,
                 clock: Callable[[], float] = time.monotonic) -> None:
        self._pread = pread
        self._spent = spent
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

    def unreadable(self, end: int) -> str | None:
        """Describe what could not be read before this position."""
        noted = self._unreadable_before(end)
        if not noted:
            return None
        return (f'the disk cannot read the block at {noted[0]}'
                f' ({self._unreadable[noted[0]]})')

    def _unreadable_before(self, end: int) -> list[int]:
        return sorted(each for each in self._unreadable if each < end)

    def try_unreadable_again(self, end: int) -> None:
        """Forget blocks that can be read now; stop at one that cannot."""
        for block in self._unreadable_before(end):
            try:
                self._read(BLOCK, block)
            except OSError as error:
                self._note(block, error)
                break
            del self._unreadable[block]

    def take_unreadable(self, end: int) -> str | None:
        """Like `unreadable`, but also forget these blocks."""
        words = self.unreadable(end)
        for block in self._unreadable_before(end):
            del self._unreadable[block]
        return words

    def _piece(self, length: int, position: int) -> bytes:
        try:
            return self._read(length, position)
        except OSError:
            return b''.join(self._blocks(length, position))

    def _blocks(self, length: int, position: int) -> Iterator[bytes]:
        """The piece, block by block, with zeros for what cannot be read.

        OSError: the read failed for another reason than a bad place.
        """
        end = position + length
        while position < end:
            size = min(end - position, BLOCK - position % BLOCK)
            try:
                yield self._read(size, position)
            except OSError as error:
                self._note(position - position % BLOCK, error)
                yield bytes(size)
            position += size

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
            # The first block and the last ones are enough: a block far before
            # the last one is in the same transaction as the first one, or
            # between two transactions.
            noted = sorted(self._unreadable)
            for each in noted[1:-_LAST]:
                del self._unreadable[each]


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
