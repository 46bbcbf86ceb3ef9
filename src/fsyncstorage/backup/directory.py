"""A store in a directory.

An object is written under a name of its own, synced, and gets its key by a
link, which fails if there is one.  Then the directory is synced, also where
the object was there already: a writer that was killed may have come no
further.  So what `create` or `list` has said survives a power cut, and an
object that has its key is whole.

What a writer leaves under names of its own when it is killed is removed by a
later one.
"""

import contextlib
import os
import secrets
import stat
import time
from collections.abc import Iterator

from .. import datafile
from .store import LARGEST
from .store import Entry
from .store import Exists
from .store import Missing
from .store import StoreError
from .store import TooLarge

#: Where an object is until it has its key.
NEW = '.new'
#: A backup has all that the database has: it is for its owner alone.
MODE = 0o600
#: Nobody writes one object for so long (seconds).
ABANDONED = 3600
# So many directories are remembered as durable.
_MOST_REMEMBERED = 10_000


class Directory:

    def __init__(self, path: str) -> None:
        """The directory must be there: a disk that is not mounted must not be
        taken for an empty store."""
        self.name = path
        self._root = os.path.realpath(path)
        if not os.path.isdir(self._root):
            raise StoreError(f'{path} is no directory; a store is not made'
                             ' where there is none')
        #: Directories whose names are durable.
        self._durable = {self._root}
        self._was_tidied = False

    def create(self, key: str, data: bytes) -> None:
        with self._errors(key):
            path = self._path(key)
            self._make_durable(os.path.dirname(path))
            was_there = False
            with self._written(data) as new:
                try:
                    datafile.disk.link(new, path)
                except FileExistsError:
                    was_there = True
            datafile.disk.sync_directory(os.path.dirname(path))
        if was_there:
            raise Exists(key)

    def overwrite(self, key: str, data: bytes) -> None:
        with self._errors(key):
            path = self._path(key)
            self._make_durable(os.path.dirname(path))
            with self._written(data) as new:
                datafile.disk.replace(new, path)
            datafile.disk.sync_directory(os.path.dirname(path))

    def get(self, key: str) -> bytes:
        return self._read(key, LARGEST)

    def front(self, key: str, length: int) -> bytes:
        return self._read(key, length, is_whole=False)

    def list(self, directory: str, after: str = '') -> Iterator[Entry]:
        with self._errors(directory):
            yield from self._listed(directory.rstrip('/'), after)

    def delete(self, key: str) -> None:
        with self._errors(key):
            datafile.remove_if_there(self._path(key))

    # Details

    def _path(self, key: str) -> str:
        if any(name in ('', '.', '..', NEW) for name in key.split('/')):
            raise StoreError(f'{key!r} is no key')
        return os.path.join(self._root, key)

    @contextlib.contextmanager
    def _errors(self, key: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StoreError(f'{os.path.join(self.name, key)}:'
                             f' {error.strerror or error}') from error

    def _make_durable(self, directory: str) -> None:
        """Make it, unless it is there; its name is durable then.  (Whoever has
        made it may have been killed before its name was.)"""
        if directory in self._durable:
            return
        parent = os.path.dirname(directory)
        self._make_durable(parent)
        with contextlib.suppress(FileExistsError):
            datafile.disk.make_directory(directory)
        datafile.disk.sync_directory(parent)
        if len(self._durable) < _MOST_REMEMBERED:
            self._durable.add(directory)

    @contextlib.contextmanager
    def _written(self, data: bytes) -> Iterator[str]:
        """A synced file with these bytes; its name is gone afterwards."""
        directory = os.path.join(self._root, NEW)
        with contextlib.suppress(FileExistsError):
            datafile.disk.make_directory(directory)
        if not self._was_tidied:
            self._was_tidied = True
            _remove_abandoned(directory)
        path = os.path.join(directory, secrets.token_hex(8))
        try:
            with datafile.open_new(path, MODE) as file:
                file.write_at(data, 0)
                file.sync()
            yield path
        finally:
            datafile.remove_if_there(path)

    def _read(self, key: str, length: int, is_whole: bool = True) -> bytes:
        try:
            with self._errors(key), datafile.DataFile(
                    self._path(key), os.O_RDONLY | os.O_NONBLOCK) as file:
                status = os.fstat(file.fileno())
                if not stat.S_ISREG(status.st_mode):
                    raise StoreError(f'{key} is no file')
                if is_whole and status.st_size > length:
                    raise TooLarge(key, status.st_size)
                return os.pread(file.fileno(), length, 0)
        except StoreError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                raise Missing(key) from None
            raise

    def _listed(self, directory: str, after: str) -> Iterator[Entry]:
        path = self._path(directory)
        if not os.path.isdir(path):
            return
        datafile.disk.sync_directory(path)
        with os.scandir(path) as found:
            names = sorted(each.name + '/' * each.is_dir() for each in found)
        for name in names:
            key = f'{directory}/{name}'
            if name.endswith('/'):
                if key > after or after.startswith(key):
                    yield from self._listed(key.rstrip('/'), after)
            elif key > after:
                with contextlib.suppress(FileNotFoundError):  # just removed
                    status = os.lstat(os.path.join(path, name))
                    yield Entry(key, status.st_size, status.st_mtime)


def _remove_abandoned(directory: str) -> None:
    limit = time.time() - ABANDONED
    with os.scandir(directory) as found:
        for each in found:
            with contextlib.suppress(FileNotFoundError):  # by another one
                if each.stat(follow_symlinks=False).st_mtime < limit:
                    datafile.disk.remove(each.path)
