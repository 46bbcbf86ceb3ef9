"""From begin to acknowledgement.

A commit's life::

    tpc_begin   makes a Transaction
    store ...   adds records to it
    tpc_vote    gets its objects; checks what has changed since, reserves room
    tpc_finish  APPENDED: tid, position, one write; lets go of the objects;
                then waits: DURABLE, PUBLISHED, acknowledged

Begin and store take no lock, and compare nothing.  A vote takes one of two
paths, and the finish continues on it.  (A log gets the blobs before all that.)

*Shared*, for nearly all (`_vote_shared`, `_append_shared`):

1. vote: wait for its objects: those that it writes, exclusively, and those
   that it has read, shared with other readers (commit.turns);
2. compare what was stored and read with what is appended; resolve conflicts;
3. reserve the bytes that it will write, on the disk and of the quota;
4. make the contents of its blobs durable.  It is voted, holds its objects, and
   nothing else (I12); the file was not touched;
5. finish: take the append lock; give the tid and the position;
6. give the blobs their names;
7. write, once, with the final status if it has a seal to prove it;
8. add it to the index and the pipeline: it is appended;
9. let go of the append lock, then of the objects.

An undo is shared, too.  Its records point to positions in the file, so it also
asks for the file (THE_FILE), which it shares with other undos: from its vote
on, no pack replaces it.

*Alone*, for transactions that are voted only while no other is: with a given
tid, as every copy has; too large to be written under the append lock; and all
transactions, if no room can be reserved on the disk (`_vote_alone`,
`_append_alone`):

1. vote: wait until no other transaction is voted, and no pack replaces the
   file;
2. compare, and look for what its records point to;
3. make the contents of its blobs durable;
4. give the tid; write it behind the end, with status 'c'.  It is voted: nobody
   else can append, because no other is voted;
5. finish: give the blobs their names; write the final status;
6. add it to the index and the pipeline; free all.

The *two-sync path* is either of them with the status left as 'c': the leader
syncs, writes the status, and syncs again (journal).  It is taken under
the policy `two-sync`, and by a transaction with blobs, without a seal, or at a
position where something was cut off.

`_begun` has the transactions that were begun, by the id of the caller's
object.  When that object is gone before the transaction has ended, the
flusher's thread or the next begin ends it.

Locks, in the order in which they are taken: the objects, and the file among
them; those of the journal.  docs/internals/commit.rst says what is done under
each.

Left to others: the transaction and its records (transaction), what a vote
compares (checks), the file (journal), which transaction has which object
(commit.turns), the pipeline's states (commit.pipeline), syncing and making
visible (commit.sequencer), opening, closing and reading (storage).
"""

import collections
import contextlib
import logging
import threading
import time
import weakref
from base64 import decodebytes
from collections.abc import Callable
from collections.abc import Iterable
from typing import Any

from persistent.TimeStamp import TimeStamp
from ZODB.BaseStorage import BaseStorage
from ZODB.FileStorage.FileStorage import FileStorageQuotaError
from ZODB.POSException import ReadOnlyError
from ZODB.POSException import StorageError
from ZODB.POSException import StorageTransactionError
from ZODB.POSException import UndoError
from ZODB.POSException import Unsupported
from ZODB.utils import as_bytes

from ..commit import blobs
from ..commit.blobs import Stored
from ..commit.pipeline import PUBLISHED
from ..commit.pipeline import Commit
from ..commit.policies import Durability
from ..commit.replica import Replica
from ..commit.sequencer import Sequencer
from ..commit.turns import Turns
from ..errors import Barred
from ..errors import Occupied
from ..errors import SyncFailed
from ..errors import VoteAgain
from ..format.classes import is_of_blob
from ..format.view import View
from ..format.view import check_oid
from ..format.view import check_serial
from ..format.view import serial_or_none
from . import outcome
from . import undo
from .checks import Checks
from .conflicts import Conflicts
from .journal import Journal
from .statistics import Counts
from .told import AsyncFinish
from .told import ForAClient
from .told import Told
from .transaction import ASKED
from .transaction import BEGUN
from .transaction import FAILED
from .transaction import LENGTH_BEHIND
from .transaction import VOTED
from .transaction import Metadata
from .transaction import NewRecord
from .transaction import Restored
from .transaction import Transaction

logger = logging.getLogger(__name__)

# Of a new transaction, or of a copy from a packed file.  Any other status
# would mean unfinished, undone or damaged at the next opening.
STATUSES = b' ', b'p'


# New oids follow the highest one that was stored: above this one, 2**56 are
# left.
HIGHEST_OID = b'\xfe' + b'\xff' * 7

#: It is asked for like an object: by a transaction that needs the file to stay
#: the one it is, from its vote to its end, and by a pack that replaces it.
#: (No oid is that short.)
THE_FILE = b'file'

# No record of a blob is longer than this.  (To check longer records, too,
# would only take time.)
LONGEST_OF_A_BLOB = 256

_NO_BLOBS = (
    'this storage has no blob-dir, and keeps no blobs. (A BlobStorage, or'
    ' <blobstorage>, cannot wrap it: it assumes that one commit is under way'
    ' at a time. Use the blob-dir of the storage itself)')

_NOT_OF_ANOTHER = (
    'under durability quorum, a blob is restored in a transaction with the tid'
    ' that it had: a node that starts knows by it which of its blob files no'
    ' transaction has')

_DISABLED = 'Undo is disabled while the database is packed'


class Commits(BaseStorage):
    """The part of a storage that its committers call."""

    # The storage sets these when it is opened.
    durability: Durability
    blob_dir: str | None
    fshelper: Any
    _begun: dict[int, Transaction]
    _checks: Checks
    _checksums: bool
    _conflicts: Conflicts
    _counts: Counts
    _durable_directories: set[str]
    _file_name: str
    _home: str
    journal: Journal
    _quota: int | None
    _refuse_when_stopped: Callable[[], None]
    replica: Replica | None
    _sequencer: Sequencer
    _turns: Turns

    #: Is a pack under way?
    is_packing = False
    #: How many transactions had no room for a seal.
    _unsealable = 0
    #: Refuse oids that were not given by us, and leave too few above them.
    _refuses_last_oids = True

    def _begin_commits(self) -> None:
        """Set what belongs to this part alone."""
        #: The transactions that were begun, by the id of the caller's object.
        self._begun = {}
        #: References to callers' objects that are gone.
        self._dropped: collections.deque[weakref.ref[Any]]
        self._dropped = collections.deque()
        self._ending_dropped = threading.Lock()

    # Begin

    def tpc_begin(self, transaction: Metadata, tid: bytes | None = None,
                  status: str | bytes = b' ') -> None:
        self._refuse_when_stopped()
        final = status if status.__class__ is bytes else as_bytes(status)
        if final not in STATUSES:
            raise StorageTransactionError(
                f'a transaction cannot have the status {status!r}')
        if self._is_read_only:
            raise ReadOnlyError()
        if self._dropped:
            self._end_dropped()
        if id(transaction) in self._begun:
            raise StorageTransactionError(
                'Duplicate tpc_begin calls for same transaction')
        if tid is not None:
            tid = TimeStamp(tid).raw()
            self.journal.refuse_unless_later(tid)
        under_way = Transaction(
            transaction, tid, final, outcome.id_for(transaction, tid),
            self.durability.policy, self._checksums, self._home,
            self._note_drop)
        if self.blob_dir:
            under_way.blobs = blobs.Stored(
                self.fshelper, self._durable_directories)
        if self._checksums and not under_way.sealed:
            self._unsealable += 1
        self._begun[under_way.key] = under_way

    # (Each call of a committer finds its transaction first: so the next two do
    # not call `_find`.)

    def _find(self, transaction: Metadata) -> Transaction | None:
        """The Transaction that was begun with this object, or None."""
        under_way = self._begun.get(id(transaction))
        if under_way is not None:
            caller = under_way.caller  # an older object may have had this id
            if caller() is transaction:
                return under_way
        return None

    def _known(self, transaction: Metadata, call: str) -> Transaction:
        """The Transaction that was begun with this object, for this call."""
        under_way = self._begun.get(id(transaction))
        if under_way is None or under_way.caller() is not transaction:
            raise StorageTransactionError(
                f'{call} called with a transaction that is not in progress'
                ' (it was not begun, or is finished or aborted)')
        return under_way

    def _under_way(self, transaction: Metadata) -> Transaction:
        """The Transaction that the caller has begun, for a new record."""
        if self.journal.closed_because:
            self.journal.refuse_when_closed()
        under_way = self._begun.get(id(transaction))
        if under_way is None or under_way.caller() is not transaction:
            if self._is_read_only:
                raise ReadOnlyError()
            raise StorageTransactionError(self, transaction)
        if under_way.state is not BEGUN:
            raise StorageTransactionError(
                'a transaction that was voted takes no more records')
        return under_way

    def _refuse_oid(self, oid: bytes) -> None:
        if oid.__class__ is not bytes or len(oid) != 8:
            check_oid(oid)
        if (oid > HIGHEST_OID and oid > self._oid
                and self._refuses_last_oids):
            raise StorageError(
                f'the oid {oid.hex()} was not given by this storage, and'
                f' is above {HIGHEST_OID.hex()}: it would leave too few new'
                ' oids')

    def _checked_data(self, data: bytes | bytearray | memoryview) -> bytes:
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise TypeError(f'a record is bytes, not {type(data).__name__}')
        if not data:
            raise StorageError(
                'a record without data would be read as one that points back'
                ' to another: the file would be damaged')
        return bytes(data)

    # Storing

    def store(self, oid: bytes, oldserial: bytes, data: bytes, version: str,
              transaction: Metadata) -> None:
        under_way = self._under_way(transaction)
        assert not version
        self._refuse_oid(oid)
        if data.__class__ is not bytes or not data:
            data = self._checked_data(data)
        if (self.blob_dir is None and len(data) < LONGEST_OF_A_BLOB
                and is_of_blob(data)):
            self.refuse_blob()
        if oid > self._oid:
            self.set_max_oid(oid)
        self._add(under_way, NewRecord(oid, data, serial_or_none(oldserial)))

    def _add(self, under_way: Transaction, record: NewRecord) -> None:
        under_way.add(record)
        if self._quota is not None:
            self._refuse_beyond_quota(
                self._quota, under_way, self.journal.reserve.total,
                record.size)

    def spill(self, transaction: Metadata) -> None:
        """For a server: keep what this transaction stores on the disk, and
        nothing in memory, until its vote."""
        self._under_way(transaction).spill()

    def changed_oids(self, transaction: Metadata) -> list[bytes]:
        """The objects that a transaction changes, which was voted."""
        return list(self._known(transaction, 'changed_oids').last)

    def refuse_blob(self) -> None:
        """Refuse a blob: it comes from a BlobStorage that wraps this storage.

        After an abort, a BlobStorage removes all files that were stored since
        the last commit was finished.  Here another transaction may begin
        before that: its abort would remove blobs of the transaction that is
        about to be acknowledged.
        """
        raise Unsupported(_NO_BLOBS)

    def _refuse_beyond_quota(self, quota: int, under_way: Transaction,
                             others: int, last: int) -> None:
        """`others`: bytes that are reserved for other transactions.  `last`:
        those of the last record, which may exceed the quota, as in
        FileStorage.  An undo may exceed it, too; a restore may not.
        """
        size = self.journal.end + others + under_way.length - LENGTH_BEHIND
        if size - last > quota:
            raise FileStorageQuotaError('The storage quota has been exceeded.')

    def deleteObject(self, oid: bytes, oldserial: bytes,
                     transaction: Metadata) -> None:
        under_way = self._under_way(transaction)
        self._refuse_oid(oid)
        self._add(under_way, NewRecord(oid, b'', serial_or_none(oldserial)))

    def checkCurrentSerialInTransaction(self, oid: bytes, serial: bytes,
                                        transaction: Metadata) -> None:
        under_way = self._known(transaction, 'checkCurrentSerial')
        if under_way.state is not BEGUN:
            raise StorageTransactionError(
                'a transaction that was voted checks no more serials')
        check_oid(oid)
        under_way.reads(oid, serial_or_none(serial))

    # Blobs

    def storeBlob(self, oid: bytes, oldserial: bytes, data: bytes,
                  blobfilename: str, version: str,
                  transaction: Metadata) -> None:
        assert not version, "Versions aren't supported."
        self.store(oid, oldserial, data, '', transaction)
        self._take_blob(self._under_way(transaction), oid, None, blobfilename)

    def _take_blob(self, under_way: Transaction, oid: bytes,
                   serial: bytes | None, path: str) -> None:
        if under_way.blobs is None:
            raise Unsupported(_NO_BLOBS)
        if self.durability.policy.replicated and serial not in (
                None, under_way.given_tid):
            raise Unsupported(_NOT_OF_ANOTHER)
        under_way.blobs.take(path, oid, serial)

    # Restore

    def restore(self, oid: bytes, serial: bytes, data: bytes | None,
                version: str, prev_txn: bytes | None,
                transaction: Metadata) -> None:
        """Store a revision that was committed in another storage, without
        checks for conflicts.

        `data` is None if the creation of the object was undone.  If the data
        are the same as in transaction `prev_txn`, the record points there.
        """
        under_way = self._under_way(transaction)
        if version:
            raise TypeError('Versions are no-longer supported')
        self._refuse_oid(oid)
        check_serial(serial)
        if prev_txn is not None:
            check_serial(prev_txn)
        if data is not None:
            data = self._checked_data(data)
        if oid > self._oid:
            self.set_max_oid(oid)
        under_way.alone = True
        self._add(under_way, NewRecord(
            oid, data or b'', serial=serial, restored=Restored(prev_txn)))

    def position_of_same(self, tid: bytes, oid: bytes,
                         data: bytes | None) -> int:
        """The position of the object's record in the transaction `tid`, if it
        has these data; else 0.

        During a pack, each record gets its own data: the pack has not seen
        what it would point back to.
        """
        if self.is_packing:
            return 0
        view = self.journal.appended
        return undo.find_data(
            view, undo.find_transaction(view, tid, stop_at_pack=False), oid,
            data)

    def restoreBlob(self, oid: bytes, serial: bytes, data: bytes,
                    blobfilename: str, prev_txn: bytes | None,
                    transaction: Metadata) -> bytes | None:
        self.restore(oid, serial, data, '', prev_txn, transaction)
        under_way = self._under_way(transaction)
        self._take_blob(under_way, oid, serial, blobfilename)
        return under_way.tid

    # Undo

    def undo(self, transaction_id: bytes,
             transaction: Metadata) -> tuple[bytes | None, list[bytes]]:
        """Return the tid (None: it is not known yet) and the oids.

        The records are worked out now, and again by the vote if anything was
        appended since.
        """
        under_way, view = self._under_way(transaction), self.journal.appended
        tid = _tid_of(transaction_id)
        self._refuse_undo_in_a_pack()
        if under_way.undone and not under_way.records:  # they were forgotten
            self._checks.undo_again(under_way, view)
        under_way.undoes(tid)
        try:
            oids = self._checks.undo(under_way, tid, view)
        except OSError:  # perhaps half of it was added: the disk is full
            under_way.undone.pop()
            under_way.forget_undoing()
            raise
        except BaseException:
            under_way.undone.pop()
            raise
        if len(under_way.undone) == 1:
            under_way.known_to, under_way.undone_in = view, view.file
        elif under_way.known_to is not view:
            under_way.known_to = None
        return under_way.tid, oids

    def undo_at_vote(self, transaction_id: bytes,
                     transaction: Metadata) -> None:
        """For a server: only the vote reads the file, and works out which
        objects that changes (`changed_oids`)."""
        under_way = self._under_way(transaction)
        under_way.undoes(_tid_of(transaction_id))
        under_way.known_to = None

    def _refuse_undo_in_a_pack(self) -> None:
        """The pack has not seen what it would point back to."""
        if self.is_packing:
            raise UndoError(_DISABLED)

    # Vote

    def tpc_vote(self, transaction: Metadata, wait: bool = True,
                 client: ForAClient | None = None) -> list[bytes]:
        """Do all that can fail; return the oids whose conflicts were resolved.

        Without `wait`, raise Occupied if the vote would have to wait.  The
        transaction then keeps its turn, or its place in the queues.  When its
        turn has come, which `call_when_served` tells, call this again.  (It
        waits for a log all the same: a vote with blobs needs a thread.)

        A server passes on whose vote it is (`client`).  After VoteAgain the
        transaction holds nothing, and takes more records.
        """
        under_way = self._known(transaction, 'tpc_vote')
        if under_way.state is VOTED:
            raise StorageTransactionError(
                'tpc_vote called twice for the same transaction')
        if under_way.state is FAILED:
            raise StorageTransactionError(
                'tpc_vote called again, after it failed: the transaction can'
                ' only be aborted')
        self._refuse_when_stopped()
        under_way.client = client
        is_first, under_way.state = under_way.state is BEGUN, ASKED
        under_way.asked_at = under_way.asked_at or time.monotonic()
        try:
            self._vote(under_way, wait, is_first)
            under_way.state = VOTED
            if self._begun.get(under_way.key) is not under_way:
                raise StorageTransactionError(
                    'the transaction was aborted while it was voted')
        except Occupied:
            raise
        except VoteAgain:
            under_way.state = BEGUN
            self._let_go(under_way)
            if under_way.blobs is not None:  # its client may take its time
                under_way.blobs.leave_log()
            raise
        except BaseException:
            under_way.state = FAILED
            if self._begun.get(under_way.key) is under_way:
                self._let_go(under_way)
            else:
                self._end(under_way)  # with what the abort did not know of
            raise
        return under_way.resolved

    #: Marks our own `tpc_vote`; a wrapper's `tpc_vote` has no mark.
    tpc_vote.need_not_wait = True  # type: ignore[attr-defined]

    def call_when_served(self, transaction: Metadata,
                         function: Callable[[], object]) -> bool:
        """After a vote that did not wait: call the function when this
        transaction has its turn, or if it never will.

        Return False if there is nothing to wait for.  The function must only
        notify another thread.  Any thread may call it, more than once.
        """
        under_way = self._find(transaction)
        return under_way is not None and (
            self._turns.call_when_served(under_way, function))

    def vote_is_plain(self, transaction: Metadata) -> bool:
        """Would the vote neither conflict nor wait for the disk, as far as can
        be seen without waiting?"""
        return self._checks.is_plain(self._known(transaction, 'vote_is_plain'))

    def _vote(self, under_way: Transaction, wait: bool,
              is_first: bool) -> None:
        if under_way.is_spilled or under_way.undone:
            self._checks.check(under_way)  # only then its objects are known
        if is_first:
            # (And not again: it may have got its objects, beside others, and
            # conflicts that were resolved may have made it larger since.)
            under_way.alone = (under_way.alone or under_way.is_large()
                               or not self.journal.reserve.is_real)
        if self.replica is not None and under_way.blobs:
            # This takes long, so no other transaction has to wait for it.
            # Another may change an object in that time; then this vote fails,
            # or has a conflict to resolve.
            if not under_way.alone:
                self._checks.check(under_way)  # if it must fail, fail early
            self.replica.keep_blobs(under_way.blobs)
        if under_way.alone:
            self._vote_alone(under_way, wait)
        else:
            self._vote_shared(under_way, wait)

    def _vote_shared(self, under_way: Transaction, wait: bool) -> None:
        shared: Iterable[bytes] = under_way.read
        if under_way.undone:
            self._refuse_undo_in_a_pack()  # before it waits for that pack
            shared = {THE_FILE}
        if not self._turns.ask(under_way, under_way.last, shared):
            self._checks.check(under_way)  # if it must fail, do not wait
            self._wait_for_its_turn(under_way, wait)
        if under_way.undone:
            self._refuse_undo_in_a_pack()
        self._checks.check(under_way)
        under_way.flush()
        self._reserve_room(under_way)
        if under_way.blobs:
            self._prepare_blobs(under_way, under_way.blobs)

    def _vote_alone(self, under_way: Transaction, wait: bool) -> None:
        if not self._turns.ask_alone(under_way):
            self._wait_for_its_turn(under_way, wait)
        if under_way.undone:
            self._refuse_undo_in_a_pack()
        self._checks.check(under_way)
        if under_way.blobs:
            self._prepare_blobs(under_way, under_way.blobs)
        with self._commit_lock:
            self._refuse_when_stopped()
            self.journal.cut_off_tail()
            tid = self.journal.new_tid(under_way)
            self._reserve_room(under_way)
            self.journal.write(under_way, tid, counts=False)

    def _wait_for_its_turn(self, under_way: Transaction, wait: bool) -> None:
        if not wait:
            raise Occupied
        if not self._turns.wait(under_way):
            self._refuse_when_stopped()
            raise StorageTransactionError(
                'the transaction was aborted while its vote waited')
        self._refuse_when_stopped()

    def _reserve_room(self, under_way: Transaction) -> None:
        length = under_way.length
        if self.replica is not None:
            self.replica.may_write(length)
        self.journal.reserve.promise(under_way, length)
        if (self._quota is not None and under_way.records
                and not under_way.undone):
            # (The total includes this transaction.)
            self._refuse_beyond_quota(
                self._quota, under_way, self.journal.reserve.total - length,
                under_way.records[-1].size)

    def _prepare_blobs(self, under_way: Transaction, stored: Stored) -> None:
        """Part of the vote: do what can fail, except for the names."""
        if self.replica is not None:
            # Now also the blobs that an undo has copied since.
            self.replica.keep_blobs(stored)
        stored.prepare(under_way.policy.name != 'none')

    def _name_blobs(self, under_way: Transaction, commit: Commit) -> None:
        assert under_way.blobs is not None
        with self._lock:  # a pack removes empty directories under this lock
            keys = under_way.blob_keys = under_way.blobs.name(commit.tid)
        commit.in_log = under_way.blobs.in_log
        if commit.blobs is not None:
            commit.blobs.add(keys)

    # Abort

    def tpc_abort(self, transaction: Metadata) -> None:
        under_way = self._find(transaction)
        if under_way is not None:
            self._end(under_way)

    def _end(self, under_way: Transaction) -> None:
        """Free all that the transaction holds; if it was not appended, remove
        its files, too.  May be repeated if interrupted."""
        try:
            if under_way.blobs is not None:
                under_way.blobs.take_back()
        finally:
            self._let_go(under_way)
            under_way.close()
            if self._begun.get(under_way.key) is under_way:
                del self._begun[under_way.key]

    def _let_go(self, under_way: Transaction) -> None:
        """Let go of its objects and its reserve."""
        if under_way.alone and under_way.tid is not None:  # it was written
            with self._commit_lock:
                self.journal.cut_off_tail()
        self.journal.reserve.let_go(under_way)
        self._turns.let_go(under_way)

    def _note_drop(self, caller: weakref.ref[Metadata]) -> None:
        """The caller's object is gone.

        Called in any thread, at any line: so the transaction is ended
        elsewhere.
        """
        self._dropped.append(caller)
        self._sequencer.flusher.wake()

    def _end_dropped(self) -> None:
        """End transactions whose caller's object is gone.

        Each stays noted until it is ended, so that an interrupt leaves it to
        the next call.  A begin waits for this, because a new object may have
        the same id."""
        if not self._dropped:
            return
        ended = 0
        with self._ending_dropped:
            noted = list(self._dropped)
            for under_way in list(self._begun.values()):
                if under_way.metadata is None:
                    with contextlib.suppress(OSError):
                        # (The next opening removes blobs that are left.)
                        self._end(under_way)
                    ended += 1
            for caller in noted:
                self._dropped.remove(caller)
        for _ in range(ended):
            logger.warning(
                '%s: a transaction was dropped, neither finished nor aborted;'
                ' its locks and its room are free now', self._file_name)

    # Finish: from append to acknowledgement

    def tpc_finish(self, transaction: Metadata, f: Told = None) -> bytes:
        """Append the transaction; then return when the policy says so.

        With an AsyncFinish as `f`, return at once.
        """
        under_way = self._known(transaction, 'tpc_finish')
        if under_way.state is not VOTED:
            raise StorageTransactionError('tpc_finish called before tpc_vote')
        try:
            try:
                if under_way.alone:
                    commit = self._append_alone(under_way, f)
                else:
                    commit = self._append_shared(under_way, f)
            except Occupied:
                raise  # it stays voted
            except BaseException as error:
                self._end(under_way)
                if isinstance(error, OSError) and self.journal.has_tail:
                    raise SyncFailed(
                        f'{error}, and {self._file_name} could not be cut'
                        ' back: whether this transaction was kept is known'
                        ' when the storage is opened again') from error
                raise
            if under_way.resolved:
                self._counts.resolved(len(set(under_way.resolved)))
            self._end(under_way)
            if not commit.promised and commit.state is not PUBLISHED:
                self._sequencer.offer()
            if commit.on_done is None and commit.state is not PUBLISHED:
                self._sequencer.settle(commit)
        except BaseException:
            if under_way.commit is not None:
                self._sequencer.abandon(under_way.commit)
            raise
        if commit.on_done is None:
            if commit.error is not None:
                raise commit.error
            self._counts.commit_time.add(
                time.monotonic() - under_way.asked_at)
        return commit.tid

    def _append_shared(self, under_way: Transaction, f: Told) -> Commit:
        """Give the transaction its position, and write it.

        Occupied if it must not wait, and another thread has the append lock.
        """
        if not isinstance(f, AsyncFinish) or f.wait:
            with self._commit_lock:
                return self._append_now(under_way, f)
        # (If the lock was looked at first, and taken then, a pack could take
        # it in between, and wait for this very thread to publish.)
        if not self._commit_lock.acquire(blocking=False):
            raise Occupied
        try:
            return self._append_now(under_way, f)
        finally:
            self._commit_lock.release()

    def _append_now(self, under_way: Transaction, f: Told) -> Commit:
        try:
            self._refuse_when_stopped()
            if under_way.barred:
                raise Barred
            if self.journal.has_tail:
                self.journal.cut_off_tail()
            tid = self.journal.new_tid(under_way)
            commit = self._commit(under_way, tid, self.journal.end, f)
            if under_way.blobs:
                self._name_blobs(under_way, commit)
            counts = under_way.sealed and not commit.status_last
            self.journal.write(under_way, tid, counts)
            if not counts and not commit.status_last:
                self.journal.write_status(commit)
            self.journal.append(under_way, commit)
            return commit
        except BaseException:
            self.journal.cut_off_tail()
            raise

    def _append_alone(self, under_way: Transaction, f: Told) -> Commit:
        """Write the final status: all else is in the file."""
        assert under_way.tid is not None
        with self._commit_lock:
            self._refuse_when_stopped()
            if under_way.barred:
                raise Barred
            commit = self._commit(
                under_way, under_way.tid, under_way.start, f)
            if under_way.blobs:
                self._name_blobs(under_way, commit)
            if not commit.status_last:
                self.journal.write_status(commit)
            self.journal.append(under_way, commit)
            return commit

    def _commit(self, under_way: Transaction, tid: bytes, start: int,
                f: Told) -> Commit:
        """Make the Commit of a transaction for the pipeline."""
        journal, policy = self.journal, under_way.policy
        view = View(
            journal.file, journal.positions, start + under_way.length, tid)
        commit = under_way.commit = Commit(
            start, view, under_way.status, policy.promises)
        if isinstance(f, AsyncFinish):
            commit.on_publish, commit.on_done = f.publish, f.done
            commit.orphan = True
        else:
            commit.on_publish = f
        if under_way.blobs and policy.name != 'none':
            commit.blobs = blobs.Placed(
                self.fshelper, self._durable_directories, names_only=True)
        sealed = under_way.sealed
        sound = sealed and self.journal.cut_off_at < 0  # nearly always
        if (commit.blobs is not None
                or not sound and self.journal.may_look_whole(sealed)):
            # Its status is written when the rest is durable.  It is
            # acknowledged only after that, under every policy.
            commit.promised = commit.status_last = True
        elif policy.status_last or policy.promises and not sealed:
            commit.status_last = True
        return commit

    def own_publishing(self, notify: Callable[[], object]) -> None:
        """From now on, the caller publishes: an event loop.

        `notify()` is called from any thread when there may be something to
        publish; the owner then calls `publish` in its own thread, where it may
        finish with AsyncFinish only.  docs/internals/commit.rst has more.
        """
        self._sequencer.owned_by(notify)

    @property
    def has_stopped(self) -> bool:
        """Is nothing appended any more?  What was appended is still published,
        unless a sync has failed: then the owner of publishing is notified."""
        return self._sequencer.pipeline.stopped is not None

    def publish(self) -> None:
        self._sequencer.publish()


def _tid_of(transaction_id: bytes) -> bytes:
    tid = decodebytes(transaction_id + b'\n')
    if len(tid) != 8:
        raise UndoError('Invalid transaction id')
    return tid
