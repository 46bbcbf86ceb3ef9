"""A pack that survives a power cut at any moment.

Stock's packer decides what is kept and how records are copied.  We add:

- each transaction's seal is checked before it is copied, and made anew;
- everything is synced while others commit, until a small rest is left; the
  append lock is taken once, for that rest (I2);
- the new file takes the name of the old one (swap), and until then nothing is
  changed: what the last pack kept stays, too;
- old data and blobs are removed only when that is durable (packedblobs);
- a pack that fails, or whose storage is closed, leaves nothing behind.  After
  a pack that was killed, the next opening removes its files (leftovers).
"""

import contextlib
import errno
import io
import logging
import os
import time
import types
from collections.abc import Callable
from collections.abc import Iterator
from typing import Any

from ZODB.FileStorage.FileStorage import FileStorageError
from ZODB.FileStorage.FileStorage import RedundantPackWarning
from ZODB.FileStorage.format import CorruptedError
from ZODB.FileStorage.fspack import FileStoragePacker
from ZODB.FileStorage.fspack import PackCopier
from ZODB.fsIndex import fsIndex
from ZODB.POSException import ReadOnlyError
from ZODB.TimeStamp import TimeStamp
from ZODB.utils import z64

from .. import datafile
from ..format import scan
from ..format import seal
from ..format.scan import FIRST
from ..format.window import Pread
from ..format.window import Window
from . import packedblobs
from . import swap

logger = logging.getLogger(__name__)

# Bytes that may be left to copy and sync under the append lock.
SMALL_REST = 1 << 20
# Rounds of copying; then committers that are faster have to wait.
MOST_ROUNDS = 20

References = Callable[..., Any]


def pack(storage: Any, t: float, referencesf: References, gc: bool) -> None:
    """`IStorage.pack` for a FsyncStorage."""
    if storage.isReadOnly():
        raise ReadOnlyError()
    stop = TimeStamp(*time.gmtime(t)[:5] + (t % 60,)).raw()
    if stop == z64:
        raise FileStorageError('Invalid pack time')
    if not storage._index:
        return  # nothing to do in an empty storage
    with storage._lock:
        if storage.is_packing:
            raise FileStorageError('Already packing')
        storage.is_packing = True
    try:
        swap.refuse_what_is_in_the_way(storage)
        _let_undos_end(storage)
        # After a pack all is durable, under every policy, and also if there
        # was nothing to free.
        storage._sequencer.sync_to(storage.getSize())
        with _advice_on_room(storage._file_name):
            packed = _packed(storage, referencesf, stop, gc)
            if packed is None:
                return  # nothing can be freed
            try:
                blobs = swap.swap(storage, *packed)
            finally:
                storage._commit_lock.release()
        if not storage.pack_keep_old:
            datafile.remove_if_there(storage._file_name + '.old')
        if blobs is not None:
            with blobs:
                packedblobs.take_away(storage, blobs)
    finally:
        storage.is_packing = False


def _packed(storage: Any, referencesf: References, stop: bytes,
            gc: bool) -> tuple[int, fsIndex] | None:
    with swap.nobody_else_has_the_file(storage):
        # The user's own packer may truncate a file of this name.
        datafile.remove_if_there(storage._file_name + '.pack')
    try:
        return storage.packer(storage, referencesf, stop, gc)
    except RedundantPackWarning as reason:
        logger.info('%s', reason)
        return None


@contextlib.contextmanager
def _advice_on_room(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise OSError(
            error.errno, f'{error.strerror}: a pack needs room for the new'
            f' file beside {path} and the {path}.old of the last pack, which'
            ' stays until the new file is complete') from error


def _let_undos_end(storage: Any) -> None:
    """Wait for an undo in progress; from now on none begins.

    It would point to data that the pack, not knowing of it, leaves out.
    """
    with storage._commit_lock:
        pass
    storage._sequencer.drain()


def copy_what_is_needed(storage: Any, referencesf: References, stop: bytes,
                        gc: bool) -> tuple[int, fsIndex] | None:
    """The packer of FsyncStorage: (end, index), or None if nothing is freed.

    With a result, Data.fs.pack is complete and the append lock is held.
    """
    with swap.nobody_else_has_the_file(storage):
        packer = _Packer(storage, referencesf, stop, gc)
    with contextlib.closing(packer):
        end = None
        try:
            end = packer.pack()
        finally:
            if end is None:
                packer.leave_nothing()
        return None if end is None else (end, packer.index)


# Stock frees and takes the commit lock for each transaction that it copies.
_NO_LOCK = types.SimpleNamespace(
    acquire=lambda: None, release=lambda: None)


class _Packer(FileStoragePacker):
    """Uses the internals of stock's packer, as they are in ZODB 6.4."""

    _file: io.BufferedReader
    _tfile: Any  # None, or a BufferedRandom of a DataFile

    def __init__(self, storage: Any, referencesf: References, stop: bytes,
                 gc: bool) -> None:
        self._blob_list: str | None = None
        if storage.blob_dir:
            self._blob_list = os.path.join(storage.blob_dir, packedblobs.LIST)
            datafile.remove_if_there(self._blob_list)  # stock truncates it
        super().__init__(storage, referencesf, stop, gc)
        self._commit_lock = _NO_LOCK
        self._checked_to = FIRST    # in the old file
        self._copied_to = FIRST     # in the old file
        self._sealed_to = FIRST     # in the new file
        self._synced_to = 0         # in the new file

    def pack(self) -> int | None:
        self._check_up_to(self.file_end)
        self.gc.findReachable()
        with swap.nobody_else_has_the_file(self._storage):
            self._tfile = io.BufferedRandom(
                datafile.open_new(self._path + '.pack'))
        if not self._copy_to_pack_time():
            return None
        self._copy_while_others_commit()
        self._storage.hold_still()
        try:
            self._copy_up_to(self._storage.getSize())
            if self.blob_removed is not None:
                self.blob_removed.flush()  # a full disk must fail here
        except BaseException:
            self._storage._commit_lock.release()
            raise
        return self._sealed_to

    def leave_nothing(self) -> None:
        """Remove what was written.

        If the storage is closed, another process may be packing: then the
        names may be those of its files.
        """
        if self._tfile is not None:
            datafile.remove_if_it_is(self._path + '.pack', self._tfile)
        if self._blob_list is not None and self.blob_removed is not None:
            datafile.remove_if_it_is(self._blob_list, self.blob_removed)

    def close(self) -> None:
        for file in self._file, self._tfile, self.blob_removed:
            if file is not None:
                # All that is needed was flushed before.
                with contextlib.suppress(OSError):
                    file.close()

    def _copy_to_pack_time(self) -> bool:
        """Return False if nothing was left out: then nothing will be."""
        self._file.seek(0)
        self._tfile.write(self._file.read(self._metadata_size))
        self._copier = PackCopier(self._tfile, self.index, self.tindex)
        self._copied_to, size = self.copyToPacktime()
        return self._copied_to != size

    def _copy_while_others_commit(self) -> None:
        """Copy and sync until only a small rest is left."""
        for _ in range(MOST_ROUNDS):
            self._copy_up_to(self._storage.getSize())
            self._tfile.raw.sync()
            self._synced_to = self._sealed_to
            # The old file, too: else, under `none`, the swap would sync it.
            self._storage._sequencer.sync_to(self._copied_to)
            if self._storage.getSize() - self._copied_to < SMALL_REST:
                break

    def _copy_up_to(self, end: int) -> None:
        self._storage._refuse_when_stopped()  # or closed
        self._check_up_to(end)
        # With a new buffer: the old one may hold uncommitted bytes.
        self._file.close()
        self._file = self._storage._file.reader()
        while self._copied_to < end:
            self._copied_to = self.copyOne(self._copied_to)
        self._tfile.flush()
        self._seal()

    def _check_up_to(self, end: int) -> None:
        """Never copy damage: the copy would hide it."""
        window = Window(self._pread(self._storage._file), end)
        try:
            while self._checked_to < end:
                self._checked_to = scan.read_transaction(
                    window, self._checked_to).end
        except scan.Damage as damage:
            raise CorruptedError(
                f'{self._path}: {damage}. The pack was given up, and nothing'
                ' was changed; fsync-check shows what is damaged') from None

    def _seal(self) -> None:
        """Make the seals anew: they were copied from other positions."""
        file = self._tfile.raw
        end = file.size()
        window = Window(self._pread(file), end)
        while self._sealed_to < end:
            position = self._sealed_to
            found = scan.read_transaction(window, position)
            if seal.find(found.field):
                size = scan.HEADER + len(found.user) + len(found.description)
                front = window.read(position, size)
                behind = position + size
                crc = window.crc(behind + len(found.field), found.end, 0)
                file.write_at(seal.make(
                    front, found.extension, found.status, position,
                    found.end - position - 8, self._synced_to, crc), behind)
            self._sealed_to = found.end

    @staticmethod
    def _pread(file: datafile.DataFile) -> Pread:
        descriptor = file.descriptor  # kept open by the function below
        return lambda length, position: os.pread(
            descriptor.number, length, position)
