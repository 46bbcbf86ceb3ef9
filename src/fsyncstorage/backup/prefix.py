"""The durable prefix of a Data.fs that a server has open.

A server hands data file and object map to processes of its own user, at a
socket beside the file (docs/internals/localreads.rst).  The map says up to
where the file is published and durable.  What is before that never changes,
and stays what it is in this open file, also when the server is gone.

The size of the file says nothing, and nothing is synced here.

A pack replaces the file, and keeps the old one as `.old`, which has ended.
The blobs that it leaves out are in the directory of blobs with that ending.
"""

import contextlib
import os
import socket
import stat
from collections.abc import Iterator

from ZODB.blob import FilesystemHelper

from .. import datafile
from ..datafile import Descriptor
from ..format import NotAMap
from ..format.objectmap import MapReader
from ..local.blobs import LocalBlobs
from ..local.blobs import NotHere
from ..local.handedover import WITHIN
from ..local.handedover import Refused
from ..local.handedover import checked_path
from ..local.handedover import received_descriptors
from ..pack.naming import OLD
from ..wire.handover import SUFFIX
from .head import NO_INSTANCE


class Unreachable(Exception):
    """There is nothing to read from now."""


class File:
    """A data file, up to its end; what is before that never changes."""

    def __init__(self, file: Descriptor, blobs: LocalBlobs | None,
                 old_blobs: str | None,
                 instance: bytes = NO_INSTANCE) -> None:
        """`instance`: of the storage that has, or had, it open."""
        self._file = file
        self.instance = instance
        self._blobs = blobs
        self._old_blobs = old_blobs

    @property
    def end(self) -> int:
        return os.fstat(self._file.number).st_size

    @property
    def has_its_name(self) -> bool:
        return True

    def read(self, length: int, position: int) -> bytes:
        """As `os.pread`, but all of it."""
        return read_fully(self._file.number, length, position)

    def open_blob(self, oid: bytes, tid: bytes) -> datafile.DataFile:
        """FileNotFoundError: there is none."""
        for path in self._paths(oid, tid):
            with contextlib.suppress(FileNotFoundError):
                return datafile.open_existing(path, read_only=True)
        raise FileNotFoundError

    def _paths(self, oid: bytes, tid: bytes) -> Iterator[str]:
        """A pack may move it meanwhile, from the first to the second."""
        if self._blobs is not None and (path := self._blobs.path(oid, tid)):
            yield path
        if self._old_blobs is not None:
            yield FilesystemHelper(self._old_blobs).getBlobFilename(oid, tid)


class HandedFile(File):
    """A data file that was handed over, up to what is durable in it."""

    def __init__(self, path: str, descriptors: list[Descriptor],
                 blob_dir: str | None) -> None:
        self._path = path
        self._file, object_map, *marker = descriptors
        self._status = os.fstat(self._file.number)
        self._map = MapReader(object_map.number, None)
        if not (stat.S_ISREG(self._status.st_mode)
                and self._map.is_of(self._status) and self.has_its_name):
            raise NotAMap(f'the socket beside {path} belongs to another file')
        super().__init__(self._file, _blobs(blob_dir, marker),
                         blob_dir and blob_dir + OLD, self._map.instance)

    def kept(self, instance: bytes) -> File | None:
        """The file that a pack has replaced by this one, if it is there; which
        storage had it open, the caller knows."""
        path = self._path + OLD
        with contextlib.suppress(FileNotFoundError):
            if not self.is_at(path):
                file = Descriptor(os.open(
                    path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK))
                return File(file, self._blobs, self._old_blobs, instance)
        return None

    def is_same(self, other: 'HandedFile') -> bool:
        return os.path.samestat(self._status, other._status)

    def is_at(self, path: str) -> bool:
        return os.path.samestat(os.stat(path), self._status)

    @property
    def has_its_name(self) -> bool:
        """Has no other file taken its place, as a pack does?"""
        try:
            return self.is_at(self._path)
        except OSError:
            return False

    @property
    def is_retired(self) -> bool:
        return self._map.retired

    @property
    def end(self) -> int:
        """All before this position is published and durable."""
        published, durable, _, _ = self._map.marks()
        return min(published, durable)

    @property
    def is_behind(self) -> bool:
        """Is something published, and not durable yet?"""
        published, durable, _, _ = self._map.marks()
        return durable < published


class DurablePrefix:
    """The file of a path; asked for again when its map is retired, and when
    there is another server.

    (A server that was killed has not retired its map.  But another one has
    another socket.)
    """

    def __init__(self, path: str, blob_dir: str | None = None) -> None:
        # (As the server names its socket: a link to the file stays a link.)
        self.path = os.path.abspath(path)
        self._blob_dir = blob_dir and os.path.abspath(blob_dir)
        self._handed: HandedFile | None = None
        #: Of the socket that it came from.
        self._socket: tuple[int, int] | None = None

    @property
    def file(self) -> HandedFile:
        if self._handed is None:
            raise Unreachable(f'{self.path} was not handed over yet')
        return self._handed

    def refresh(self) -> None:
        """Ask for the file, unless it is here with a map that is not retired,
        of the server that is there.

        While the server is away, what it has handed over serves: all that is
        durable there was committed.
        """
        before, found = self._handed, self._current_socket()
        if before is not None and not before.is_retired and found in (
                None, self._socket):
            return
        try:
            self._handed = self._ask()
            self._socket = found
        except Unreachable:
            if before is None:
                raise

    def make_durable(self) -> None:
        """Let the server sync what is published: under some policies, nobody
        else does so in time."""
        if self.file.is_behind:
            with contextlib.suppress(Unreachable):
                self._ask()

    def check(self) -> None:
        """Unreachable, if nothing more will come of this file: its server has
        gone, or another file has its name."""
        self._ask()

    def _current_socket(self) -> tuple[int, int] | None:
        with contextlib.suppress(OSError):
            status = os.lstat(self.path + SUFFIX)
            return status.st_ino, status.st_ctime_ns
        return None

    def _ask(self) -> HandedFile:
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(WITHIN)
                connection.connect(checked_path(self.path + SUFFIX))
                found = HandedFile(
                    self.path, received_descriptors(connection),
                    self._blob_dir)
                with contextlib.suppress(TimeoutError):
                    connection.recv(1)  # it ends when all is durable
                return found
        except (FileNotFoundError, ConnectionRefusedError):
            raise Unreachable(f'no server of this package serves {self.path}'
                              ) from None
        except (OSError, ValueError, NotAMap, Refused, NotHere) as error:
            raise Unreachable(
                f'{self.path} is not handed over: {error}') from None


def _blobs(directory: str | None,
           marker: list[Descriptor]) -> LocalBlobs | None:
    if marker and directory is None:
        raise NotHere('it has blobs, and no directory of blobs was named')
    if directory is not None and not marker:
        raise NotHere('its server does not hand over a directory of blobs')
    return LocalBlobs(directory, marker[0]) if marker else None


def read_fully(number: int, length: int, position: int) -> bytes:
    data = os.pread(number, length, position)
    while len(data) < length:
        more = os.pread(number, length - len(data), position + len(data))
        if not more:
            raise OSError('a file ends before its end')
        data += more
    return data
