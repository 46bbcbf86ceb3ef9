"""A download of a blob into the cache: what `fetch` writes to.

It promises that room is taken before a byte is written, and that a blob gets
its name only when all of it is there, as many bytes as were announced.

What a process that died has said to be there is not downloaded again.  A stock
server does not say how large a blob is: then room is taken piece by piece.
"""

import errno
import os
import typing
from collections.abc import Callable

from transaction.interfaces import TransientError
from ZODB.POSException import StorageError

from ...wire.frames import LONGEST_BLOB
from .part import OF_WHAT_IS_SAID
from .part import Part

if typing.TYPE_CHECKING:
    from .room import Room

#: A blob up to this size is fetched whole before it is read.
SHORT = 1 << 20

#: Bytes, of any system.
LARGEST_FILE = (1 << 63) - 1

#: How often a download is begun or continued.
TRIES = 5

DISK_FULL = errno.ENOSPC, errno.EDQUOT


class Interrupted(Exception):
    """The connection was lost, or similar: continue the same download."""


class DownloadFailed(StorageError, TransientError):
    """A blob could not be loaded; the message says why.

    The partial file was removed, retrying may work.
    """


class Download:

    #: Bytes: of a larger blob, only a beginning is wanted now.
    most = LONGEST_BLOB

    is_complete = False

    def __init__(self, part: Part, path: str, room: 'Room',
                 fetch: Callable[['Download'], object]) -> None:
        """`part` is locked; it is closed at the end, unless it is a guest's.
        """
        self.part = part
        self.path = path
        self._room = room
        self._fetch = fetch
        # Of the whole blob; None: it is not known.
        self._size: int | None = None
        #: Bytes that are there.
        self.offset = 0

    def __str__(self) -> str:
        return f'the blob {self.path}'

    # What `fetch` calls

    def expect(self, size: int) -> None:
        """The server says how many bytes the whole blob has."""
        if (self._size not in (None, size)
                or not self.offset <= size <= LARGEST_FILE):
            raise DownloadFailed(
                f'{self} has {size} bytes on the server, but'
                f' {self._size or self.offset} were expected')
        if self._size is None:
            self._resize(size + (OF_WHAT_IS_SAID if size > SHORT else 0))
            self._size = size
        self._tell(self.offset)

    def write(self, piece: bytes | bytearray | memoryview) -> None:
        piece = memoryview(piece).cast('B')
        offset, end = self.offset, self.offset + len(piece)
        if self._size is None:
            if end > self.part.length:
                self._resize(end)
        elif end > self._size:
            raise DownloadFailed(
                f'{self} goes on after the {self._size} bytes that the server'
                ' announced')
        while piece:
            written = os.pwrite(self.part.fileno(), piece, offset)
            offset += written
            piece = piece[written:]
        self._tell(end)

    def restart(self) -> None:
        """The server begins again, because it cannot continue."""
        self._tell(0)

    def _tell(self, offset: int) -> None:
        self.offset = offset
        if self._size is not None and self._size > SHORT:
            self.part.say(self._size, offset)

    # What the cache calls

    def run(self, most: int = LONGEST_BLOB) -> None:
        """Bring the blob, or a beginning of one that is longer than `most`."""
        self.most = most
        try:
            if self._size is None:
                self._size, self.offset = self.part.said() or (None, 0)
            self._transfer()
            if self._size in (None, self.offset):
                self._complete()
            elif most == LONGEST_BLOB:
                raise DownloadFailed(
                    f'{self} ended after {self.offset} of {self._size} bytes')
        except BaseException:
            self.give_up()
            raise

    def give_up(self) -> None:
        """Remove the part, unless it is the blob by now."""
        if not self.part.closed:
            with self.part:
                self._room.remove(self.part)

    def _transfer(self) -> None:
        made_room = False
        for _ in range(TRIES):
            try:
                self._fetch(self)
                return
            except Interrupted as error:
                reason = error
            except OSError as error:
                if error.errno not in DISK_FULL or made_room:
                    raise
                self._room.free(max((self._size or 0) - self.offset, SHORT))
                made_room = True
        raise DownloadFailed(
            f'{self} did not come: the connection to the server was lost'
            f' {TRIES} times, the last time by: {reason}') from reason

    def _complete(self) -> None:
        # Nothing is said behind it any more; or a dead process had more.
        if self.part.length != self.offset:
            self._resize(self.offset)
        if not self.part.is_guest:
            self._room.directory.give_name(self.part.path, self.path)
            self.part.close()
        self.is_complete = True

    def _resize(self, size: int) -> None:
        if self.part.is_guest:
            os.truncate(self.part.fileno(), size)
        else:
            self._room.resize(self.part, size)
