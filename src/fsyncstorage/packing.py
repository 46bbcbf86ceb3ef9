"""A pack that survives a power cut at any moment.

Stock's packer decides what is kept and how records are copied.  What is ours:

- everything is synced while others commit, until a small rest is left; the
  commit lock is taken once, for that rest (I2);
- the new file takes the name of the old one in one rename, after the old one
  has got a second name: at no moment is there no whole Data.fs;
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
from ZODB.POSException import ReadOnlyError
from ZODB.TimeStamp import TimeStamp
from ZODB.utils import z64

from . import datafile

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
        storage._save_index()
    finally:
        storage._pack_is_in_progress = False


def _let_undos_end(storage):
    """No undo begins any more; one that is in progress comes in time.

    It would point to data that the pack, not knowing of it, leaves out.
    """
    storage.hold_still()
    storage._commit_lock.release()


def _remove_what_the_last_pack_kept(storage):
    datafile.remove_if_there(storage._file_name + '.old')
    if storage.blob_dir and os.path.exists(storage.blob_dir + '.old'):
        remove_committed_dir(storage.blob_dir + '.old')


def _swap(storage, end, index):
    """Put the packed file in the place of the old one.  Commit lock held."""
    path = storage._file_name
    directory = os.path.dirname(path)
    storage._flusher.sync_now()
    file = datafile.open_existing(path + '.pack')
    try:
        file.sync()
        # The index knows the old file; it must be gone for good before the
        # new file can be found beside it.
        datafile.remove_if_there(path + '.index')
        if storage.pack_keep_old:
            datafile.disk.link(path, path + '.old')
        datafile.disk.sync_directory(directory)
        datafile.disk.replace(path + '.pack', path)
    except BaseException:
        file.close()
        datafile.remove_if_there(path + '.pack')
        raise
    file.name = path
    storage.replace_file(file, index, end)
    datafile.disk.sync_directory(directory)


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

    def pack(self):
        self.gc.findReachable()
        self._tfile = io.BufferedRandom(
            datafile.open_new(self._path + '.pack'))
        try:
            position = self._copy_to_pack_time()
            if position is None:
                datafile.remove_if_there(self._path + '.pack')
                return None
            position = self._copy_while_others_commit(position)
            self._storage.hold_still()
            try:
                self._copy_up_to(self._storage.getSize(), position)
                end = self._tfile.tell()
                self._tfile.flush()
            except BaseException:
                self._storage._commit_lock.release()
                raise
            return end
        except BaseException:
            datafile.remove_if_there(self._path + '.pack')
            raise

    def _copy_to_pack_time(self):
        """Where to go on copying; None if nothing was left out so far."""
        self._file.seek(0)
        self._tfile.write(self._file.read(self._metadata_size))
        self._copier = PackCopier(self._tfile, self.index, self.tindex)
        position, copied = self.copyToPacktime()
        return position if position != copied else None

    def _copy_while_others_commit(self, position):
        """Copy and sync until only a small rest is left."""
        for _ in range(MOST_ROUNDS):
            position = self._copy_up_to(self._storage.getSize(), position)
            self._tfile.flush()
            self._tfile.raw.sync()
            if self._storage.getSize() - position < SMALL_REST:
                break
        return position

    def _copy_up_to(self, end, position):
        # With a fresh buffer: the old one may hold what was not committed.
        self._file.close()
        self._file = self._storage._file.reader()
        while position < end:
            position = self.copyOne(position)
        return position
