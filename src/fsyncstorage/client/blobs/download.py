"""A download of a blob into the cache: what `fetch` writes to.

It promises that room is booked before a byte is written, and that a blob gets
its name only when all of it is there, as many bytes as were announced.

A download that a killed process left is continued: a blob never changes, and
the bytes that were written before the kill are still there.

A stock server does not say how large a blob is.  Then room is booked for the
bytes that are there, and for `STEP` bytes in advance.
"""

import contextlib
import errno
import os
import typing
from collections.abc import Callable
from collections.abc import Iterator
from typing import Any

from transaction.interfaces import TransientError
from ZODB.POSException import StorageError

from ...wire import LONGEST_BLOB

if typing.TYPE_CHECKING:
    from .books import Books
    from .cachedirectory import CacheDirectory
    from .filelocks import LockFile

#: Bytes that are booked in advance when the size of the blob is not known.
STEP = 1 << 20

DISK_FULL = errno.ENOSPC, errno.EDQUOT


class Interrupted(Exception):
    """The connection was lost, or similar: continue the same download."""


class DownloadFailed(StorageError, TransientError):
    """A blob could not be loaded; the message says why.

    The partial file was removed, retrying may work.
    """


class CacheFailed(DownloadFailed):
    """The disk of the cache does not take the blob."""


class Download:

    #: The blob does not fit into the cache (books).
    guest = False

    #: Bytes: of a larger blob, only a beginning is wanted now.
    most = LONGEST_BLOB

    def __init__(self, part: 'LockFile', name: str,
                 directory: 'CacheDirectory', books: 'Books') -> None:
        """`part` is an open file, locked as long as the download lasts."""
        self._part = part
        self._name = name
        self._directory = directory
        self._books = books
        self._size: int | None = None
        self._reserved: int | None = None
        self._edition: int | None = None
        self._made_room = False
        #: Bytes that are there.
        self.offset = os.fstat(part.fd).st_size
        #: Called with the size (None: not known) and the number of bytes that
        #: are there.
        self.tell: Callable[[int | None, int], object] = lambda *_: None

    def __str__(self) -> str:
        return f'the blob {self._name}'

    # What `fetch` calls

    def expect(self, size: int) -> None:
        """The server says how many bytes the whole blob has."""
        if self._size is None and self.offset <= size:
            self._size = size
            self._reserve(size)
        elif self._size != size:
            raise DownloadFailed(
                f'{self} has {size} bytes on the server, but'
                f' {self._size or self.offset} were expected')
        self.tell(self._size, self.offset)

    def write(self, piece: bytes | bytearray | memoryview) -> None:
        piece = memoryview(piece).cast('B')
        end = self.offset + len(piece)
        if self._size is None:
            self._keep_ahead(end)
        elif end > self._size:
            raise DownloadFailed(
                f'{self} goes on after the {self._size} bytes that the server'
                ' announced')
        while piece:
            written = self._with_room(
                os.pwrite, self._part.fd, piece, self.offset)
            self.offset += written
            piece = piece[written:]
        self.tell(self._size, self.offset)

    def restart(self) -> None:
        """The server begins again, because it cannot continue."""
        os.truncate(self._part.fd, 0)
        self.offset = 0
        self.tell(self._size, self.offset)

    # What the cache calls

    @property
    def complete(self) -> bool:
        return self._size in (None, self.offset)

    @contextlib.contextmanager
    def finished(self) -> Iterator[None]:
        """The download is complete: give the blob its name.

        A guest is not removed before the `with` ends.
        """
        if not self.complete:
            raise DownloadFailed(
                f'{self} ended after {self.offset} of {self._size} bytes')
        if self._reserved != self.offset:
            self._reserve(self.offset)
        with self._with_room(self._directory.keep, self._name):
            self._with_room(self._directory.complete, self._name)
            # Not before: a process that continues a part must write to it.
            os.fchmod(self._part.fd, self._directory.mode)
            if self._edition != self._books.current_edition():
                # The books were made anew: the walk may have missed the part.
                self._reserve(self.offset)
            yield

    def give_up(self) -> None:
        """Remove the part."""
        self._books.give_up(self._name)

    @contextlib.contextmanager
    def given_up_if_it_fails(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.give_up()
            raise

    # Room

    def _keep_ahead(self, end: int) -> None:
        if not self.guest and end > (self._reserved or 0):
            # Usually, a first piece is the whole blob.
            self._reserve(end + STEP if self.offset else end, final=False)

    def _reserve(self, size: int, final: bool = True) -> None:
        booking = self._with_room(
            self._books.reserve, self._name, size, final)
        self.guest = not booking.fits
        self._edition = booking.edition
        self._reserved = size

    def _with_room(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call `function`; if the disk is full, free room and call again."""
        try:
            return function(*args)
        except FileNotFoundError:  # somebody has removed it
            raise
        except OSError as error:
            if error.errno not in DISK_FULL or self._made_room:
                raise CacheFailed(
                    f'the disk of the blob cache does not take {self}:'
                    f' {error}') from error
        self._made_room = True
        self._books.free(max((self._size or 0) - self.offset, STEP))
        return self._with_room(function, *args)
