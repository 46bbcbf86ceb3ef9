"""From begin to acknowledgement.

A commit's life::

    tpc_begin   takes the commit lock
    store ...   checks against what is *appended*; records are spooled
    tpc_vote    writes the transaction behind the file's end, status 'c'
    tpc_finish  APPENDED: writes the status, moves the end, frees the commit
                lock; then waits: DURABLE, PUBLISHED, acknowledged

`_begun` is the transaction that has the commit lock, or None.  What is called
here belongs to it, until the append hands it to the pipeline.  It sees what is
appended (`_pos`, `_index`, `_file`); everybody else sees what is published
(`_view`).

Locks, in the order in which they are taken: the commit lock (begin to append;
no sync and no wait for another's sync under it, I2); then either `_lock` (what
changes together: `_begun` and the commit lock, the index and the end), or the
publisher's lock (under the commit lock only for what needs no sync).  The
flusher's mutex is a leaf below all.

Left to others: the transaction (transaction), its records (records), the
pipeline's states (pipeline), syncing (flusher), making visible (publisher),
opening, closing and reading (storage).
"""

from persistent.TimeStamp import TimeStamp
from ZODB.POSException import ReadOnlyError
from ZODB.POSException import StorageTransactionError
from ZODB.utils import as_bytes
from ZODB.utils import newTid

from .. import blobs
from ..errors import Occupied
from ..errors import OutcomeUnknown
from ..errors import WritingStopped
from ..pipeline import Commit
from ..reading import View
from .records import Records
from .transaction import STATUS_OFFSET
from .transaction import Transaction

# A transaction that is new, or the copy of one of a packed file.  Of any other
# status, it would be unfinished, undone or damaged at the next opening.
STATUSES = b' ', b'p'


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


class Commits(Records):

    _closed_because = 'is closed'
    #: The transaction that has the commit lock.
    _begun = None
    #: How many transactions had no room for a seal.
    _unsealable = 0
    #: What was written from here on was cut back.  Until something behind it
    #: is durable, a power cut can show parts of it.
    _cut_back_to = -1

    # A transaction, until it is appended

    def tpc_begin(self, transaction, tid=None, status=' ', wait=True):
        """Take the commit lock; `wait`: else Occupied, if it is taken."""
        if self._closed:
            raise self._is_closed()
        status_byte = as_bytes(status)
        if status_byte not in STATUSES:
            raise StorageTransactionError(
                f'a transaction cannot have the status {status!r}')
        if self._is_read_only:
            raise ReadOnlyError()
        if transaction is not None and transaction is self._transaction:
            raise StorageTransactionError(
                'Duplicate tpc_begin calls for same transaction')
        if not self._commit_lock.acquire(blocking=wait):
            raise Occupied
        try:
            under_way = self._new_transaction(transaction, tid, status_byte)
            with self._lock:  # the one before may not be through with this
                self._begun = under_way
        except BaseException:
            # A tid that was refused, or not used, holds up no later one.
            self._last_given = self._flusher.appended.tid
            with self._lock:
                self._begun = self._commit_lock.release()
            raise

    #: A wrapper's own `tpc_begin` has no such mark.
    tpc_begin.need_not_wait = True  # type: ignore[attr-defined]

    def _new_transaction(self, metadata, tid, status):
        self._refuse_when_stopped()
        last = self._flusher.appended.tid
        if tid is None:
            self._last_given = newTid(self._last_given)
        else:
            self._last_given = TimeStamp(tid).raw()
        if self._last_given <= last:
            raise StorageTransactionError(
                f'the transaction id {self._last_given.hex()} is not later'
                f' than {last.hex()}, the last one. (Where the ids of a'
                ' database do not rise, move its files, not its'
                ' transactions)')
        under_way = Transaction(
            metadata, self._last_given, status, self._pos, self._checksums,
            self._home)
        self._unsealable += self._checksums and not under_way.sealed
        if self.blob_dir:
            under_way.blobs = self._no_blobs()
        return under_way

    def _is_closed(self):
        return ValueError(f'{self._file_name} {self._closed_because}')

    def _refuse_when_stopped(self):
        if self._closed:
            raise self._is_closed()
        if self._flusher is not None and self._flusher.pipeline.stopped:
            self._flusher.refuse_when_stopped()

    def _check_transaction(self, transaction, call):
        under_way = self._begun
        if under_way is None or transaction is not under_way.metadata:
            raise StorageTransactionError(
                f'{call} called with a transaction that is not the one in'
                ' progress (it was not begun, or is finished or aborted)')
        return under_way

    @property
    def is_packing(self):
        """It may take its time under the locks of the storage."""
        return self._pack_is_in_progress

    def _no_blobs(self, **options):
        return blobs.Placed(
            self.fshelper, self._durable_directories, **options)

    def tpc_vote(self, transaction):
        """Write the transaction behind the end of the file, unfinished.

        Only the holder of the commit lock writes there, and nobody else reads
        there: this needs no other lock, however long it takes.
        """
        under_way = self._check_transaction(transaction, 'tpc_vote')
        self._refuse_when_stopped()
        try:
            under_way.write(self._file, self._flusher.durable.end)
        except BaseException:
            self._cut_back(under_way)
            raise
        return under_way.resolved

    # What was begun can be taken back

    def _cut_back(self, under_way):
        """Leave nothing behind the end of the file."""
        under_way.end = 0
        self._cut_back_to = self._pos
        try:
            self._file.truncate(self._pos)
        except OSError as error:
            # What stays there could be taken for a transaction.
            self._flusher.stop_writing(
                f'the file could not be cut back to {self._pos} ({error})')

    def tpc_abort(self, transaction):
        with self._lock:
            under_way = self._begun
            if under_way is None or transaction is not under_way.metadata:
                return
            try:
                # Whatever goes wrong, the lock must not be freed twice.
                self._begun = None
                if under_way.end and not self._closed:
                    self._cut_back(under_way)
                if under_way.blobs is not None:
                    under_way.blobs.take_back()
            finally:
                self._commit_lock.release()
        under_way.close()  # it may take its time, and be interrupted

    # From append to acknowledgement

    def tpc_finish(self, transaction, f=None):
        """Append; then return when the policy says so.

        With an AsyncFinish for `f`, return at once.
        """
        under_way = self._check_transaction(transaction, 'tpc_finish')
        if not under_way.end:
            raise StorageTransactionError('tpc_finish called before tpc_vote')
        commit = self._commit(under_way, f)
        try:
            try:
                self._append(under_way, commit)
                if not commit.promised:
                    # Before the next committer may contend for the locks.
                    self._publisher.offer(self._flusher, tell=False)
            finally:
                self._leave(under_way)
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

    def _append(self, under_way, commit):
        """The transaction becomes part of the file."""
        try:
            self._refuse_when_stopped()
            if not commit.status_last:
                self._write_status(commit)
        except BaseException:
            self.tpc_abort(under_way.metadata)  # cuts it off again
            raise
        try:
            self._advance(under_way, commit)
        except WritingStopped as error:
            raise OutcomeUnknown(
                f'{error}. Whether this transaction was kept is known'
                ' then') from error
        except BaseException:  # interrupted: too late to go back
            self._advance(under_way, commit)
            raise

    def _leave(self, under_way):
        """Free the commit lock, if that was not done."""
        with self._lock:  # the next one sets what is cleared here
            if self._begun is under_way:
                # In one line: whoever sees the one sees the other.
                self._begun = self._commit_lock.release()
        under_way.close()  # it may take its time, and be interrupted

    def _commit(self, under_way, f):
        """What the pipeline needs to know of the transaction."""
        policy = self.durability.policy
        commit = Commit(under_way.tid, under_way.start, under_way.end,
                        under_way.status, policy.promises)
        if isinstance(f, AsyncFinish):
            commit.on_publish, commit.on_done = f.publish, f.done
            commit.orphan = True
        else:
            commit.on_publish = f
        if under_way.blobs and policy.name != 'none':
            commit.blobs = under_way.blobs
        sealed = under_way.sealed
        sound = sealed and self._cut_back_to < 0  # nearly always
        if commit.blobs or not sound and self._may_look_whole(sealed):
            # Its status is written when all of it is durable, and whatever
            # the policy, it is acknowledged only then.
            commit.promised = commit.status_last = True
        elif policy.status_last or policy.promises and not sealed:
            commit.status_last = True
        return commit

    def _may_look_whole(self, sealed):
        """Could it, torn by a power cut, be taken for a whole one?

        If seals are expected, and it has none.  Or if parts of an aborted
        transaction may show through: its seal beside our header looks like
        that of a transaction that stock has rewritten.
        """
        if self._flusher.durable.end > self._cut_back_to:
            self._cut_back_to = -1
        return self._checksums and (
            not sealed or self._cut_back_to >= 0)

    def _advance(self, under_way, commit):
        """It is appended.  May be called again when interrupted.

        The index goes first: what is published must be found.  A checkpoint
        takes index and position under the lock, and what it takes must be in
        the pipeline: else it would not be synced before the index counts.
        """
        with self._lock:
            if self._checkpoints.snapshot is not None:
                self._checkpoints.snapshot.about_to_change(under_way.places)
            self._index.update(under_way.places)
            self._pos = commit.end
            if commit.blobs is None and under_way.blobs:  # `none`
                self._unsynced_blobs.add(under_way.blobs)
            under_way.blobs = None  # an abort would take them back
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
