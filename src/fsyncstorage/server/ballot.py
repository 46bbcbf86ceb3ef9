"""One client's transaction, in a storage of ours or in one like it
(oneatatime).

What the client stores goes at once into the storage, and is counted here: in
memory, and above a size in a file.  A vote compares it; if the vote ends
early, the storage still has all of it, and the vote can be repeated.

The transaction belongs to the loop; while a thread votes or aborts the ballot,
it belongs to that thread.  Left to others: when the state changes (committer).

Its session has two methods for it, both called in the loop:

    timed_out(ballot)      it was not finished in time: abort it
    settled(ballot)        it is announced, or its finish has failed
"""

import contextlib
import os
import tempfile
import time

from ZODB.Connection import TransactionMetaData
from ZODB.POSException import StorageError
from ZODB.POSException import StorageTransactionError
from ZODB.TimeStamp import TimeStamp

from .. import datafile
from ..commit import asking
from ..commit.blobs import UPLOAD
from ..errors import ConflictsLeft
from ..errors import Occupied
from ..errors import VoteAgain
from ..storage import outcome
from ..storage.told import ForAClient
from ..wire import frames
from .door import OF_A_TRANSACTION
from .door import Full
from .oneatatime import remove_if_possible

# Bytes of a transaction that are kept in memory, and the bytes that are
# counted for each operation in addition to its data.
IN_MEMORY = 1 << 20
OVERHEAD = 330
# Bytes that an operation takes in the storage, in addition to its data.
IN_STORAGE = 1000
# The same for an undo, of which nobody knows the size: so no other giant is in
# the storage with it.
OF_AN_UNDO = 1 << 40
# Stores and other operations of a transaction.  Each takes up to 370 bytes of
# memory while the storage has it, however small it is: 195 MB in all.
MOST_OPERATIONS = 1 << 19
# Bytes kept in memory for one client's ballots, and for all; the rest goes
# into files.
IN_MEMORY_OF_ONE = 8 << 20
IN_MEMORY_OF_ALL = 64 << 20
# Bytes of the record of a blob.
MOST_OF_A_BLOB = 1 << 20
#: Bytes of a blob that are begun to be written to the disk together, while the
#: rest of it arrives.
WRITTEN_BACK_AT_ONCE = 1 << 20
# Bytes that can only be in memory (descriptions, and the names of blobs), for
# all ballots of one client, and for all ballots.
MEMORY_ONLY_OF_ONE = 16 << 20
MEMORY_ONLY_OF_ALL = 128 << 20
# A transaction up to this size is voted too quickly to be worth a thread.
SMALL = 1 << 15
# So often conflicts are left to the client.  A stock client that has some left
# after its ninth vote finishes what was never voted.
MOST_TIMES_LEFT = 8
# Seconds that an id which the client has chosen may be ahead of the clock.
MOST_AHEAD = 24 * 3600

STATUSES = (' ', 'p')

BEGUN, OUTSIDE, VOTING, WAITING, ASIDE, VOTED, FINISHING, OVER = (
    'begun', 'waiting for room', 'voting', 'waiting for its objects',
    'put aside', 'voted', 'finishing', 'over')

#: What may follow each state.  The event loop owns it.  An abort ends any but
#: FINISHING: at once, or after the step that a thread is carrying out.
NEXT = {
    # The client stores.
    BEGUN: (OUTSIDE, VOTING, OVER),
    # Its vote waits for room in the storage.
    OUTSIDE: (VOTING, OVER),
    # The loop or a thread votes it, or it waits for a thread.  BEGUN: there
    # are conflicts that the client resolves.  OVER: an error.
    VOTING: (WAITING, ASIDE, BEGUN, VOTED, OVER),
    # Its vote waits for its objects; no thread is blocked.
    WAITING: (VOTING, OVER),
    # Its vote conflicts with a transaction that is not published, and waits
    # for that.
    ASIDE: (OUTSIDE, VOTING, OVER),
    # The storage has it: it holds its objects, and its client has
    # `transaction-timeout` to finish it.
    VOTED: (FINISHING, OVER),
    # It is appended, or about to be, and not announced.
    FINISHING: (OVER,),
    OVER: (),
}


class BytesInMemory:
    """Bytes in memory, of some ballots.

    (An attribute of an object, not of a class: changing a class attribute
    clears Python's caches for that class, which costs microseconds.)
    """

    #: What could be put into a file; counted until they are voted or over.
    bytes = 0
    #: What could not; counted until nothing is left of them.
    memory_only = 0


#: Of all ballots.
kept = BytesInMemory()


class Ballot:

    state = BEGUN
    #: It will be aborted as soon as the thread that votes it is done.
    is_dropped = False
    #: The file of a blob of which only a part has arrived.
    half_a_blob = None
    #: So many bytes of it are on their way to the disk.
    _written_back = 0
    has_to_resolve = False  # a conflict: see Unresolved
    #: It was voted and finished by one request: its client cannot abort it.
    is_in_one_trip = False
    #: The outcome of its finish is known, and announced.
    is_settled = False
    #: Its vote was made, and waits for its turn: others wait for it.
    is_asked = False
    #: Of the transaction-timeout; it is started when the ballot is voted.
    timer = None
    #: The line in front of the storage in which it has come (committer).
    room = None
    #: What is called with the outcome; None: nobody waits for it.
    done = None
    #: When its vote was first asked for; when the last step of that began;
    #: when it was voted; and when its finish was asked for.
    asked_at = began_at = held_since = finish_at = None
    #: Objects whose conflicts the storage has resolved.
    conflicts_resolved = 0
    #: How often conflicts were left to the client.
    times_left = 0

    _size = _number = _memory_only = 0
    _has_blobs = _has_undo = _is_counted = _is_spilled = False
    #: It may have open files, which are counted at the door.
    _has_files = False

    def __init__(self, storage, session, id, user, description, extension,
                 tid, status, commit_id=None):
        """`id` is the client's name for it.  `commit_id`: only a client of
        ours has one, and can ask what became of a commit."""
        if status not in STATUSES:
            raise ValueError(f'a transaction of status {status!r}')
        self.storage = storage
        self.session = session
        self.id = id
        self._kept_of_client = session.kept
        self.oids = []       # changed
        # Encoded, so that its bytes can be counted.
        self.transaction = described = TransactionMetaData(
            user, description, asking.encoded(extension))
        length = (len(described.user) + len(described.description)
                  + len(described.extension_bytes))
        asked = asking.asked_in(extension)
        if asked is not None:
            asking.put_beside(described, asked)
            length += asked.size
        if commit_id is not None and tid is None:
            outcome.name(described, commit_id)
        self._count_memory_only(length)
        try:
            if getattr(storage, 'needs_files', False):
                self._want_files()
            if tid is None and status == ' ':
                storage.tpc_begin(described)
            else:
                _refuse_the_future(tid)
                storage.tpc_begin(described, tid, status)
        except BaseException:
            self.forget()
            raise

    # In the loop: what becomes of it

    def becomes(self, state):
        if state not in NEXT[self.state]:
            raise RuntimeError(f'a ballot is {self.state}, and cannot become'
                               f' {state}')
        self.state = state

    def tell(self, result, error):
        done, self.done = self.done, None
        if self.state is FINISHING:
            self.becomes(OVER)
        if done is not None:
            done(result, error)

    def end_timer(self):
        self.timer.cancel()
        self.timer = None

    def forget(self):
        """Nothing is left of it.  May be repeated."""
        self._kept_of_client.memory_only -= self._memory_only
        kept.memory_only -= self._memory_only
        self._memory_only = 0
        if self._has_files:
            self._has_files = False
            self.session.server.door.leave(self)

    # In the loop: what the client stores.  The methods have the names of ZEO's
    # protocol, and its arguments without the id of the transaction; their
    # types were checked.

    def deleteObject(self, oid, serial):
        self._count(1, 0)
        self.storage.deleteObject(oid, serial, self.transaction)
        self.session.stats.stores += 1

    def storea(self, oid, serial, data):
        self._count(1, len(data))
        self.storage.store(oid, serial, data, '', self.transaction)
        self.session.stats.stores += 1

    def batch(self, message, number):
        """So many stores, in the form of `frames.many`."""
        self._count(number, len(message))
        for oid, serial, data in frames.each_store(message):
            self.storage.store(oid, serial, data, '', self.transaction)
        self.session.stats.stores += number

    def checkCurrentSerialInTransaction(self, oid, serial):
        self._count(1, 0)
        self.storage.checkCurrentSerialInTransaction(
            oid, serial, self.transaction)

    def restorea(self, oid, serial, data, prev_txn):
        self._count(1, len(data or b''))
        self.storage.restore(
            oid, serial, data, '', prev_txn, self.transaction)
        self.session.stats.stores += 1

    def undoa(self, trans_id):
        self._count(1, len(trans_id))
        self._has_undo = True
        self.storage.undo_at_vote(trans_id, self.transaction)

    # A blob that arrives in pieces is written to a file.  If the rest does not
    # arrive, a thread removes the file.

    def storeBlobStart(self):
        if self.half_a_blob is not None:
            raise StorageTransactionError('a blob within a blob')
        self._want_files()
        self._has_blobs = True
        self.half_a_blob = tempfile.NamedTemporaryFile(
            prefix=UPLOAD, delete=False, dir=self.storage.temporaryDirectory())
        self._written_back = 0

    def storeBlobChunk(self, chunk):
        self._needs_half_a_blob()
        self.half_a_blob.write(chunk)
        end = self.half_a_blob.tell()
        if end - self._written_back >= WRITTEN_BACK_AT_ONCE:
            datafile.disk.begin_to_write_back(
                self.half_a_blob.fileno(), self._written_back, end)
            self._written_back = end

    def storeBlobEnd(self, oid, serial, data):
        self._needs_half_a_blob()
        # This raises if something could not be written.
        self.half_a_blob.close()
        file, self.half_a_blob = self.half_a_blob, None
        self._add_blob(oid, serial, data, file.name)

    def _needs_half_a_blob(self):
        if self.half_a_blob is None:
            raise StorageTransactionError('no blob has been started')

    def storeBlobShared(self, oid, serial, data, filename):
        # (A file of a name with NUL can neither be found nor removed.)
        if (os.path.sep in filename or '.tmp' not in filename[-5:]
                or not (filename.isascii() and filename.isprintable())):
            raise ValueError(f'a bad file name for a blob: {filename!r}')
        directory = self.storage.fshelper.getPathForOID(oid)
        self._add_blob(oid, serial, data, os.path.join(directory, filename))

    def _add_blob(self, oid, serial, data, file_name):
        """The file belongs to the storage from now on."""
        self._has_blobs = True
        try:
            if len(data) > MOST_OF_A_BLOB:
                raise StorageError(
                    f'a record of a blob of {len(data)} bytes')
            self._count_memory_only(len(file_name))
            self._count(1, len(data))
            self.storage.storeBlob(
                oid, serial, data, file_name, '', self.transaction)
        except BaseException:
            remove_if_possible(file_name)
            raise
        self.session.stats.stores += 1

    # In the loop: how much that is

    def _count(self, number, size):
        """So many operations, of so many bytes, are about to be stored."""
        if self._number + number > MOST_OPERATIONS:
            raise StorageError(
                f'{self._number + number} stores in one transaction, which may'
                f' have {MOST_OPERATIONS}: commit its work in parts')
        size += OVERHEAD * number
        self._number += number
        self._size += size
        if self._is_spilled:
            return
        kept.bytes += size
        self._kept_of_client.bytes += size
        self._is_counted = True
        if (self._size > IN_MEMORY or kept.bytes > IN_MEMORY_OF_ALL
                or self._kept_of_client.bytes > IN_MEMORY_OF_ONE):
            self._want_files()
            self.count_no_more()
            self._is_spilled = True
            self.storage.spill(self.transaction)

    def count_no_more(self):
        """What it has stored is counted by its weight now, or not at all."""
        if self._is_counted:
            self._is_counted = False
            kept.bytes -= self._size
            self._kept_of_client.bytes -= self._size

    def _count_memory_only(self, size):
        """Count these bytes; raise if that were too much in memory."""
        size += OVERHEAD
        of_one = self._kept_of_client.memory_only + size
        of_all = kept.memory_only + size
        if of_one > MEMORY_ONLY_OF_ONE or of_all > MEMORY_ONLY_OF_ALL:
            raise StorageError(
                f'descriptions and names of blobs of {of_one} bytes in the'
                f' transactions of this client, {of_all} in those of all')
        self._kept_of_client.memory_only = of_one
        kept.memory_only = of_all
        self._memory_only += size

    def _want_files(self):
        """Called before it opens a file."""
        if not self._has_files:
            try:
                self.session.server.door.stay(self, OF_A_TRANSACTION)
            except Full:
                raise StorageTransactionError(
                    'the server has no descriptors left for the files of a'
                    ' large transaction, or of one with blobs') from None
            self._has_files = True

    @property
    def weight(self):
        """Bytes that the storage needs for it, at most.

        The storage keeps the data that were stored and the data that resolve
        conflicts: in a file, if they are more than IN_MEMORY.
        """
        if self._has_undo:
            return OF_AN_UNDO
        return min(2 * self._size, IN_MEMORY) + IN_STORAGE * (1 + self._number)

    @property
    def is_small(self):
        return not (self._size > SMALL or self._is_spilled
                    or self._has_blobs or self._has_undo)

    @property
    def may_have_blobs(self):
        return self._has_blobs or self._has_undo

    def is_light(self):
        """Would the vote of a storage of ours neither conflict nor wait?"""
        try:
            return self.is_small and self.storage.vote_is_plain(
                self.transaction)
        except Exception:  # the vote will report it
            return False

    # In the loop or in a thread: the vote

    def vote(self, resolve):
        """Vote: it holds its objects then.

        Return the oids whose conflicts were resolved.  A storage of ours
        raises `Occupied` where it would have to wait for its turn; and
        `VoteAgain`, after which it holds nothing.  The caller calls this again
        later.
        """
        leaves_conflicts = (
            self.session.client_conflict_resolution
            and self.times_left < MOST_TIMES_LEFT)
        try:
            resolved = list(self.storage.tpc_vote(
                self.transaction, False,
                ForAClient(resolve, leaves_conflicts)))
        except Occupied:
            self.is_asked = True
            raise
        except VoteAgain as early:
            self.times_left += isinstance(early, ConflictsLeft)
            self.is_asked = False
            if self._is_spilled:
                self.storage.spill(self.transaction)
            raise
        except BaseException:
            self.withdraw()
            raise
        if self.half_a_blob is not None:
            self._remove_half_a_blob()
        self.oids = self.storage.changed_oids(self.transaction)
        self.conflicts_resolved = len(set(resolved))
        if self._has_undo:
            resolved += self.oids  # its client has none of what they are now
        return resolved

    def withdraw(self):
        """Abort it in the storage.  May be repeated."""
        self.is_asked = False
        try:
            self.storage.tpc_abort(self.transaction)
        finally:
            if self.half_a_blob is not None:
                self._remove_half_a_blob()

    def _remove_half_a_blob(self):
        file, self.half_a_blob = self.half_a_blob, None
        with contextlib.suppress(OSError):  # of what is to be written
            file.close()
        remove_if_possible(file.name)


def _refuse_the_future(tid):
    """Of an id that a client has chosen, to copy a database.

    Every later id must be greater.  So after an id from the far future, ids no
    longer tell the time, and after the greatest possible id no other can
    follow.
    """
    limit = TimeStamp(*time.gmtime(time.time() + MOST_AHEAD)[:6]).raw()
    if tid is not None and tid > limit:
        raise StorageTransactionError(
            f'the transaction id {tid.hex()} is more than'
            f' {MOST_AHEAD // 3600} hours ahead of the clock of this server;'
            ' every later commit would need a greater one. (To copy a database'
            ' that has such ids, use the process that has it open)')
