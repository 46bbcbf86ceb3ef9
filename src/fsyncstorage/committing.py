"""The commit machinery: from begin to acknowledgement.

A commit's life::

    tpc_begin   takes the commit lock
    store ...   checks against what is *appended*; records go to a spool
    tpc_vote    writes the transaction behind the file's end, status 'c'
    tpc_finish  APPENDED: writes the status, moves the end, frees the commit
                lock; then waits: DURABLE, PUBLISHED, acknowledged

What is called here belongs to whoever holds the commit lock, until the append
hands it to the pipeline.  It sees what is appended (stock's ``_pos``,
``_index``, ``_file``); everybody else sees what is published (``_view``).

Locks, in the order in which they are taken: the commit lock (begin to append;
no sync and no wait for another's sync under it, I2); then either stock's
``_lock`` (one step of the commit machinery), or the publisher's lock (under
the commit lock only for what needs no sync).  The flusher's mutex is a leaf
below all.

Left to others: the pipeline's states (pipeline), syncing (flusher), making
visible (publisher), opening, closing and reading (storage).
"""

import contextlib
import io
import os
import struct
import tempfile
import zlib

from ZODB.FileStorage import FileStorage
from ZODB.FileStorage.FileStorage import TempFormatter
from ZODB.FileStorage.format import DATA_HDR_LEN
from ZODB.FileStorage.format import TRANS_HDR
from ZODB.FileStorage.format import TRANS_HDR_LEN
from ZODB.POSException import ConflictError
from ZODB.POSException import POSKeyError
from ZODB.POSException import ReadConflictError
from ZODB.POSException import StorageError
from ZODB.POSException import StorageTransactionError
from ZODB.POSException import UndoError
from ZODB.TimeStamp import TimeStamp
from ZODB.utils import as_bytes
from ZODB.utils import p64

from . import blobs
from . import conflicts
from . import seal
from .errors import OutcomeUnknown
from .errors import Unpublished
from .errors import WritingStopped
from .pipeline import Commit
from .reading import View
from .reading import check_oid
from .reading import pread_cached

# A transaction up to this size is kept in memory until its vote.
SPOOL_IN_MEMORY = 1 << 20
COPY_CHUNK = 1 << 20

# New oids are counted on from the highest one that was stored: behind this one
# 2**56 are left.
HIGHEST_OID = b'\xfe' + b'\xff' * 7

# A transaction that is new, or the copy of one of a packed file.  Of any other
# status, it would be unfinished, undone or damaged at the next opening.
STATUSES = b' ', b'p'

_transaction_header = struct.Struct(TRANS_HDR)
STATUS_OFFSET = 16  # of the status byte in it

_WAITING = contextlib.nullcontext()


class AsyncFinish:
    """Given to `tpc_finish` in the place of `f`: append now, tell me later.

    `tpc_finish` returns the tid as soon as the transaction is appended and the
    commit lock is free.  When it is durable (as the policy says), whoever owns
    the publishing calls `publish(tid)`, and then `done(tid, error)`.

    It travels in the argument because storage wrappers (zlib, encryption) hand
    that on.
    """

    def __init__(self, done, publish=None):
        self.done = done
        self.publish = publish


class CommitMachinery(FileStorage):

    _closed_because = 'is closed'
    _sealed = False  # the transaction in progress
    _distrusts_records = False
    #: Oids that were not given, behind which there are none.
    _refuses_last_oids = True
    #: What was written from here on was cut back.  Until something behind it
    #: is durable, a power cut can show parts of it.
    _cut_back_to = -1

    # A transaction, until it is appended

    def tpc_begin(self, transaction, tid=None, status=' ', wait=True):
        if self._closed:
            raise self._is_closed()
        if as_bytes(status) not in STATUSES:
            raise StorageTransactionError(
                f'a transaction cannot have the status {status!r}')
        begun_before = transaction is self._transaction
        try:
            with _WAITING if wait else self._commit_lock.at_once():
                FileStorage.tpc_begin(self, transaction, tid, status)
            self._refuse_when_stopped()
            last = self._flusher.pipeline.appended.tid
            if self._tid <= last:
                raise StorageTransactionError(
                    f'the transaction id {self._tid.hex()} is not later than'
                    f' {last.hex()}, the last one. (Where the ids of a'
                    ' database do not rise, move its files, not its'
                    ' transactions)')
        except BaseException:
            if transaction is self._transaction and not begun_before:
                self._ts = TimeStamp(self._flusher.appended.tid)
                self.tpc_abort(transaction)
            raise

    def _is_closed(self):
        return ValueError(f'{self._file_name} {self._closed_because}')

    def _refuse_when_stopped(self):
        if self._closed:
            raise self._is_closed()
        if self._flusher is not None and self._flusher.pipeline.stopped:
            self._flusher.refuse_when_stopped()

    def _begin(self, tid, user, description, extension):
        """Stock's hook: the transaction's metadata are known.

        Records are placed behind them, so the seal needs its room now.
        """
        if extension:
            extension = seal.strip(extension)  # an old one, of a copy
        user = as_bytes(user)
        description = as_bytes(description)
        self._ude = user, description, extension
        self._status = as_bytes(self._tstatus)
        FileStorage._begin(self, tid, user, description, extension)
        if self._checksums:
            room = seal.room(extension)
            self._sealed = bool(room)
            self._unsealable += not room
            self._thl += room

    def _check_transaction(self, transaction, call):
        if self._transaction is None or transaction is not self._transaction:
            raise StorageTransactionError(
                f'{call} called with a transaction that is not the one in'
                ' progress (it was not begun, or is finished or aborted)')

    def _clear_temp(self):
        """Stock's hook: a new transaction begins, or one is over."""
        if self._closed:
            return
        self._nextpos = 0
        self._tindex.clear()
        if isinstance(self._tfile, io.BytesIO):
            self._tfile.seek(0)
        else:
            large = self._tfile
            self._spool_to(io.BytesIO())
            with contextlib.suppress(OSError):  # of what it did not write yet
                large.close()

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
            if (oid > HIGHEST_OID and oid > self._oid
                    and self._refuses_last_oids):
                raise StorageError(
                    f'the oid {oid.hex()} was not given by this storage, and'
                    f' is above {HIGHEST_OID.hex()}: behind it, no new oids'
                    ' would be left')

    def _check_data(self, data, transaction):
        if data == b'' and transaction is self._transaction is not None:
            raise StorageError(
                'a record without data would be read as one that points back'
                ' to another: the file would be damaged')

    def store(self, oid, oldserial, data, version, transaction):
        self._check_oid(oid, transaction)
        self._check_data(data, transaction)
        try:
            FileStorage.store(self, oid, oldserial, data, version, transaction)
        except ConflictError as error:
            self._give_way(transaction, error.serials[0])
            raise
        self._spill()

    def store_is_plain(self, oid, serial):
        """Would its store neither conflict nor wait for the disk?

        Whoever has the commit lock may know better.
        """
        position = self._index_get(oid, 0)
        descriptor = self._file.descriptor
        try:
            return not position or pread_cached(
                descriptor.number, DATA_HDR_LEN, position
            ).startswith(oid + serial)
        except (OSError, ValueError):
            return False

    @property
    def is_packing(self):
        """It may take its time under the locks of the storage."""
        return self._pack_is_in_progress

    def deleteObject(self, oid, oldserial, transaction):
        self._check_oid(oid, transaction)
        try:
            super().deleteObject(oid, oldserial, transaction)
        except ConflictError as error:
            self._give_way(transaction, error.serials[0])
            raise
        except POSKeyError:  # deleted, perhaps by what is not published
            self._give_way(transaction, self._flusher.appended.tid)
            raise
        self._spill()

    def restore(self, oid, serial, data, version, prev_txn, transaction):
        self._check_oid(oid, transaction)
        self._check_data(data, transaction)
        super().restore(oid, serial, data, version, prev_txn, transaction)
        self._spill()

    def checkCurrentSerialInTransaction(self, oid, serial, transaction):
        self._check_transaction(transaction, 'checkCurrentSerial')
        position = self._index_get(oid, 0)
        if position:
            record = self._read_data_header(position, oid)
            if record.tid == serial and record.plen:
                return  # mostly
        try:
            committed = self._appended.get_tid(oid)
        except POSKeyError:  # deleted, perhaps by what is not published
            self._give_way(transaction, self._flusher.appended.tid)
            raise
        if committed != serial:
            self._give_way(transaction, committed)
            raise ReadConflictError(oid=oid, serials=(committed, serial))

    def undo(self, transaction_id, transaction):
        self._refuse_undo_in_a_pack()
        try:
            result = super().undo(transaction_id, transaction)
        except (UndoError, ConflictError):
            self._give_way(transaction, self._flusher.appended.tid)
            raise
        self._spill()
        return result

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
        if self._distrusts_records:
            try:
                self._check_records(oid, oldSerial, newpickle, committedData)
            except conflicts.Refused as reason:
                raise ConflictError(
                    oid=oid, serials=(committedSerial, oldSerial),
                    data=newpickle) from reason
        return super().tryToResolveConflict(
            oid, committedSerial, oldSerial, newpickle, committedData)

    def distrust_records(self):
        """From now on, records come from clients: a server calls it."""
        self._distrusts_records = True

    def _check_records(self, oid, old_serial, *records):
        """Stock is about to unpickle these, and the one of the old serial."""
        for record in records:
            if record:
                conflicts.check(self._crs_untransform_record_data(record))
        with contextlib.suppress(POSKeyError):  # stock says so
            conflicts.check(self._crs_untransform_record_data(
                self.loadSerial(oid, old_serial)))

    @property
    def _appended(self):
        """What the commit machinery sees (I6); the commit lock is held."""
        return View(self._file, self._index, self._pos,
                    self._flusher.appended.tid)

    def _give_way(self, transaction, tid):
        """We conflict with the transaction of that tid (I6).

        If it is not published, a retry would not see it, and conflict again.
        So wait for it; but first give up the commit lock: who is doomed holds
        up nobody.  An event loop that owns the publishing does not wait.
        """
        if tid > self._view.tid:
            self.tpc_abort(transaction)
            if self._publisher.owned:
                raise Unpublished(tid)
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
        status = self._status
        front = _transaction_header.pack(
            self._tid, length, status, len(user), len(description),
            self._thl - TRANS_HDR_LEN - len(user) - len(description),
        ) + user + description
        if self._sealed:
            field = seal.make(front, field, status, self._pos, length,
                              self._flusher.durable.end, records_crc)
        return b''.join((front[:STATUS_OFFSET], b'c',
                         front[STATUS_OFFSET + 1:], field))

    # Blobs

    def _place_blobs(self):
        """Begin to note which blob files a transaction puts in place."""
        if self.blob_dir:
            self._placed = self._no_blobs()

    def _no_blobs(self, **options):
        return blobs.Placed(
            self.fshelper, self._durable_directories, **options)

    def _blob_storeblob(self, oid, serial, blobfilename):
        with self._lock:  # a pack removes empty directories under it
            self._placed.put(blobfilename, oid, serial)

    def _blob_tpc_abort(self):
        if self.blob_dir:
            self._placed.take_back()
            self._place_blobs()

    # What was begun can be taken back

    def _cut_back(self):
        """Leave nothing behind the end of the file."""
        self._nextpos = 0
        self._cut_back_to = self._pos
        try:
            self._file.truncate(self._pos)
        except OSError as error:
            # What stays there could be taken for a transaction.
            self._flusher.stop_writing(
                f'the file could not be cut back to {self._pos} ({error})')

    def _abort(self):
        """Stock's hook of tpc_abort, which frees the commit lock then.

        Whatever goes wrong here, it must not be freed twice.
        """
        self._transaction = None
        if self._nextpos and not self._closed:
            self._cut_back()
        self._blob_tpc_abort()

    # From append to acknowledgement

    def tpc_finish(self, transaction, f=None):
        """Append; then return when the policy says so.

        With an AsyncFinish for `f`, return at once.
        """
        if (transaction is None or transaction is not self._transaction
                or not self._nextpos):
            self._check_transaction(transaction, 'tpc_finish')
            raise StorageTransactionError('tpc_finish called before tpc_vote')
        commit = self._commit(f)
        try:
            try:
                self._append(transaction, commit)
                if not commit.promised:
                    # Before the next committer may contend for the locks.
                    self._publisher.offer(self._flusher, tell=False)
            finally:
                self._leave(transaction)
            if self._flusher.untold:
                self._publisher.tell(self._flusher)
            if commit.on_done is None:
                self._flusher.wait(commit)
        except BaseException:
            self._flusher.abandon(commit)
            raise
        if commit.error is not None and commit.on_done is None:
            raise commit.error
        return commit.tid

    def _append(self, transaction, commit):
        """The transaction becomes part of the file."""
        try:
            self._refuse_when_stopped()
            if not commit.status_last:
                self._write_status(commit)
        except BaseException:
            self.tpc_abort(transaction)  # cuts it off again
            raise
        try:
            self._advance(commit)
        except WritingStopped as error:
            raise OutcomeUnknown(
                f'{error}. Whether this transaction was kept is known'
                ' then') from error
        except BaseException:  # interrupted: too late to go back
            self._advance(commit)
            raise

    def _leave(self, transaction):
        """Free the commit lock, if that was not done."""
        with self._lock:  # the next one sets what is cleared here
            if self._transaction is transaction:
                self._ude = None
                if not isinstance(self._tfile, io.BytesIO):
                    self._clear_temp()  # of a large one, at once
                self._nextpos = 0
                # In one line: whoever sees the one sees the other.
                self._transaction = self._commit_lock.release()

    def _commit(self, f):
        """What the pipeline needs to know of the transaction."""
        policy = self.durability.policy
        commit = Commit(self._tid, self._pos, self._nextpos,
                        self._status, policy.promises)
        if isinstance(f, AsyncFinish):
            commit.on_publish, commit.on_done = f.publish, f.done
            commit.orphan = True
        else:
            commit.on_publish = f
        if self.blob_dir and self._placed and policy.name != 'none':
            commit.blobs = self._placed
        sound = self._sealed and self._cut_back_to < 0  # nearly always
        if commit.blobs or not sound and self._may_look_whole():
            # Its status is written when all of it is durable, and whatever
            # the policy, it is acknowledged only then.
            commit.promised = commit.status_last = True
        elif policy.status_last or policy.promises and not self._sealed:
            commit.status_last = True
        return commit

    def _may_look_whole(self):
        """Could it, torn by a power cut, be taken for a whole one?

        If seals are expected, and it has none.  Or if parts of an aborted
        transaction may show through: its seal beside our header looks like
        that of a transaction that stock has rewritten.
        """
        if self._flusher.durable.end > self._cut_back_to:
            self._cut_back_to = -1
        return self._checksums and (
            not self._sealed or self._cut_back_to >= 0)

    def _advance(self, commit):
        """It is appended.  May be called again when interrupted.

        The index goes first: what is published must be found.  A checkpoint
        takes index and position under the lock, and what it takes must be in
        the pipeline: else it would not be synced before the index counts.
        """
        with self._lock:
            if self._checkpoints.snapshot is not None:
                self._checkpoints.snapshot.about_to_change(self._tindex)
            self._index.update(self._tindex)
            self._pos = commit.end
            if self.blob_dir:
                if commit.blobs is None and self._placed:  # `none`
                    self._unsynced_blobs.add(self._placed)
                self._place_blobs()
            self._flusher.append(commit)
        if commit.end >= self._checkpoints.due:
            self._checkpoints.wake()

    def _write_status(self, commit):
        self._file.write_at(commit.status, commit.start + STATUS_OFFSET)

    def _sync_batch(self, batch):
        """The flusher's sync: these commits, and all before them.

        What a sync has made durable has its blobs, whatever the policy.
        """
        if self.blob_dir:
            self._unsynced_blobs.sync(self._spare)
        unfinished = []
        for commit in batch:
            if commit.status_last:
                unfinished.append(commit)
                if commit.blobs:
                    commit.blobs.sync(self._spare)
        if unfinished:
            self._file.sync()
            for commit in unfinished:
                self._write_status(commit)
        self._file.sync()

    def _show(self, point):
        self._view = View(self._file, self._index, point.end, point.tid)

    def own_publishing(self, notify):
        """For an event loop: from now on, it publishes.

        `notify()` is called from any thread when there may be something to
        publish; the owner then calls `publish` in its own thread.  Nobody may
        finish a transaction without AsyncFinish in that thread: it would wait
        for itself.  A conflict with what is not published raises Unpublished.
        """
        self._publisher.owned_by(notify)

    def publish(self):
        self._publisher.publish(self._flusher)
