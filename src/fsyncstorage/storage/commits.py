"""From begin to acknowledgement.

A commit's life::

    tpc_begin   makes a Transaction
    store ...   adds records to it
    tpc_vote    gets its objects; checks what has changed since, reserves room
    tpc_finish  APPENDED: tid, place, one write; lets go of the objects; then
                waits: DURABLE, PUBLISHED, acknowledged

Begin and store take no lock, and compare nothing.  A vote takes one of two
paths, and the finish continues on it.  (A log gets the blobs before all that.)

*Shared*, for nearly all (`_vote_shared`, `_append_shared`):

1. vote: wait for its objects: those that it writes, for itself alone, and
   those that it has read, shared with other readers (commit.turns);
2. compare what was stored and read with what is appended; resolve conflicts;
3. reserve the bytes that it will write, on the disk and of the quota;
4. make the contents of its blobs durable.  It is voted, holds its objects, and
   nothing else (I12); the file was not touched;
5. finish: take the append lock; give the tid and the place in the file;
6. give the blobs their names;
7. write, once, with the final status if it has a seal to prove it;
8. add it to the index and the pipeline: it is appended;
9. let go of the append lock, then of the objects.

An undo is shared, too.  Its records point to places in the file, so no pack
replaces the file from the vote on (place).

*Alone*, for transactions that are voted only while no other is: with a given
tid, as every copy has; too large to be written under the append lock; and all
transactions, if no room can be reserved on the disk (`_vote_alone`,
`_append_alone`):

1. vote: wait until no other transaction is voted, and no pack replaces the
   file (place);
2. compare, and look for what its records point to;
3. make the contents of its blobs durable;
4. give the tid; write it behind the end, with status 'c'.  It is voted: nobody
   else can append, because no other is voted;
5. finish: give the blobs their names; write the final status;
6. add it to the index and the pipeline; free all.

The *two-sync path* is either of them with the status left as 'c': the leader
syncs, writes the status, and syncs again (`_sync_batch`).  It is taken under
the policy `two-sync`, and by a transaction with blobs, without a seal, or in a
place where something was cut off.

`_begun` has the transactions that were begun, by the id of the caller's
object.  They see what is appended (`_pos`, `_positions`, `_file`); readers
see what is published (`_view`).  When the caller's object is gone before the
transaction has ended, the flusher's thread or the next begin ends it.

Locks, in the order in which they are taken: the objects; the place (place);
the append lock (`_commit_lock`); `_writing`; `_lock`.
docs/internals/commit.rst says what is done under each of them.

Left to others: the transaction (transaction), its records (records), the end
of the file (appending), which transaction has which object (commit.turns), the
pipeline's states (commit.pipeline), syncing and making visible
(commit.sequencer), opening, closing and reading (storage).
"""

import contextlib
import logging
import time
import weakref
from collections.abc import Callable

from persistent.TimeStamp import TimeStamp
from ZODB.POSException import ReadOnlyError
from ZODB.POSException import StorageTransactionError
from ZODB.utils import as_bytes

from ..commit import blobs
from ..commit.contention import Contention
from ..commit.pipeline import PUBLISHED
from ..commit.pipeline import Commit
from ..errors import Fenced
from ..errors import Occupied
from ..errors import VoteAgain
from ..format.view import View
from . import outcome
from .appending import Appending
from .place import Place
from .told import AsyncFinish
from .told import ForAClient
from .told import Told
from .transaction import Metadata
from .transaction import Transaction
from .transaction import Undo
from .undoing import Undoing

logger = logging.getLogger(__name__)

# Of a new transaction, or of a copy from a packed file.  Any other status
# would mean unfinished, undone or damaged at the next opening.
STATUSES = b' ', b'p'


class Commits(Undoing, Appending):

    _contention: Contention
    _place: Place

    _closed_because = 'is closed'

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
            self._refuse_unless_later(tid)
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

    def _is_closed(self) -> ValueError:
        return ValueError(f'{self._file_name} {self._closed_because}')

    def _refuse_when_stopped(self) -> None:
        if self._closed:
            raise self._is_closed()
        if self.replica is not None:
            self.replica.may_write()
        if self._sequencer.pipeline.stopped:
            self._sequencer.pipeline.refuse_when_stopped()

    def _known(self, transaction: Metadata, call: str) -> Transaction:
        """The Transaction that was begun with this object, for this call."""
        under_way = self._find(transaction)
        if under_way is None:
            raise StorageTransactionError(
                f'{call} called with a transaction that is not in progress'
                ' (it was not begun, or is finished or aborted)')
        return under_way

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
        if under_way.voted:
            raise StorageTransactionError(
                'tpc_vote called twice for the same transaction')
        if under_way.failed:
            raise StorageTransactionError(
                'tpc_vote called again, after it failed: the transaction can'
                ' only be aborted')
        self._refuse_when_stopped()
        under_way.client = client
        is_first, under_way.asked = not under_way.asked, True
        under_way.asked_at = under_way.asked_at or time.monotonic()
        try:
            self._vote(under_way, wait, is_first)
            under_way.voted = True
            if self._begun.get(under_way.key) is not under_way:
                raise StorageTransactionError(
                    'the transaction was aborted while it was voted')
        except Occupied:
            raise
        except VoteAgain:
            under_way.asked = False
            self._let_go(under_way)
            if under_way.blobs is not None:  # its client may take its time
                under_way.blobs.leave_log()
            raise
        except BaseException:
            under_way.failed = True
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

    def _vote(self, under_way: Transaction, wait: bool,
              is_first: bool) -> None:
        if under_way.is_spilled or under_way.undone:
            self._check(under_way)  # only then its objects are known
        if is_first:
            # (And not again: it may have got its objects, beside others, and
            # conflicts that were resolved may have made it larger since.)
            under_way.alone = (under_way.alone or under_way.is_large()
                               or not self._reserve.is_real)
        if self.replica is not None and under_way.blobs:
            # This takes long, so no other transaction has to wait for it.
            # Another may change an object in that time; then this vote fails,
            # or has a conflict to resolve.
            if not under_way.alone:
                self._check(under_way)  # if it must fail, fail early
            self.replica.keep_blobs(under_way.blobs)
        if under_way.alone:
            self._vote_alone(under_way, wait)
        else:
            self._vote_shared(under_way, wait)

    def _vote_shared(self, under_way: Transaction, wait: bool) -> None:
        if not self._turns.ask(under_way, under_way.last, under_way.read):
            self._check(under_way)  # if it must fail, do not wait
            self._wait_for_its_turn(under_way, wait)
        if under_way.undone:
            self._refuse_undo_in_a_pack()  # before it waits for that pack
            self._place.take(under_way, wait)
            self._refuse_undo_in_a_pack()
        self._check(under_way)
        under_way.flush()
        self._reserve_room(under_way)
        if under_way.blobs:
            self._prepare_blobs(under_way, under_way.blobs)

    def _vote_alone(self, under_way: Transaction, wait: bool) -> None:
        if not self._turns.ask_alone(under_way):
            self._wait_for_its_turn(under_way, wait)
        self._place.take(under_way, wait)
        if under_way.undone:
            self._refuse_undo_in_a_pack()
        self._check(under_way)
        if under_way.blobs:
            self._prepare_blobs(under_way, under_way.blobs)
        with self._commit_lock, self._writing:
            self._refuse_when_stopped()
            self._leave_no_tail()
            tid = self._new_tid(under_way)
            self._reserve_room(under_way)
            self._write(under_way, tid, counts=False)

    def _wait_for_its_turn(self, under_way: Transaction, wait: bool) -> None:
        if not wait:
            raise Occupied
        self._contention.hand_on()
        if not self._turns.wait(under_way):
            self._refuse_when_stopped()
            raise StorageTransactionError(
                'the transaction was aborted while its vote waited')
        self._refuse_when_stopped()

    def _reserve_room(self, under_way: Transaction) -> None:
        length = under_way.length
        if self.replica is not None:
            self.replica.may_write(length)
        self._reserve.promise(under_way, length)
        if self._quota is not None and under_way.records:
            last = under_way.records[-1]
            if not isinstance(last.origin, Undo):
                # (The total includes this transaction.)
                self._refuse_beyond_quota(
                    self._quota, under_way, self._reserve.total - length,
                    last.size)

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
        """Let go of its objects, its reserve and its place."""
        if self._place.is_of(under_way):
            try:
                if under_way.alone:
                    with self._commit_lock, self._writing:
                        self._leave_no_tail()
            finally:
                self._place.leave(under_way)
        if self._contention.inside:
            self._contention.leave(under_way)
        self._reserve.let_go(under_way)
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
        if not under_way.voted:
            raise StorageTransactionError('tpc_finish called before tpc_vote')
        try:
            try:
                if under_way.alone:
                    commit = self._append_alone(under_way, f)
                else:
                    commit = self._append_shared(under_way, f)
            except Occupied:
                raise  # it stays voted
            except BaseException:
                self._end(under_way)
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
        """Give the transaction its place, and write it.

        Occupied if it must not wait, and another thread has the append lock.
        """
        if len(self._begun) > 1 and not under_way.policy.promises:
            self._contention.come(
                under_way, may_sleep=not isinstance(f, AsyncFinish))
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
        with self._writing:
            try:
                self._refuse_when_stopped()
                if under_way.fenced:
                    raise Fenced
                if self._has_tail:
                    self._leave_no_tail()
                tid = self._new_tid(under_way)
                commit = self._commit(under_way, tid, self._pos, f)
                if under_way.blobs:
                    self._name_blobs(under_way, commit)
                counts = under_way.sealed and not commit.status_last
                self._write(under_way, tid, counts)
                if not counts and not commit.status_last:
                    self._write_status(commit)
                self._append(under_way, commit)
                return commit
            except BaseException:
                self._leave_no_tail()
                raise

    def _append_alone(self, under_way: Transaction, f: Told) -> Commit:
        """Write the final status: it has its place."""
        assert under_way.tid is not None
        with self._commit_lock, self._writing:
            self._refuse_when_stopped()
            if under_way.fenced:
                raise Fenced
            commit = self._commit(
                under_way, under_way.tid, under_way.start, f)
            if under_way.blobs:
                self._name_blobs(under_way, commit)
            if not commit.status_last:
                self._write_status(commit)
            self._append(under_way, commit)
            return commit

    def _commit(self, under_way: Transaction, tid: bytes, start: int,
                f: Told) -> Commit:
        """Make the Commit of a transaction for the pipeline."""
        policy = under_way.policy
        view = View(
            self._file, self._positions, start + under_way.length, tid)
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
        sound = sealed and self._cut_back_to < 0  # nearly always
        if (commit.blobs is not None
                or not sound and self._may_look_whole(sealed)):
            # Its status is written when the rest is durable.  It is
            # acknowledged only after that, under every policy.
            commit.promised = commit.status_last = True
        elif policy.status_last or policy.promises and not sealed:
            commit.status_last = True
        return commit

    def _may_look_whole(self, sealed: bool) -> bool:
        """Could a transaction that a power cut has torn be taken for whole?

        Yes if seals are expected, and it has none.  Yes if parts of an aborted
        transaction may remain in its place: the old seal with the new header
        looks like that of a transaction that stock has rewritten.
        """
        if self._sequencer.durable.end > self._cut_back_to:
            self._cut_back_to = -1
        return self._checksums and (
            not sealed or self._cut_back_to >= 0)

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
