"""The blob cache of a client: blob files on a local disk, within a limit.

It promises that a path which it hands out is that of a complete blob; and that
all files together take no more than the limit, plus the one blob that each
thread is reading, however many processes use the directory.

The limit has priority.  So a path may be gone when it is opened: then `open`
loads the blob again.  Of the blobs that do not fit at all (guests), a process
keeps the last one whose path it handed out, until it opens the file, or loads
another guest: an open file needs no name.

If the disk is full or fails, blobs are read past the cache: as guests, in the
directory for temporary files.
"""

import contextlib
import functools
import logging
import math
import os
import secrets
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any
from typing import BinaryIO
from typing import TypeVar
from typing import cast

from ZODB.blob import BlobFile
from ZODB.blob import rename_or_copy_blob

from ... import forks
from ...wire.frames import LONGEST_BLOB
from .arriving import PAUSE
from .arriving import ArrivingFile
from .directory import MODE
from .directory import CacheDirectory
from .download import SHORT
from .download import Download
from .download import DownloadFailed
from .part import GUEST
from .part import Part
from .room import Room

logger = logging.getLogger(__name__)

Fetch = Callable[[bytes, bytes, Download], object]
Found = TypeVar('Found')


class BlobCache:

    # A guest whose path was handed out.
    _guest: Download | None = None
    _has_failed = False
    _closed = False

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
        self._room = Room(self._directory, self._limit)
        self.temporary_directory = self._directory.temporary
        # For `_guest`, and for the threads that download.
        self._lock = threading.Lock()
        self._threads: set[threading.Thread] = set()
        forks.in_child(self)

    def forked(self) -> None:
        # Threads and files are the parent's.
        self._lock = threading.Lock()
        self._threads = set()
        self._guest = None

    def close(self) -> None:
        """End the downloads: nothing can be fetched any more."""
        with self._lock:
            self._closed = True
            threads = list(self._threads)
        for thread in threads:
            thread.join()
        self._keep(None)

    def stats(self) -> dict[str, int]:
        """Figures for monitoring.  Other processes may use the directory: the
        bytes are of all blobs, the evictions are those of this process."""
        return {'blob_cache_bytes': self._room.total(),
                'blob_cache_evictions': self._room.evictions}

    # Reading

    def load(self, oid: bytes, serial: bytes) -> str:
        """The path of the file."""
        return self._found(self._use, oid, serial)

    def open(self, oid: bytes, serial: bytes, blob: Any = None) -> BinaryIO:
        """The open file; a BlobFile of the blob, if one is given."""
        return self._found(
            functools.partial(self._opened, blob=blob), oid, serial)

    def lease(self, oid: bytes, serial: bytes, seconds: float) -> str | None:
        """The path of the file, leased for this time; None if not cached."""
        return self._directory.use(self._directory.blob(oid, serial), seconds)

    def _found(self, find: Callable[[str], Found | None], oid: bytes,
               serial: bytes) -> Found:
        """What `find` returns, called with the path; download the blob until
        that is not None."""
        path = self._directory.blob(oid, serial)
        while True:
            try:
                found = find(path)
                if found is not None:
                    return found
                self._refuse_if_closed()
                part = self._directory.claim(path)
                if part is not None:
                    self._download(part, oid, serial, path)
            except OSError as error:
                self._load_past(oid, serial, path, error)

    def _use(self, path: str) -> str | None:
        guest = self._guest
        if guest is not None and guest.path == path:
            return guest.part.path
        return self._directory.use(path)

    def _opened(self, path: str, blob: Any = None) -> BinaryIO | None:
        there = self._use(path)
        if there is None:
            return None
        file = None
        with contextlib.suppress(FileNotFoundError):
            file = (open(there, 'rb') if blob is None
                    else BlobFile(there, 'r', blob))
        if there != path:
            self._keep(None)
        return cast(BinaryIO | None, file)

    def _keep(self, guest: Download | None) -> None:
        """Keep this guest, in place of the one before."""
        with self._lock:
            before, self._guest = self._guest, guest
        if before is not None:
            before.give_up()

    # Downloads

    def _download(self, part: Part, oid: bytes, serial: bytes, path: str,
                  most: int = LONGEST_BLOB) -> Download:
        download = Download(
            part, path, self._room,
            functools.partial(self._fetch, oid, serial))
        download.run(most)
        if download.is_complete and part.is_guest:
            self._keep(download)
        return download

    def _load_past(self, oid: bytes, serial: bytes, path: str,
                   error: Exception) -> None:
        """Load a guest that is not in the directory, whose disk has failed."""
        self._note_failure(error)
        try:
            file, name = tempfile.mkstemp(GUEST, 'fsyncstorage-blob-')
            os.close(file)
            part = Part(name)
            part.lock()
            self._download(part, oid, serial, path)
        except OSError as again:
            raise DownloadFailed(
                f'{self._directory.path}: a blob could not be read there'
                f' ({error}), nor past it ({again})') from again

    def _note_failure(self, error: Exception) -> None:
        if not self._has_failed:
            self._has_failed = True
            logger.warning(
                '%s: blobs are read past the cache when its disk fails: %s',
                self._directory.path, error)

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise DownloadFailed(f'{self._directory.path} is closed')

    # Blobs that are read while they arrive

    def open_arriving(self, oid: bytes, serial: bytes) -> BinaryIO:
        """The open file, or an ArrivingFile if not cached and not short.

        A short blob is fetched by the thread that asks, which is faster than
        starting another.  The rest of a longer one is downloaded by a thread
        of its own, to its end, even if no reader is left.
        """
        path = self._directory.blob(oid, serial)
        again = functools.partial(self.open, oid, serial)
        try:
            while not self._has_failed:  # it could fail in the middle
                file = self._opened(path)
                if file is not None:
                    return file
                self._refuse_if_closed()
                part = self._directory.claim(path, wait=False)
                if part is not None:
                    download = self._download(
                        part, oid, serial, path, SHORT)
                    if not download.is_complete:
                        return self._go_on_with(download, again)
                else:
                    with contextlib.suppress(FileNotFoundError):
                        return cast(BinaryIO, ArrivingFile(
                            self._directory.part(path), again))
                    time.sleep(PAUSE)
        except OSError as error:
            self._note_failure(error)
        return self.open(oid, serial)

    def _go_on_with(self, download: Download,
                    again: Callable[[], BinaryIO]) -> BinaryIO:
        thread = threading.Thread(
            target=self._finish, args=(download,), daemon=True,
            name=f'{self._directory.path}: {download}')
        try:
            file = ArrivingFile(download.part.path, again)
            with self._lock:
                self._refuse_if_closed()
                thread.start()
                self._threads.add(thread)
        except BaseException:
            download.give_up()
            raise
        return cast(BinaryIO, file)

    def _finish(self, download: Download) -> None:
        try:
            download.run()
            if download.part.is_guest:
                download.give_up()  # who reads it has it open
        except OSError as error:
            self._note_failure(error)
        except Exception:
            pass  # who reads it opens it anew, which raises the error
        finally:
            with self._lock:
                self._threads.discard(threading.current_thread())

    # Committing

    def stage(self, path: str) -> str:
        """Take over a file that is to be committed; return its new path."""
        staged = os.path.join(
            self.temporary_directory, f'staged-{secrets.token_hex(8)}')
        try:
            rename_or_copy_blob(path, staged, chmod=False)
        except BaseException:
            self.discard(staged)
            raise
        return staged

    def commit(self, oid: bytes, serial: bytes, staged: str) -> None:
        """The blob is committed: try to keep it, but do not fail."""
        try:
            if self._fill == 'commit':
                self._room.add(staged, self._directory.blob(oid, serial))
        except OSError as error:
            logger.warning('%s: a committed blob is not kept: %s',
                           self._directory.path, error)
        self.discard(staged)

    def discard(self, staged: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.remove(staged)
