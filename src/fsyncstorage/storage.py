"""FsyncStorage: a FileStorage whose commits go through the pipeline.

A commit's life::

    tpc_begin   takes the commit lock
    store ...   checks against what is *appended*; records go to a spool
    tpc_vote    writes the transaction behind the file's end, status 'c'
    tpc_finish  APPENDED: writes the status, moves the end, frees the commit
                lock; then waits: DURABLE, PUBLISHED, acknowledged

Two states of the file, and who sees which:

- *appended* (stock's ``_pos``, ``_index``, ``_file``): the commit machinery,
  that is, whoever holds the commit lock;
- *published* (``_view``): everybody else.

Locks, in the order in which they are taken: the commit lock (begin to append;
no sync and no wait for another's sync under it, I2); stock's ``_lock`` (one
call of the commit machinery); and apart from these, never under them, the
publisher's lock.  The flusher's mutex is a leaf below all.

Left to others: the pipeline's states (pipeline), syncing (flusher), making
visible (publisher), look-ups (reading), the swap of a pack (packing).

What is used of stock's inside was read from ZODB 6.4; tests/test_stock_hooks.py
fails when it moves.
"""

import io
import logging
import os
import struct
import sys
import tempfile
import zlib

import zc.lockfile
import ZODB.blob
from ZODB._compat import FILESTORAGE_MAGIC
from ZODB.FileStorage import FileStorage
from ZODB.FileStorage.FileStorage import FileStorageFormatError
from ZODB.FileStorage.FileStorage import TempFormatter
from ZODB.FileStorage.format import TRANS_HDR
from ZODB.POSException import ConflictError
from ZODB.POSException import POSKeyError
from ZODB.POSException import ReadConflictError
from ZODB.POSException import StorageTransactionError
from ZODB.POSException import UndoError
from ZODB.utils import as_bytes
from ZODB.utils import p64

from . import blobs
from . import datafile
from . import durability as policies
from . import index
from . import packing
from . import recovery
from . import seal
from .checkpoints import Checkpoints
from .errors import WritingStopped
from .flusher import Flusher
from .pipeline import Commit
from .pipeline import Point
from .publisher import Publisher
from .reading import View
from .reading import check_oid
from .scan import FIRST

logger = logging.getLogger(__name__)

# A transaction up to this size is kept in memory until its vote.
SPOOL_IN_MEMORY = 1 << 20
COPY_CHUNK = 1 << 20

_transaction_header = struct.Struct(TRANS_HDR)
STATUS_OFFSET = 16  # of the status byte in it


class AsyncFinish:
    """Given to `tpc_finish` in the place of `f`: append now, tell me later.

    `tpc_finish` returns the tid as soon as the transaction is appended and the
    commit lock is free.  When it is durable (as the policy says), whoever owns
    the publishing calls `publish(tid)`, and then `done(tid, error)`.

    It travels in the argument because storage wrappers (zlib, encryption) hide
    methods that they do not know.
    """

    def __init__(self, done, publish=None):
        self.done = done
        self.publish = publish


class FsyncStorage(FileStorage):

    # A read-only storage has none of these.
    _flusher = _checkpoints = None
    _closed = False

    def __init__(
        self,
        file_name,
        create=False,
        read_only=False,
        stop=None,
        quota=None,
        pack_gc=True,
        pack_keep_old=True,
        packer=None,
        blob_dir=None,
        durability=policies.DEFAULT_POLICY,
        sync_interval=policies.DEFAULT_SYNC_INTERVAL,
        group_commit_delay=policies.DEFAULT_GROUP_COMMIT_DELAY,
        checksums=policies.DEFAULT_CHECKSUMS,
        index_checkpoint=policies.DEFAULT_INDEX_CHECKPOINT,
    ):
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
        """
        index_checkpoint = policies.index_checkpoint(index_checkpoint)
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
        self._stop = stop
        self._durable_directories = set()
        if not create:
            recovery.refuse_lost_file(file_name, blob_dir)
        try:
            super().__init__(
                file_name, create=create, read_only=read_only, stop=stop,
                quota=quota, pack_gc=pack_gc, pack_keep_old=pack_keep_old,
                packer=packer, blob_dir=blob_dir)
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
        known = self._trusted_index()
        self._index_position = known.end
        index, end, tid = recovery.recover(
            self._file, known, self._is_read_only,
            self._checksums or self.durability.policy.promises)
        if self._is_read_only:
            self._file.limit = end  # more may be coming
        return index, end, tid  # and nothing is left to scan

    def _check_magic(self):
        magic = self._file.read(len(FILESTORAGE_MAGIC))
        if magic == FILESTORAGE_MAGIC:
            return
        if not FILESTORAGE_MAGIC.startswith(magic):
            raise FileStorageFormatError(self._file_name)
        # Empty, or what a power cut left of a new file.
        if not self._is_read_only:
            self._file.write_at(FILESTORAGE_MAGIC, 0)

    def _trusted_index(self):
        """What the index file knows, if it can be believed."""
        path = self._file_name + '.index'
        try:
            loaded = index.load(path)
        except FileNotFoundError:
            return recovery.nothing_known()
        except index.Damaged as reason:
            logger.warning('%s; all of the data will be scanned', reason)
            return recovery.nothing_known()
        if loaded is None or loaded.fingerprint is None:
            trusted = super()._restore_index()
            if trusted is None:
                return recovery.nothing_known()
            return recovery.Recovered(*trusted)
        tid = loaded.fingerprint == index.fingerprint(
            self._file, loaded.position) and self._sane(
                loaded.index, loaded.position)
        if not tid:
            return recovery.nothing_known()
        return recovery.Recovered(loaded.index, loaded.position, tid)

    def _begin_service(self, index_checkpoint):
        """The file is scanned: make it durable, then serve."""
        opened = Point(self._pos, self._ltid)
        self._publisher = Publisher(self._show)
        self._show(opened)
        if self._is_read_only:
            return
        self._drop_stock_spool()
        self._spool_to(io.BytesIO())
        self._file.sync()
        datafile.disk.sync_directory(os.path.dirname(self._file_name))
        if self.blob_dir:
            blobs.prepare(self.blob_dir)
            self._place_blobs()
        self._checkpoints = Checkpoints(self, index_checkpoint)
        self._flusher = Flusher(
            self._file_name, opened, self.durability,
            self._sync_batch, self._offer)
        if self._index_position == FIRST:
            self._save_index()
        self._checkpoints.start(self._index_position)

    def close(self):
        """Drain, sync, save the index, release everything."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        try:
            if self._flusher is not None:
                self._publisher.owned_by(None)
                self._save_index()
        except (OSError, WritingStopped) as error:
            logger.error('%s is closed without an index: %s',
                         self._file_name, error)
        finally:
            self._release()

    def _release(self):
        """Leave no thread, file or lock behind, however far we came."""
        if self._checkpoints is not None:
            self._checkpoints.close()
        if self._flusher is not None:
            self._flusher.close()
        self._drop_stock_spool()
        for name in '_file', '_tfile', '_lock_file':
            resource = self.__dict__.get(name)
            if resource is not None:
                resource.close()

    def _drop_stock_spool(self):
        """Stock opens Data.fs.tmp for each storage; a spool replaces it."""
        spool = self.__dict__.get('_tfile')
        if isinstance(getattr(spool, 'name', None), str):
            spool.close()
            datafile.remove_if_there(spool.name)
            self._tfile = None

    def _save_index(self):
        """Stock's hook: write an index, unless nothing may be written."""
        if self._flusher is not None and self._checkpoints.write():
            self._saved += 1

    def _make_durable(self, position):
        """For an index: it never knows more than the disk."""
        self._flusher.sync_to(position)

    # A transaction, until it is appended

    def tpc_begin(self, transaction, tid=None, status=' '):
        self._refuse_when_stopped()
        begun_before = transaction is self._transaction
        try:
            super().tpc_begin(transaction, tid, status)
            self._refuse_when_stopped()
        except BaseException:
            if not begun_before:
                self.tpc_abort(transaction)
            raise

    def _refuse_when_stopped(self):
        if self._closed:
            raise ValueError(f'{self._file_name} is closed')
        if self._flusher is not None:
            self._flusher.refuse_when_stopped()

    def _begin(self, tid, user, description, extension):
        """Stock's hook: the transaction's metadata are known.

        Records are placed behind them, so the seal needs its room now.
        """
        user, description = as_bytes(user), as_bytes(description)
        extension = seal.strip(extension)  # an old one, when it is a copy
        self._sealed = self._checksums and seal.fits(extension)
        self._unsealable += self._checksums and not self._sealed
        self._ude = user, description, extension
        super()._begin(tid, user, description, extension)
        if self._sealed:
            self._thl += seal.sealed_length(extension) - len(extension)

    def _check_transaction(self, transaction, call):
        if self._transaction is None or transaction is not self._transaction:
            raise StorageTransactionError(
                f'{call} called with a transaction that is not the one in'
                ' progress (it was not begun, or is finished or aborted)')

    def _clear_temp(self):
        """Stock's hook: a new transaction begins, or one is over."""
        self._nextpos = 0
        self._tindex.clear()
        self._tfile.seek(0)
        if not isinstance(self._tfile, io.BytesIO):
            self._tfile.close()
            self._spool_to(io.BytesIO())

    def _spool_to(self, file):
        """Where the records of a transaction are kept until its vote."""
        self._tfile = file
        self._tfmt = TempFormatter(file)

    def _spill(self):
        """A large transaction goes on in a file."""
        if (self._tfile.tell() > SPOOL_IN_MEMORY
                and isinstance(self._tfile, io.BytesIO)):
            file = tempfile.TemporaryFile(
                dir=os.path.dirname(self._file_name))
            file.write(self._tfile.getbuffer()[:self._tfile.tell()])
            self._spool_to(file)

    def _check_oid(self, oid, transaction):
        # Stock checks the transaction, and in the first place.
        if transaction is self._transaction:
            check_oid(oid)

    def store(self, oid, oldserial, data, version, transaction):
        self._check_oid(oid, transaction)
        try:
            super().store(oid, oldserial, data, version, transaction)
        except ConflictError as error:
            self._give_way(transaction, error.serials[0])
            raise
        self._spill()

    def deleteObject(self, oid, oldserial, transaction):
        self._check_oid(oid, transaction)
        try:
            super().deleteObject(oid, oldserial, transaction)
        except ConflictError as error:
            self._give_way(transaction, error.serials[0])
            raise

    def restore(self, oid, serial, data, version, prev_txn, transaction):
        self._check_oid(oid, transaction)
        super().restore(oid, serial, data, version, prev_txn, transaction)
        self._spill()

    def checkCurrentSerialInTransaction(self, oid, serial, transaction):
        self._check_transaction(transaction, 'checkCurrentSerial')
        committed = self._appended.get_tid(oid)
        if committed != serial:
            self._give_way(transaction, committed)
            raise ReadConflictError(oid=oid, serials=(committed, serial))

    def undo(self, transaction_id, transaction):
        self._refuse_undo_in_a_pack()
        try:
            return super().undo(transaction_id, transaction)
        except (UndoError, ConflictError):
            self._give_way(transaction, self._appended.tid)
            raise

    def _refuse_undo_in_a_pack(self):
        """An undo points to data that the pack may be about to leave out."""
        if self._pack_is_in_progress:
            raise UndoError('Undo is disabled while the database is packed')

    def tryToResolveConflict(self, oid, committedSerial, oldSerial, newpickle,
                             committedData=b''):
        if not committedData:
            # Stock would ask loadSerial, which shows only what is published.
            try:
                committedData = self._appended.load_serial(
                    oid, committedSerial)
            except POSKeyError:
                pass  # its creation was undone: stock says so
        return super().tryToResolveConflict(
            oid, committedSerial, oldSerial, newpickle, committedData)

    @property
    def _appended(self):
        """What the commit machinery sees (I6); the commit lock is held."""
        return View(self._file, self._index, self._pos,
                    self._flusher.appended.tid)

    def _give_way(self, transaction, tid):
        """We conflict with the transaction of that tid (I6).

        If it is not published, a retry would not see it, and conflict again.
        So wait for it; but first give up the commit lock: who is doomed holds
        up nobody.
        """
        if tid > self._view.tid:
            self.tpc_abort(transaction)
            self._flusher.wait_for(tid)

    def tpc_vote(self, transaction):
        """Write the transaction behind the end of the file, unfinished.

        Only the holder of the commit lock writes there, and nobody else reads
        there: this needs no other lock, however long it takes.
        """
        self._check_transaction(transaction, 'tpc_vote')
        self._refuse_when_stopped()
        try:
            self._nextpos = self._write_transaction()
        except BaseException:
            self._cut_back()
            raise
        return self._resolved

    def _write_transaction(self):
        """Write it with status 'c'; return where the next one begins."""
        size = self._tfile.tell()
        length = self._thl + size
        trailer = p64(length)
        self._tfile.seek(0)
        if size <= COPY_CHUNK:  # one write for all
            body = self._tfile.read(size) + trailer
            self._file.write_at(
                self._header(length, zlib.crc32(body)) + body, self._pos)
        else:
            position = self._pos + self._thl
            crc = 0
            for chunk in self._chunks(size, trailer):
                self._file.write_at(chunk, position)
                position += len(chunk)
                crc = zlib.crc32(chunk, crc)
            self._file.write_at(self._header(length, crc), self._pos)
        return self._pos + length + len(trailer)

    def _chunks(self, size, trailer):
        while size:
            chunk = self._tfile.read(min(size, COPY_CHUNK))
            size -= len(chunk)
            yield chunk
        yield trailer

    def _header(self, length, records_crc):
        """The header with status 'c'; its seal knows the final one."""
        user, description, field = self._ude
        status = as_bytes(self._tstatus)

        def front(status, extension_length):
            return _transaction_header.pack(
                self._tid, length, status, len(user), len(description),
                extension_length) + user + description

        if self._sealed:
            field = seal.make(
                front(status, seal.sealed_length(field)), field, status,
                self._pos, length, self._flusher.durable.end, records_crc)
        return front(b'c', len(field)) + field

    # Blobs

    def _place_blobs(self):
        """Begin to note which blob files a transaction puts in place."""
        if self.blob_dir:
            self._placed = blobs.Placed(
                self.blob_dir, self._durable_directories)

    def _blob_storeblob(self, oid, serial, blobfilename):
        with self._lock:  # a pack removes empty directories under it
            self._placed.put(
                blobfilename, self.fshelper.getBlobFilename(oid, serial))

    def _blob_tpc_abort(self):
        if self.blob_dir:
            self._placed.take_back()
            self._place_blobs()

    def _let_blobs_go_first(self, commit):
        """Its status is written when its blobs are durable, and no sooner:
        whatever the policy, it is acknowledged only then."""
        if self._placed:
            commit.blobs = self._placed
            commit.promised = commit.status_last = True

    # What was begun can be taken back

    def _cut_back(self):
        """Leave nothing behind the end of the file."""
        try:
            self._file.truncate(self._pos)
        except OSError as error:
            # What stays there could be taken for a transaction.
            self._flusher.stop_writing(
                f'the file could not be cut back to {self._pos} ({error})')

    def _abort(self):
        """Stock's hook of tpc_abort."""
        self._blob_tpc_abort()
        if self._nextpos:
            self._nextpos = 0
            self._cut_back()

    # From append to acknowledgement

    def tpc_finish(self, transaction, f=None):
        """Append; then return when the policy says so.

        With an AsyncFinish for `f`, return at once.
        """
        commit = None
        try:
            commit = self._append(transaction, f)
            if not commit.promised:
                self._offer()
            if commit.on_done is None:
                self._flusher.wait(commit)
        except BaseException:
            if commit is not None:
                self._flusher.abandon(commit)
            raise
        return commit.tid

    def _append(self, transaction, f):
        """The transaction becomes part of the file; free the commit lock."""
        with self._lock:
            self._check_transaction(transaction, 'tpc_finish')
            if not self._nextpos:
                raise StorageTransactionError(
                    'tpc_finish called before tpc_vote')
            commit = Commit(
                self._tid, self._pos, self._nextpos, as_bytes(self._tstatus),
                self.durability.policy.promises,
                getattr(f, 'publish', f), getattr(f, 'done', None))
            if self.blob_dir and self.durability.policy.name != 'none':
                self._let_blobs_go_first(commit)
            commit.status_last |= self.durability.policy.status_last or (
                commit.promised and not self._sealed)
            try:
                self._refuse_when_stopped()
                if not commit.status_last:
                    self._write_status(commit)
            except BaseException:
                self.tpc_abort(transaction)  # cuts it off again
                raise
            try:
                # The index first: what is published must be found.
                self._checkpoints.about_to_change(self._tindex)
                self._index.update(self._tindex)
                self._pos = commit.end
                self._flusher.append(commit)
                self._checkpoints.appended(commit.end)
            finally:
                self._place_blobs()
                self._clear_temp()
                self._ude = self._transaction = None
                self._commit_lock.release()
            return commit

    def _write_status(self, commit):
        self._file.write_at(commit.status, commit.start + STATUS_OFFSET)

    def _sync_batch(self, batch):
        """The flusher's sync: these commits, and all before them."""
        unfinished = [commit for commit in batch if commit.status_last]
        for commit in unfinished:
            if commit.blobs:
                commit.blobs.sync()
        if unfinished:
            self._file.sync()
            for commit in unfinished:
                self._write_status(commit)
        self._file.sync()

    def _offer(self):
        """Something became publishable, or a sync failed."""
        self._publisher.offer(self._flusher)
        if self._flusher.failed:
            self._show(self._flusher.visible)

    def _show(self, point):
        self._view = View(self._file, self._index, point.end, point.tid)

    def own_publishing(self, notify):
        """For an event loop: from now on, it publishes.

        `notify()` is called from any thread when there may be something to
        publish; the owner then calls `publish` in its own thread.  It must
        never finish a transaction without AsyncFinish: it would wait for
        itself.
        """
        self._publisher.owned_by(notify)

    def publish(self):
        self._publisher.publish(self._flusher)

    # Readers

    def _current(self):
        """The view of who asks for the current state."""
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
            point = Point(end, self._view.tid)
            self._flusher.rebase(point)
            self._show(point)

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


def _locked(file_name):
    """Who has the file, in words."""
    try:
        with open(file_name + '.lock') as lock_file:
            holder = f'process {int(lock_file.read())}'
    except (OSError, ValueError):
        holder = 'another process'
    return (f'{file_name} is open for writing in {holder}. Only one may write:'
            ' stop it, connect to it over ZEO, or open the file read-only')
