"""The blob cache of a client: blob files on a local disk, within a limit.

It promises that a path which it hands out is that of a complete blob; and that
all files together take no more than the limit, plus the one blob that each
thread is reading, however many processes use the directory.

The limit has priority.  So a path may be gone when it is opened: then `open`
loads the blob again, under the same name.  The least recently used blobs are
removed first, leased ones last.  Of the blobs that do not fit at all (guests),
a process keeps the last one whose path it handed out, until it opens and
closes the file, or loads another guest.

One process or thread downloads a blob, the others wait for it.

If the disk is full or fails, blobs are read past the cache: they are guests of
another one, in a directory for temporary files.

Left to others: the directory (cachedirectory), which blobs there are and which
are removed (books), a download (download), reading a blob while it arrives
(arriving), where it comes from (the storage).
"""

import contextlib
import io
import logging
import math
import os
import shutil
import tempfile
import typing
from collections.abc import Callable
from typing import Any
from typing import BinaryIO

from ZODB.blob import BlobFile
from ZODB.blob import rename_or_copy_blob

from ... import forks
from . import filelocks
from . import ledger
from .arriving import Arrivals
from .books import Books
from .cachedirectory import MODE
from .cachedirectory import CacheDirectory
from .download import CacheFailed
from .download import Download
from .download import DownloadFailed
from .download import Interrupted
from .guests import open_guest

logger = logging.getLogger(__name__)

#: How often a download is begun or continued.
TRIES = 5

Fetch = Callable[[bytes, bytes, Download], object]


class BlobCache:

    # A guest whose path was handed out.
    _held: BlobFile | None = None
    # None: the disk has not failed.
    _past: 'PastTheCache | None' = None

    def __init__(self, directory: str, limit: int | None, fetch: Fetch,
                 fill: str = 'commit', mode: int = MODE) -> None:
        """
        :param limit: bytes; None: no limit.
        :param fetch: called as `fetch(oid, serial, download)`; it writes the
            blob to a Download.  It raises Interrupted if it may be called
            again, to continue.
        :param fill: ``commit``: blobs that this client commits are cached.
        :param mode: of the files; their readers may enter their directories.
        """
        self._limit = math.inf if limit is None else limit
        self._fetch = fetch
        self._fill = fill
        self._directory = CacheDirectory(directory, mode)
        self._directory.make()
        self._books = Books(self._directory, self._limit)
        self._arrivals = Arrivals(
            self._directory, self._books, self._transfer)
        self.temporary_directory = self._directory.temporary
        forks.in_child(self)

    def forked(self) -> None:
        vars(self).pop('_past', None)  # it is the parent's

    def close(self) -> None:
        """End the downloads: nothing can be fetched any more."""
        if self._past is not None:
            self._past.close()
        self._arrivals.close()
        self._let_go()
        self._books.close()

    def stats(self) -> dict[str, int]:
        """Figures for monitoring.  Other processes may use the directory: the
        bytes are of all blobs, the evictions are those of this process."""
        return {'blob_cache_bytes': self._books.total(),
                'blob_cache_evictions': self._books.evictions}

    # Reading

    def load(self, oid: bytes, serial: bytes) -> str:
        """The path of the file."""
        return self._read(BlobCache._load, oid, serial)

    def open(self, oid: bytes, serial: bytes, blob: Any = None) -> BinaryIO:
        """The open file; a BlobFile of the blob, if one is given."""
        return self._read(BlobCache._open_or_get, oid, serial, blob)

    def open_arriving(self, oid: bytes, serial: bytes) -> BinaryIO:
        """The open file, or an ArrivingFile if not cached and not short."""
        if self._past is not None:  # it could fail in the middle
            return self.open(oid, serial)
        return self._read(BlobCache._open_arriving, oid, serial)

    def _read(self, read: Callable[..., Any], *args: Any) -> Any:
        """Call this method; if the disk fails, past the cache."""
        try:
            return read(self, *args)
        except (OSError, ledger.Error, CacheFailed) as error:
            failed = error
        try:
            return read(self._past_it(failed), *args)
        except (OSError, ledger.Error) as error:
            raise CacheFailed(
                f'{self._directory.path}: a blob could not be read there'
                f' ({failed}), nor past it ({error})') from error

    def _past_it(self, error: Exception) -> 'BlobCache':
        if self._past is None:
            made = PastTheCache(self._fetch, self._directory.mode)
            if vars(self).setdefault('_past', made) is made:
                logger.warning(
                    '%s: blobs are read past the cache when its disk fails:'
                    ' %s', self._directory.path, error)
            else:
                made.close()
        return typing.cast(BlobCache, self._past)

    def _load(self, oid: bytes, serial: bytes) -> str:
        name = self._directory.name(oid, serial)
        path = self._directory.blob(name)
        while True:
            try:
                self._use(name)
                return path
            except FileNotFoundError:
                self._get(oid, serial, name)

    def lease(self, oid: bytes, serial: bytes, seconds: float) -> str | None:
        """The path of the file, leased for this time; None if not cached."""
        name = self._directory.name(oid, serial)
        try:
            self._use(name, seconds)
        except FileNotFoundError:
            return None
        return self._directory.blob(name)

    def _use(self, name: str, seconds: float = 0) -> None:
        if self._directory.use(name, seconds) > self._limit:
            self._hold(name)

    def _open_or_get(self, oid: bytes, serial: bytes,
                     blob: Any = None) -> BinaryIO:
        name = self._directory.name(oid, serial)
        while True:
            try:
                return self._open(name, blob)
            except FileNotFoundError:
                self._get(oid, serial, name)

    def _open_arriving(self, oid: bytes, serial: bytes) -> BinaryIO:
        name = self._directory.name(oid, serial)
        with contextlib.suppress(FileNotFoundError):
            return self._open(name)
        return self._arrivals.open(oid, serial, name, self._open_or_get)

    def _open(self, name: str, blob: Any = None) -> BinaryIO:
        size = self._directory.use(name)
        if size > self._limit or self._holds(name):
            return self._open_guest(name, blob)
        path = self._directory.blob(name)
        return open(path, 'rb') if blob is None else BlobFile(path, 'r', blob)

    def _get(self, oid: bytes, serial: bytes, name: str) -> None:
        """Download a blob, unless another process or thread has done so."""
        part = self._directory.claim_missing(name)
        if part is None:
            return
        with part:
            download = Download(part, name, self._directory, self._books)
            with download.given_up_if_it_fails():
                self._transfer(oid, serial, download)
                with download.finished():
                    if download.guest:
                        self._hold(name)

    def _transfer(self, oid: bytes, serial: bytes,
                  download: Download) -> object:
        for _ in range(TRIES):
            try:
                return self._fetch(oid, serial, download)
            except Interrupted as error:
                reason = error
            except CacheFailed as error:
                self._past_it(error)  # also for those that read what arrives
                raise
        raise DownloadFailed(
            f'{download} did not come: the connection to the server was lost'
            f' {TRIES} times, the last time by: {reason}') from reason

    # Guests

    def _holds(self, name: str) -> bool:
        held = self._held
        return held is not None and held.name == self._directory.blob(name)

    def _hold(self, name: str) -> None:
        """Keep this guest, in place of the one before."""
        if not self._holds(name):
            self._let_go(instead=self._guest(name))

    def _let_go(self, instead: BlobFile | None = None) -> None:
        held, self._held = self._held, instead
        if held is not None:
            held.close()

    def _open_guest(self, name: str, blob: Any) -> BinaryIO:
        file = self._guest(name, blob)
        if self._holds(name):
            self._let_go()
        return io.BufferedReader(file) if blob is None else file

    def _guest(self, name: str, blob: Any = None) -> BlobFile:
        return open_guest(
            self._directory, name, self._books.dismiss_guests, blob)

    # Committing

    def stage(self, path: str) -> str:
        """Take over a file that is to be committed; return its new path."""
        fd, staged = tempfile.mkstemp(
            prefix='staged-', dir=self.temporary_directory)
        os.close(fd)
        try:
            rename_or_copy_blob(path, staged)
        except BaseException:
            self.discard(staged)
            raise
        return staged

    def commit(self, oid: bytes, serial: bytes, staged: str) -> None:
        """The blob is committed: try to keep it, but do not fail."""
        try:
            if self._fill == 'commit':
                self._keep(self._directory.name(oid, serial), staged)
        except (OSError, ledger.Error, DownloadFailed) as error:
            logger.warning('%s: a committed blob is not kept: %s',
                           self._directory.path, error)
        self.discard(staged)

    def discard(self, staged: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.remove(staged)

    def _keep(self, name: str, staged: str) -> None:
        """Book it as a complete download, unless another downloads it."""
        claimed = self._directory.claim(name, wait=False)
        if claimed is None:
            return
        with claimed, filelocks.LockFile(staged, os.O_RDONLY) as part:
            part.lock()
            download = Download(part, name, self._directory, self._books)
            try:
                if not self._directory.has(name):
                    download.expect(download.offset)
                    if not download.guest:
                        self._directory.replace_part(staged, name)
                        with download.finished():
                            pass
            finally:
                download.give_up()


class PastTheCache(BlobCache):
    """Blobs of a cache whose disk fails, each as long as it is read."""

    def __init__(self, fetch: Fetch, mode: int) -> None:
        super().__init__(
            tempfile.mkdtemp(prefix='fsyncstorage-blobs-'), 0, fetch, 'load',
            mode)

    def _past_it(self, error: Exception) -> BlobCache:
        return self

    def close(self) -> None:
        super().close()
        shutil.rmtree(self._directory.path, ignore_errors=True)
