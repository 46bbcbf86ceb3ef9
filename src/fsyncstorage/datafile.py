"""Every write, sync, truncate, rename and unlink of the storage's files.

Only the object `disk` does these.  Crash tests replace `disk` by another Disk,
which can record every operation of the storage, delay it or make it fail.

`DataFile` is an open file on that disk.  Readers and writers of the same file
do not disturb each other, because each operation names its position.
"""

import contextlib
import errno
import fcntl
import io
import logging
import os
import shutil
from collections.abc import Callable
from typing import Any

from . import allocation

logger = logging.getLogger(__name__)

# Like `Disk.open`: called with a path and flags.
Opener = Callable[[str, int], int]


def _sync_primitive() -> Callable[[int], object]:
    """The call that makes the data and the size of a file durable."""
    full_sync = getattr(fcntl, 'F_FULLFSYNC', None)
    if full_sync is not None:  # macOS: fsync stops at the drive's cache
        return lambda fd: fcntl.fcntl(fd, full_sync)
    return getattr(os, 'fdatasync', os.fsync)


# No page cache has larger pages than this.  Each page begins at a multiple of
# its size.
LARGEST_PAGE = 1 << 30

COPY_CHUNK = 1 << 20


class Disk:

    sync = staticmethod(_sync_primitive())
    truncate = staticmethod(os.ftruncate)
    replace = staticmethod(os.rename)
    remove = staticmethod(os.remove)
    make_directory = staticmethod(os.mkdir)
    remove_directory = staticmethod(os.rmdir)
    #: Allocate blocks at a position; the file keeps its size.
    reserve = staticmethod(allocation.allocate)

    def open(self, path: str, flags: int, mode: int = 0o666) -> int:
        return os.open(path, flags | os.O_CLOEXEC, mode)

    def write(self, fd: int, data: bytes | bytearray | memoryview,
              position: int) -> None:
        """Write all of the data, or raise."""
        written = os.pwrite(fd, data, position)
        while written < len(data):
            # After a short write, the next one succeeds, or raises the reason.
            written += os.pwrite(fd, data[written:], position + written)

    def drop_cache(self, fd: int, position: int) -> None:
        """Let the next reads from `position` on come from the disk.

        Sync first: the kernel never drops data that it has not written yet.
        """
        if hasattr(os, 'posix_fadvise'):
            # A page that begins before the position would stay in the cache.
            position -= position % LARGEST_PAGE
            os.posix_fadvise(fd, position, 0, os.POSIX_FADV_DONTNEED)

    def begin_to_write_back(self, fd: int, position: int, end: int) -> None:
        """Let the kernel write these bytes to the disk, without waiting: the
        sync that comes later has less to do.

        Linux begins to write pages of which it is told that they are not
        needed any more.  (It forgets only those that it has written already.)
        """
        if hasattr(os, 'posix_fadvise'):
            os.posix_fadvise(
                fd, position, end - position, os.POSIX_FADV_DONTNEED)

    def link(self, source: str, target: str) -> None:
        """Give a file a second name; do not follow a symbolic link."""
        os.link(source, target, follow_symlinks=False)

    def sync_directory(
            self, path: str, opener: Opener | None = None) -> None:
        """Make the names in a directory durable.

        An `opener` is called in place of `open`.
        """
        fd = (opener or self.open)(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            self._warn_once(path)
        finally:
            os.close(fd)

    _warned: frozenset[str] = frozenset()

    def _warn_once(self, path: str) -> None:
        if path not in self._warned:
            self._warned |= {path}
            logger.warning(
                '%s: this file system cannot sync a directory: after a power'
                ' cut, files may be found under their old names', path)


disk = Disk()


def remove_if_there(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        disk.remove(path)


def make_directories(
        path: str, made: Callable[[str], object] = lambda path: None) -> None:
    """Make a directory and its parents; call `made(path)` for each new one."""
    if not os.path.isdir(path):
        make_directories(os.path.dirname(path), made)
        with contextlib.suppress(FileExistsError):  # another thread made it
            disk.make_directory(path)
            made(path)


def is_same(path: str, other: str) -> bool:
    """Are these two names of one file?"""
    try:
        return os.path.samefile(path, other)
    except FileNotFoundError:
        return False


def remove_if_it_is(path: str, file: io.IOBase) -> None:
    """Remove this name if it still belongs to this file."""
    with contextlib.suppress(FileNotFoundError):
        if os.path.samestat(os.lstat(path), os.fstat(file.fileno())):
            disk.remove(path)


# Errors of file systems that have no hard links, or do not allow this one.
_NO_LINK = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS,
            errno.EMLINK, errno.EXDEV)


def link_if_possible(source: str, target: str) -> bool:
    """Give a file a second name; return false if that is not possible."""
    try:
        disk.link(source, target)
    except OSError as error:
        if error.errno not in _NO_LINK:
            raise
        return False
    return True


def link_or_copy(source: str, target: str) -> None:
    if not link_if_possible(source, target):
        with open(source, 'rb') as from_file, open_new(target) as to_file:
            shutil.copyfileobj(from_file, to_file, COPY_CHUNK)


class Descriptor:
    """A file descriptor that is closed when nothing refers to this object.

    A reader keeps this object, never the bare number, as long as it reads: if
    the descriptor were closed, its number could already be another file's.
    """

    __slots__ = ('number',)

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self) -> None:
        os.close(self.number)


class _Closed:
    """Takes the place of the descriptor of a closed file."""

    def __init__(self, name: str, because: str = 'is closed') -> None:
        self._name = name
        self._because = because

    @property
    def number(self) -> int:
        raise ValueError(f'{self._name} {self._because}')


class DataFile(io.RawIOBase):
    """An open file, used by positions or (for stock code) with a cursor."""

    # (Slots are faster than the dictionary that the base class gives each
    # file.)
    __slots__ = '_cursor', 'name', 'serials', 'block', 'descriptor'

    #: Where the file ends for stock code; None: at its real end.
    limit: int | None = None

    def __init__(
            self, path: str, flags: int, opener: Opener | None = None) -> None:
        self._cursor = 0
        self.name = path
        #: Position -> serial, of records that were written lately.
        self.serials: dict[int, bytes] = {}
        #: The position and the bytes of the block that a reader read last.
        #: These bytes do not change any more, because they are published.
        self.block: tuple[int, bytes] = (0, b'')
        self.descriptor: Descriptor | _Closed = _Closed(path)
        self.descriptor = Descriptor((opener or disk.open)(path, flags))

    # By position, which needs no lock.  Each call keeps the descriptor in a
    # local variable: another thread may close the file during the call.

    def write_at(self, data: bytes | bytearray | memoryview,
                 position: int) -> None:
        descriptor = self.descriptor
        try:
            disk.write(descriptor.number, data, position)
        except OSError as error:
            error.filename = self.name
            raise

    def sync(self) -> None:
        descriptor = self.descriptor
        disk.sync(descriptor.number)

    def drop_cache(self, position: int) -> None:
        descriptor = self.descriptor
        disk.drop_cache(descriptor.number, position)

    def lock(self) -> None:
        """Lock the file itself, whatever its name is.

        BlockingIOError if it is locked already."""
        try:
            fcntl.flock(self.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EWOULDBLOCK):
                raise
            # The file system has no such locks.

    def unlock(self) -> None:
        """Unlock it now: a reader may keep the file open for longer."""
        with contextlib.suppress(OSError, ValueError):  # none; closed
            fcntl.flock(self.fileno(), fcntl.LOCK_UN)

    def size(self) -> int:
        descriptor = self.descriptor
        return os.fstat(descriptor.number).st_size

    # By cursor: the raw file that stock FileStorage code expects.

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if whence == os.SEEK_CUR:
            offset += self._cursor
        elif whence == os.SEEK_END:
            offset += self.size() if self.limit is None else self.limit
        self._cursor = offset
        return offset

    def tell(self) -> int:
        return self._cursor

    def readinto(self, buffer: Any) -> int:
        descriptor = self.descriptor
        if self.limit is not None:
            left = max(0, self.limit - self._cursor)
            buffer = memoryview(buffer)[:left]
        size = os.preadv(descriptor.number, [buffer], self._cursor)
        self._cursor += size
        return size

    def write(self, data: Any) -> int:
        data = bytes(data)
        self.write_at(data, self._cursor)
        self._cursor += len(data)
        return len(data)

    def truncate(self, size: int | None = None) -> int:
        if size is None:
            size = self._cursor
        descriptor = self.descriptor
        disk.truncate(descriptor.number, size)
        return size

    def readable(self) -> bool:
        return True

    writable = seekable = readable

    def fileno(self) -> int:
        return self.descriptor.number

    def close(self) -> None:
        self.descriptor = _Closed(self.name)
        self.block = 0, b''
        super().close()

    def abandon(self, because: str) -> None:
        """As `close`, but later uses raise an error with this reason."""
        self.close()
        self.descriptor = _Closed(self.name, because)

    def reader(self) -> io.BufferedReader:
        """A new buffered reader of the same open file."""
        return io.BufferedReader(_Reader(self), 1 << 16)


class _Reader(DataFile):
    """Shares the descriptor of another DataFile, but is closed separately."""

    def __init__(self, source: DataFile) -> None:
        self._cursor = 0
        self.name = source.name
        self.descriptor = source.descriptor


def open_existing(path: str, read_only: bool = False) -> DataFile:
    return DataFile(path, os.O_RDONLY if read_only else os.O_RDWR)


def open_new(path: str, mode: int = 0o666) -> DataFile:
    """Open a new file; an existing file of that name loses the name.

    The existing file is not truncated: the name could be a hard link or a
    symbolic link to a file that is needed.
    """
    remove_if_there(path)
    return DataFile(
        path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW,
        lambda path, flags: disk.open(path, flags, mode))


def sync_path(path: str, opener: Opener | None = None) -> None:
    """Sync a file that other code wrote."""
    with DataFile(path, os.O_RDONLY, opener) as file:
        file.sync()
