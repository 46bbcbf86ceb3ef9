"""Reads a file from the disk, and around what the disk cannot read.

- It reads past the page cache, where the file system can (O_DIRECT): so it
  reads what is on the disk, and takes no room in the cache from others.  Where
  it cannot, what is in the cache is read there, and nothing is put into it
  (processes.reading).
- A block that cannot be read is noted, and counts as zeros: so a walk through
  the file goes on behind it, and finds which transaction is damaged.
"""

import errno
import fcntl
import mmap
import os
from collections.abc import Callable
from collections.abc import Iterator

from ..format.window import Pread
from ..processes.reading import Reader

# Bytes that are read at once.
PIECE = 1 << 18
# What a direct read begins and ends with, and what one bad place takes along.
BLOCK = mmap.PAGESIZE
# What disks and file systems say of a place that they cannot read.
_BAD_PLACE = frozenset(
    getattr(errno, name) for name in (
        'EIO', 'ENODATA', 'EBADMSG', 'EILSEQ', 'EUCLEAN', 'EREMOTEIO')
    if hasattr(errno, name))
# So many blocks are noted; when there are more, so many of the last ones stay.
_MOST_NOTED, _LAST = 2048, 1024


class FromDisk:
    """Called like os.pread; `pread` is `past_the_cache`.

    `spent(size)` is called after each read, of about so many bytes.
    """

    def __init__(self, pread: Pread, spent: Callable[[int], object]) -> None:
        self._pread = pread
        self._spent = spent
        #: Position of a block -> why it cannot be read.
        self._unreadable: dict[int, str] = {}

    def __call__(self, length: int, position: int) -> bytes:
        pieces = []
        while length > 0:
            piece = self._piece(min(length, PIECE), position)
            self._spent(max(len(piece), BLOCK))
            if not piece:
                break
            pieces.append(piece)
            length -= len(piece)
            position += len(piece)
        return b''.join(pieces)

    def take_unreadable(self, end: int) -> str | None:
        """Say in words what could not be read before this position, and
        forget it."""
        taken = sorted(each for each in self._unreadable if each < end)
        if not taken:
            return None
        why = [self._unreadable.pop(each) for each in taken]
        return f'the disk cannot read the block at {taken[0]} ({why[0]})'

    def _piece(self, length: int, position: int) -> bytes:
        try:
            return self._pread(length, position)
        except OSError:
            return b''.join(self._blocks(length, position))

    def _blocks(self, length: int, position: int) -> Iterator[bytes]:
        """The same, block by block, with zeros for what cannot be read.

        OSError: it is not the place that is bad.
        """
        end = position + length
        while position < end:
            size = min(end - position, BLOCK - position % BLOCK)
            try:
                yield self._pread(size, position)
            except OSError as error:
                self._note(position - position % BLOCK, error)
                yield bytes(size)
            position += size

    def _note(self, block: int, error: OSError) -> None:
        if error.errno not in _BAD_PLACE:
            raise error
        self._unreadable[block] = str(error.strerror)
        if len(self._unreadable) > _MOST_NOTED:
            # Those that are far behind the last one are of one transaction
            # with the first one, or between two.
            noted = sorted(self._unreadable)
            for each in noted[1:-_LAST]:
                del self._unreadable[each]


def past_the_cache(number: int) -> Pread:
    """No other reader may share this open file."""
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
