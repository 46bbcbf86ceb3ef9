"""A pack that survives a power cut at any moment.

Stock's packer decides what is kept and how records are copied.  What is ours:

- each transaction's seal is checked before it is copied, and made anew;
- everything is synced while others commit, until a small rest is left; the
  commit lock is taken once, for that rest (I2);
- the new file takes the name of the old one in one rename, after the old one
  has got a second name: at no moment is there no whole Data.fs.  The index of
  the new file is there before it;
- only when that is durable, old data and blobs are removed.
"""

import io
import logging
import os
import time

from ZODB.blob import remove_committed_dir
from ZODB.FileStorage.FileStorage import FileStorageError
from ZODB.FileStorage.FileStorage import RedundantPackWarning
from ZODB.FileStorage.fspack import FileStoragePacker
from ZODB.FileStorage.fspack import PackCopier
from ZODB.FileStorage.format import CorruptedError
from ZODB.POSException import ReadOnlyError
from ZODB.TimeStamp import TimeStamp
from ZODB.utils import z64

from . import datafile
from . import scan
from . import seal
from .scan import FIRST
from .source import Source

logger = logging.getLogger(__name__)

# What may be left to copy and sync under the commit lock.
SMALL_REST = 1 << 20
# Committers that are faster than the copying are held up in the end.
MOST_ROUNDS = 20


def pack(storage, t, referencesf, gc):
    """`IStorage.pack` for a FsyncStorage."""
    if storage.isReadOnly():
        raise ReadOnlyError()
    stop = TimeStamp(*time.gmtime(t)[:5] + (t % 60,)).raw()
    if stop == z64:
        raise FileStorageError('Invalid pack time')
    if not storage._index:
        return  # nothing to do in an empty storage
    with storage._lock:
        if storage._pack_is_in_progress:
            raise FileStorageError('Already packing')
        storage._pack_is_in_progress = True
    try:
        _let_undos_end(storage)
        # What a pack was asked for is durable after it, whatever the policy,
        # and whether or not there was something to free.
        storage._flusher.sync_to(storage.getSize())
        _remove_what_the_last_pack_kept(storage)
        try:
            packed = storage.packer(storage, referencesf, stop, gc)
        except RedundantPackWarning as reason:
            logger.info('%s', reason)
            return
        if packed is None:
            return  # nothing can be freed
        try:
            _swap(storage, *packed)
        finally:
            storage._commit_lock.release()
        _remove_what_was_packed_away(storage)
    finally:
        storage._pack_is_in_progress = False


def _let_undos_end(storage):
    """No undo begins any more; one that is in progress comes in time.

    It would point to data that the pack, not knowing of it, leaves out.
    """
    with storage._commit_lock:
        pass
    storage._flusher.drain()


def _remove_what_the_last_pack_kept(storage):
    datafile.remove_if_there(storage._file_name + '.old')
    if storage.blob_dir and os.path.exists(storage.blob_dir + '.old'):
        remove_committed_dir(storage.blob_dir + '.old')


def _swap(storage, end, index):
    """Put the packed file in the place of the old one.

    The commit lock is held, and everything is drained.
    """
    with storage._swapping:  # or closing; then somebody else may have the file
        storage._refuse_when_stopped()
        path = storage._file_name
        storage._flusher.sync_to(storage.getSize())
        file = datafile.open_existing(path + '.pack')
        try:
            _make_ready(storage, file, index, end)
            with storage._checkpoints.replacing(end):
                _replace(storage, file, index, end)
        except BaseException:
            if storage._file is not file:
                file.close()
                datafile.remove_if_there(path + '.pack')
                storage._checkpoints.forget_packed()
            raise


def _make_ready(storage, file, index, end):
    """All but the renaming: the new file and its index are durable.

    The old file has a second name.  It is durable, by the sync for the name of
    the index, before the new file gets the first one.
    """
    path = storage._file_name
    file.sync()
    storage._checkpoints.write_for_packed(file, index, end)
    if storage.pack_keep_old:
        datafile.disk.link(path, path + '.old')


def _replace(storage, file, index, end):
    path = storage._file_name
    try:
        datafile.disk.replace(path + '.pack', path)
        file.name = path
        storage.replace_file(file, index, end)
        storage.sync_home()
    except BaseException as error:
        if isinstance(error, OSError) and storage._file is not file:
            raise  # it was not renamed: but for the index, all is as before
        # Which file has the name now, and after a power cut?
        storage._flusher.stop_writing(
            f'a pack failed while it replaced the file ({error!r})')
        raise


def _remove_what_was_packed_away(storage):
    if storage.blob_dir:
        storage._remove_blob_files_tagged_for_removal_during_pack()


def copy_what_is_needed(storage, referencesf, stop, gc):
    """The packer of FsyncStorage: (end, index), or None if nothing is freed.

    With a result, Data.fs.pack is complete and the commit lock is held.
    """
    packer = _Packer(storage, referencesf, stop, gc)
    try:
        end = packer.pack()
        return None if end is None else (end, packer.index)
    finally:
        packer.close()


class _NoLock:
    """Stock frees and takes the commit lock for each transaction it copies."""

    def acquire(self):
        pass

    release = acquire


class _Packer(FileStoragePacker):
    """Works with the inside of stock's packer, as it is in ZODB 6.4."""

    def __init__(self, storage, referencesf, stop, gc):
        super().__init__(storage, referencesf, stop, gc)
        self._commit_lock = _NoLock()
        self._checked_to = FIRST    # in the old file
        self._copied_to = FIRST     # in the old file
        self._sealed_to = FIRST     # in the new file
        self._synced_to = 0         # in the new file

    def pack(self):
        self._check_up_to(self.file_end)
        self.gc.findReachable()
        path = self._path + '.pack'
        self._tfile = io.BufferedRandom(datafile.open_new(path))
        try:
            if not self._copy_to_pack_time():
                datafile.remove_if_there(path)
                return None
            self._copy_while_others_commit()
            self._storage.hold_still()
            try:
                self._copy_up_to(self._storage.getSize())
                if self.blob_removed is not None:
                    self.blob_removed.close()  # its last bytes may not fit
            except BaseException:
                self._storage._commit_lock.release()
                raise
            return self._sealed_to
        except BaseException:
            datafile.remove_if_there(path)
            raise

    def _copy_to_pack_time(self):
        """False if nothing was left out so far: then nothing will be."""
        self._file.seek(0)
        self._tfile.write(self._file.read(self._metadata_size))
        self._copier = PackCopier(self._tfile, self.index, self.tindex)
        self._copied_to, size = self.copyToPacktime()
        return self._copied_to != size

    def _copy_while_others_commit(self):
        """Copy and sync until only a small rest is left."""
        for _ in range(MOST_ROUNDS):
            self._copy_up_to(self._storage.getSize())
            self._tfile.raw.sync()
            self._synced_to = self._sealed_to
            # The old file, too: else `none` would sync all of it in the swap.
            self._storage._flusher.sync_to(self._copied_to)
            if self._storage.getSize() - self._copied_to < SMALL_REST:
                break

    def _copy_up_to(self, end):
        self._check_up_to(end)
        # With a fresh buffer: the old one may hold what was not committed.
        self._file.close()
        self._file = self._storage._file.reader()
        while self._copied_to < end:
            self._copied_to = self.copyOne(self._copied_to)
        self._tfile.flush()
        self._seal()

    def _check_up_to(self, end):
        """Never copy damage: where it came from would be forgotten."""
        source = Source(self._pread(self._storage._file), end)
        try:
            while self._checked_to < end:
                self._checked_to = scan.read_transaction(
                    source, self._checked_to).end
        except scan.Damage as damage:
            raise CorruptedError(
                f'{self._path}: {damage}. The pack was given up, and nothing'
                ' was changed; fsync-check shows what is damaged') from None

    def _seal(self):
        """The seals were copied from other positions: make them anew."""
        file = self._tfile.raw
        end = file.size()
        source = Source(self._pread(file), end)
        while self._sealed_to < end:
            position = self._sealed_to
            found = scan.read_transaction(source, position)
            if seal.find(found.field):
                size = scan.HEADER + len(found.user) + len(found.description)
                front = source.read(position, size)
                behind = position + size
                crc = source.crc(behind + len(found.field), found.end, 0)
                file.write_at(seal.make(
                    front, found.extension, found.status, position,
                    found.end - position - 8, self._synced_to, crc), behind)
            self._sealed_to = found.end

    @staticmethod
    def _pread(file):
        descriptor = file.descriptor  # kept open by whoever reads
        return lambda length, position: os.pread(
            descriptor.number, length, position)
