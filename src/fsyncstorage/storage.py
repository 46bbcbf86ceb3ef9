"""FsyncStorage: a FileStorage whose commits go through the pipeline.

Here is what opens and closes it, what readers call, and maintenance.  A reader
takes the current `View` and needs no lock.

Left to others: commits (committing), look-ups (reading), what is done with the
tail of the file at open (recovery), what else a crash left (leftovers), the
index file (checkpoints, index), packs (packing, swap).

What is used of stock's inside was read from ZODB 6.4;
tests/test_stock_hooks.py fails when it moves.
"""

import io
import logging
import os
import sys
import threading
from collections.abc import Callable

import zc.lockfile
import ZODB.blob
from ZODB._compat import FILESTORAGE_MAGIC
from ZODB.FileStorage.FileStorage import FileStorageFormatError
from ZODB.POSException import POSKeyError

from . import blobs
from . import datafile
from . import durability as policies
from . import forks
from . import index
from . import leftovers
from . import packing
from . import recovery
from . import swap
from .checkpoints import Checkpoints
from .commitlock import CommitLock
from .committing import CommitMachinery
from .errors import WritingStopped
from .flusher import Flusher
from .pipeline import Point
from .publisher import Publisher
from .reading import CachedView
from .reading import ViewIterator
from .scan import FIRST
from .spare import Spare
from .unsynced import Mark

logger = logging.getLogger(__name__)


class FsyncStorage(CommitMachinery):

    # A read-only storage has none of these.
    _flusher = _checkpoints = _spare = None
    _closed = False
    #: Commits that were acknowledged may be missing, after a crash under a
    #: policy that does not promise them.
    may_have_lost = False

    def __init__(
        self,
        file_name: str,
        create: bool = False,
        read_only: bool = False,
        stop: bytes | None = None,
        quota: int | None = None,
        pack_gc: bool = True,
        pack_keep_old: bool = True,
        packer: Callable | None = None,
        blob_dir: str | None = None,
        durability: str = policies.DEFAULT_POLICY,
        sync_interval: str | float = policies.DEFAULT_SYNC_INTERVAL,
        group_commit_delay: str | float = policies.DEFAULT_GROUP_COMMIT_DELAY,
        checksums: bool = policies.DEFAULT_CHECKSUMS,
        index_checkpoint: str | int = policies.DEFAULT_INDEX_CHECKPOINT,
        reader_threads: int | str = policies.DEFAULT_READER_THREADS,
    ) -> None:
        """The arguments of FileStorage, and some of our own.

        :param str durability: none, interval, group-commit, per-commit or
            two-sync: when a commit is acknowledged, and so what a power cut
            may take back.
        :param sync_interval: for `interval`: how much may be lost; seconds,
            or text like ``200ms``.
        :param group_commit_delay: how long a commit waits for others to share
            its sync: ``auto``, seconds, or text like ``2ms``.
        :param bool checksums: seal each transaction, so that damage is found.
            Without, a promise costs two syncs a commit.
        :param index_checkpoint: after how many bytes an index is written, so
            that a restart scans at most that much; a number or text like
            ``64MB``.
        :param int reader_threads: how many threads of the ZEO server read what
            is not in memory.
        """
        index_checkpoint = policies.index_checkpoint(index_checkpoint)
        self.reader_threads = policies.reader_threads(reader_threads)
        self._checksums = bool(checksums)
        self._unsealable = 0
        self.durability = policies.Durability.of(
            durability, sync_interval, group_commit_delay)
        if packer is not None and self.durability.policy.status_last:
            raise ValueError(
                'durability two-sync needs the built-in packer: another one'
                ' may copy transactions whose status is not written yet')
        if os.path.isdir(file_name):
            raise IsADirectoryError(
                f'{file_name} is a directory; the path of a data file is'
                ' needed, like Data.fs')
        if os.path.exists(file_name) and not os.path.isfile(file_name):
            raise OSError(f'{file_name} is no regular file')  # a pipe hangs
        self._stop = stop
        self._begins_anew = create
        self._durable_directories: set[str] = set()
        self._swapping = threading.Lock()
        try:
            if not read_only:
                leftovers.refuse_second_names(file_name)
            if not create:
                if not read_only:
                    swap.finish_interrupted(file_name)
                recovery.refuse_lost_file(file_name, blob_dir)
            super().__init__(
                file_name, create=create, read_only=read_only, stop=stop,
                quota=quota, pack_gc=pack_gc, pack_keep_old=pack_keep_old,
                packer=packer, blob_dir=blob_dir)
            self._replace_commit_lock()
            self._begin_service(index_checkpoint)
        except zc.lockfile.LockError as error:
            raise zc.lockfile.LockError(_locked(file_name)) from error
        except FileStorageFormatError as error:
            self._release()
            raise FileStorageFormatError(
                f'{file_name} is no FileStorage data file: it does not begin'
                ' with its magic bytes; nothing was changed') from error
        except BaseException:
            self._release()
            raise

    # Opening and closing

    def _restore_index(self):
        """Stock's hook between opening the file and scanning it.

        From here on the file is ours: stock's is buffered, and would show
        later what was read around a transaction that was not committed.
        """
        self._file.close()
        self._file = datafile.open_existing(
            self._file_name, self._is_read_only)
        self._check_magic()
        if self._stop is not None:
            return None  # stock scans up to there
        known, doubted = self._trusted_index()
        self._index_position = known.end
        index, end, tid = recovery.recover(
            self._file, known, self._is_read_only,
            self._checksums or self.durability.policy.promises, doubted)
        if self._is_read_only:
            self._file.limit = end  # more may be coming
        return index, end, tid  # and nothing is left to scan

    def _sane(self, index, position):
        """Stock's check of an index; it runs past the beginning of a file
        that has nothing but empty transactions, and warns of one that has
        none."""
        try:
            return position > FIRST and super()._sane(index, position)
        except Exception:  # what it raises for a damaged file is not defined
            return False

    def _trusted_by_stock(self, loaded):
        """What an index without a checksum knows, if stock would accept it."""
        tid = self._sane(loaded.index, loaded.position)
        return tid and recovery.Recovered(loaded.index, loaded.position, tid)

    def _check_magic(self):
        magic = self._file.read(len(FILESTORAGE_MAGIC) + 1)
        if recovery.is_torn_creation(magic):
            if not self._is_read_only:
                self._file.write_at(FILESTORAGE_MAGIC, 0)
        elif not magic.startswith(FILESTORAGE_MAGIC):
            raise FileStorageFormatError(self._file_name)

    def _trusted_index(self):
        """What the index file knows, if it can be believed; and the index, if
        it is sound and contradicts the data."""
        nothing = recovery.nothing_known()
        path = self._file_name + '.index'
        if self._begins_anew:
            datafile.remove_if_there(path)  # of another database
        try:
            loaded = index.load(path)
        except FileNotFoundError:
            return nothing, None
        except index.Damaged as reason:
            logger.warning('%s; all of the data will be scanned', reason)
            return nothing, None
        if loaded is None:
            logger.warning(
                '%s.index is of an old release; all of the data will be'
                ' scanned', path.removesuffix('.index'))
            return nothing, None
        if loaded.fingerprint is None:
            return self._trusted_by_stock(loaded) or nothing, None
        recovery.refuse_shortened(self._file, loaded)
        # Stock's check is not asked: it takes two records of one object in a
        # transaction for a fault, and ZEO stores that of a blob twice.
        if (loaded.position > self._file.size()
                or loaded.fingerprint != index.fingerprint(
                    self._file, loaded.position)):
            return nothing, loaded
        if loaded.position == FIRST:
            return nothing, None
        tid = index.last_tid(self._file, loaded.position)
        return recovery.Recovered(loaded.index, loaded.position, tid), None

    def _begin_service(self, index_checkpoint):
        """The file is scanned: make it durable, then serve."""
        opened = Point(self._pos, self._ltid)
        self._publisher = Publisher(self._show)
        self._show(opened)
        self._unsynced = Mark(self._file_name, self._ltid)
        self.may_have_lost = self._unsynced.found
        if self._is_read_only:
            return
        self._drop_stock_spool()
        self._spool_to(io.BytesIO())
        self._file.sync()
        leftovers.remove(self)
        datafile.disk.sync_directory(os.path.dirname(self._file_name))
        self._spare = Spare(os.path.dirname(self._file_name))
        if self.blob_dir:
            self._begin_with_blobs()
        if not self.durability.policy.promises:
            self._unsynced.make()
        self._checkpoints = Checkpoints(self, index_checkpoint)
        self._flusher = Flusher(
            self._file_name, opened, self.durability,
            self._sync_batch, self._publisher.offer)
        if self._index_position == FIRST:
            self._save_index()
        self._checkpoints.start(self._index_position)
        forks.give_up_in_a_fork(self)

    def _begin_with_blobs(self):
        self._place_blobs()
        #: Of transactions that were acknowledged without them (`none`): they
        #: are synced before the next sync of the data.
        self._unsynced_blobs = self._no_blobs(removable=True)
        if self._unsynced.found:
            # If only the process died, the blobs are there, and the data
            # were synced just now.
            for transaction in ViewIterator(
                    self._view, position=self._index_position):
                for record in transaction:
                    self._unsynced_blobs.add_if_there(record.oid, record.tid)
            self._unsynced_blobs.sync(self._spare)

    def _replace_commit_lock(self):
        self._commit_lock = CommitLock()
        self._commit_lock_acquire = self._commit_lock.acquire
        self._commit_lock_release = self._commit_lock.release

    def _blob_init(self, blob_dir, layout='automatic'):
        """Stock's hook: the blob directory is about to be used."""
        if self._is_read_only:  # stock would write there
            self.fshelper = ZODB.blob.FilesystemHelper(
                blob_dir, blobs.layout_of(blob_dir))
            self.dirty_oids = []
        else:
            super()._blob_init(blob_dir, blobs.prepare(blob_dir))

    def close(self):
        """Drain, sync, save the index, release everything."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        try:
            if self._flusher is not None:
                self._publisher.owned_by(None)
                self._publisher.offer(self._flusher)
                self._flusher.drain()
                self._flusher.sync_to(self._pos)
                self._unsynced.remove(self._flusher.appended.tid)
                self._save_index()
        except WritingStopped as error:
            logger.error('%s is closed, but %s', self._file_name, error)
        finally:
            with self._swapping:  # a pack may be about to rename
                self._release()

    def _release(self):
        """Leave no thread, file or lock behind, however far we came."""
        if self._checkpoints is not None:
            self._checkpoints.close()
        if self._flusher is not None:
            self._flusher.close()
        if self._spare is not None:
            self._spare.close()
        self._drop_stock_spool()
        for name in '_file', '_tfile', '_lock_file':
            resource = self.__dict__.get(name)
            if resource is not None:
                resource.close()

    def give_up(self):
        """We are in the child of a fork: nothing here is ours.

        Other threads of the parent may have held the locks, and none of these
        threads is here: so each lock is made anew.  Descriptors are closed,
        and nothing is written, unlocked or removed.
        """
        self._closed = True
        self._closed_because = (
            'was opened by another process, before a fork: open it in this'
            ' one, and only when that one has closed it')
        self._lock = threading.RLock()
        self._replace_commit_lock()
        self._publisher = Publisher(self._show)
        self._flusher = self._checkpoints = self._spare = None
        self._transaction = None  # to abort it would remove its blobs
        self._file.abandon(self._closed_because)
        forks.silence(self._tfile)
        _close_without_unlocking(self._lock_file)

    def _drop_stock_spool(self):
        """Stock opens Data.fs.tmp for each storage; a spool replaces it."""
        spool = self.__dict__.get('_tfile')
        if isinstance(getattr(spool, 'name', None), str):
            spool.close()
            datafile.remove_if_there(spool.name)
            self._tfile = None

    def _save_index(self):
        """Stock calls it while it opens the file: that is too early here."""
        if self._flusher is not None and self._checkpoints.write_or_warn():
            self._saved += 1

    # Readers

    def _current(self):
        """The view of who asks for the current state."""
        if self._publisher.busy_thread is not None:
            self._publisher.pass_gate()
        return self._view

    def lastTransaction(self):
        return self._current().tid

    def getSize(self):
        return self._view.end

    def load(self, oid, version=''):
        assert not version
        return self._current().load(oid)

    def loadBefore(self, oid, tid):
        view = self._view
        if tid > view.next_tid:  # not as of something that is published
            view = self._current()
        return view.load_before(oid, tid)

    def load_before_cached(self, oid, tid):
        """loadBefore of what is in the page cache; else BlockingIOError."""
        view = self._current()
        return CachedView(view.file, view.index, view.end, view.tid
                          ).load_before(oid, tid)

    def loadSerial(self, oid, serial):
        view = self._view
        if serial > view.tid:
            view = self._current()
        return view.load_serial(oid, serial)

    def getTid(self, oid):
        return self._current().get_tid(oid)

    def history(self, oid, size=1, filter=None):
        return self._current().history(oid, size, filter)

    def undoLog(self, first=0, last=-20, filter=None):
        self._refuse_undo_in_a_pack()
        if last < 0:
            last = first - last  # a number of transactions
        return self._current().undo_log(first, last, filter)

    def iterator(self, start=None, stop=None):
        return self._current().iterator(start, stop)

    def lastInvalidations(self, count):
        return self._current().last_invalidations(count)

    def record_iternext(self, next=None):
        return self._current().next_record(next)

    def loadBlob(self, oid, serial):
        if serial > self._view.tid and serial > self._current().tid:
            raise POSKeyError(oid)  # its transaction is not published
        return super().loadBlob(oid, serial)

    def leaseBlob(self, oid, serial, seconds=60):
        """The path of a blob file, for another program to open.

        None: it is not there.  It stays until it is packed away, so it needs
        no lease; a client's (fsyncstorage.client) does.
        """
        try:
            return self.loadBlob(oid, serial)
        except POSKeyError:
            return None

    # Maintenance

    def pack(self, t, referencesf, gc=None):
        self._refuse_when_stopped()
        packing.pack(self, t, referencesf, self._pack_gc if gc is None else gc)

    @staticmethod
    def packer(storage, referencesf, stop, gc):
        return packing.copy_what_is_needed(storage, referencesf, stop, gc)

    def hold_still(self):
        """Take the commit lock, with nothing under way (for a pack)."""
        self._commit_lock.acquire()
        try:
            self._flusher.drain()
        except BaseException:
            self._commit_lock.release()
            raise

    def replace_file(self, file, index, end):
        """Serve from another file with the same current state.

        The commit lock is held, and everything is drained and synced.
        Readers that are under way go on with the old file; with the last of
        them it is closed.
        """
        with self._lock:
            self._file = file
            self._initIndex(index, self._tindex)
            self._pos = end
            self._cut_back_to = -1  # that was in the old file
            point = Point(end, self._view.tid)
            self._flusher.rebase(point)
            self._show(point)

    def sync_home(self):
        """Make the names beside the data file durable."""
        self._spare.sync_directory(os.path.dirname(self._file_name))

    def stats(self):
        """Figures for monitoring, as a dictionary."""
        return {
            'durability': self.durability.policy.name,
            'read_only': self._is_read_only,
            'unsealable': self._unsealable,
            **(self._flusher.stats() if self._flusher is not None else {}),
        }

    def supportsUndo(self):
        if sys._getframe(1).f_code is ZODB.blob.BlobStorage.__init__.__code__:
            # The only word that BlobStorage says to what it is about to wrap.
            # Behind <blobstorage> nobody could close it any more.
            self.close()
            raise TypeError(
                'a BlobStorage (<blobstorage>) cannot wrap an FsyncStorage: it'
                ' assumes that the commit lock is held until a commit is'
                ' synced. Use the blob-dir of the storage itself. The storage'
                ' was closed')
        return super().supportsUndo()


def _close_without_unlocking(lock_file):
    """The lock belongs to an open file that the parent shares: its `close`
    would free the parent's lock."""
    if lock_file._fp is not None:
        lock_file._fp.close()
        lock_file._fp = None


def _locked(file_name):
    """Who has the file, in words."""
    try:
        with open(file_name + '.lock') as lock_file:
            holder = f'process {int(lock_file.read())}'
    except (OSError, ValueError):
        holder = 'another process'
    return (f'{file_name} is open for writing in {holder}. Only one may write:'
            ' stop it, connect to it over ZEO, or open the file read-only')
