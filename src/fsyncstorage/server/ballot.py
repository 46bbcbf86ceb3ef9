"""One client's transaction, in a storage of ours or in one like it
(oneatatime).

What the client stores goes at once into the storage, and is counted here: in
memory, and above a size in a file.  A vote compares it; if the vote ends
early, the storage still has all of it, and the vote can be repeated.

Its states, which the event loop owns (the committer changes them)::

    BEGUN      the client stores
    OUTSIDE    its vote waits for room in the storage
    VOTING     the loop or a thread votes it, or it waits for a thread
    WAITING    its vote waits for its objects; no thread is blocked
    ASIDE      its vote waits for a transaction to be published
    VOTED      the storage has it: it holds its objects, and its client has
               `transaction-timeout` to finish it
    FINISHING  it is appended, or about to be, and not announced
    OVER

    BEGUN -> OUTSIDE -> VOTING -> VOTED -> FINISHING -> OVER
    VOTING -> WAITING -> VOTING     its objects were not free
    VOTING -> ASIDE -> OUTSIDE      a conflict with what is not published
    VOTING -> BEGUN                 conflicts that the client resolves
    VOTING -> OVER                  an error
    any but FINISHING -> OVER       an abort (at once, or after the step that
                                    a thread is carrying out)

The transaction belongs to the loop; while a thread votes or aborts the ballot,
it belongs to that thread.

The client is a session, or a transaction of a commit channel.  It has a
`log_label`, a `commit_id`, the `session` that it belongs to (whose `kept`
counts the bytes of its ballots), and four methods, all called in the loop:

    timed_out(ballot)      it was not finished in time: it aborts the ballot
    finished(tid)          it is published; if tid is None, its finish failed
    enter_files(ballot)    it is about to open its first file; may raise
    files_closed(ballot)   all of its files are closed
"""

import contextlib
import time

from ZODB.Connection import TransactionMetaData
from ZODB.POSException import StorageError

from ..commit import asking
from ..errors import Occupied
from ..errors import VoteAgain
from ..storage import outcome
from ..storage.told import ForAClient
from . import chosentids
from .oneatatime import remove_if_possible
from .times import Timed

# Bytes of a transaction that are kept in memory, and the bytes that are
# counted for each operation in addition to its data.
IN_MEMORY = 1 << 20
OVERHEAD = 330
# Bytes that an operation takes in the storage, in addition to its data.
IN_STORAGE = 1000
# The same for an undo: its size is unknown until the storage has it.  So until
# then it is in the storage alone.
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
# Bytes that can only be in memory (descriptions, and the names of blobs), for
# all ballots of one client, and for all ballots.
MEMORY_ONLY_OF_ONE = 16 << 20
MEMORY_ONLY_OF_ALL = 128 << 20
# A transaction up to this size is voted too quickly to be worth a thread.
SMALL = 1 << 15

BEGUN, OUTSIDE, VOTING, WAITING, ASIDE, VOTED, FINISHING, OVER = (
    'begun', 'waiting for room', 'voting', 'waiting for its objects',
    'put aside', 'voted', 'finishing', 'over')


class Kept:
    """Bytes in memory, of some ballots.

    (An attribute of an object, not of a class: changing a class attribute
    clears Python's caches for that class, which costs microseconds.)
    """

    #: What could be put into a file; counted until they are voted or over.
    bytes = 0
    #: What could not; counted until nothing is left of them.
    memory_only = 0


#: Of all ballots.
kept = Kept()


class Ballot(Timed):

    state = BEGUN
    #: It will be aborted as soon as the thread that votes it is done.
    aborted = False
    #: The file of a blob of which only a part has arrived.
    half_a_blob = None
    #: It has had its turn in the storage: its next vote may block a thread.
    has_turn = False
    has_to_resolve = False  # a conflict: see Unresolved
    #: Of the transaction-timeout; it is started when the ballot is voted.
    _timer = None
    #: What is called with the outcome; None: nobody waits for it.
    _done = None

    def __init__(self, committer, client, id, user, description, extension,
                 tid, status, resolves_conflicts):
        self.client = client
        self._kept_of_client = client.session.kept
        # Encoded, so that its bytes can be counted.
        self.transaction = described = TransactionMetaData(
            user, description, asking.encoded(extension))
        described.id = id
        length = (len(described.user) + len(described.description)
                  + len(described.extension_bytes))
        asked = asking.asked_in(extension)
        if asked is not None:
            asking.put_beside(described, asked)
            length += asked.size
        if client.commit_id is not None and tid is None:
            outcome.name(described, client.commit_id)
        self._committer = committer
        self.storage = committer.storage
        #: The client resolves conflicts itself, so it gets them.
        self._leaves_conflicts = resolves_conflicts
        self._size = self._number = 0
        self._memory_only = 0
        self._has_blobs = self._has_undo = self._is_counted = False
        self._is_spilled = False
        #: It may have open files: `enter_files` was called.
        self._has_files = False
        #: Its vote was made, and waits for its turn: others wait for it.
        self.is_asked = False
        self.oids = []       # changed
        #: Objects whose conflicts the storage has resolved.
        self.conflicts_resolved = 0
        self._count_memory_only(length)
        try:
            if tid is not None:
                chosentids.check(tid)
            self.storage.tpc_begin(
                described, *(() if tid is None and status == ' '
                             else (tid, status)))
        except BaseException:
            self._give_back_memory_only()
            raise

    # In the loop: what the client asks for

    def vote(self, done):
        """Call `done(result, error)`, perhaps before this returns.

        The result has the oids whose conflicts were resolved; or, if the state
        is BEGUN again, the conflicts that the client has to resolve.
        """
        self._done = done
        self._committer.vote(self)

    def finish(self, done):
        """Call `done(tid, error)`, perhaps before this returns.

        If there is a tid, the call is made while that transaction is
        announced, in the place of the invalidation for this client.
        """
        self._end_timer()
        self._done = done
        self._committer.finish(self)

    def abort(self):
        """End it, unless it is finishing; `done` is not called any more."""
        self._done = None
        self._committer.abort(self)

    # In the loop: what becomes of it

    @property
    def is_awaited(self):
        return self._done is not None

    def tell(self, result, error):
        done, self._done = self._done, None
        if self.state is FINISHING:
            self.state = OVER
        if done is not None:
            done(result, error)

    def tell_conflicts(self, conflicts):
        """The client has to resolve them; its next vote finds others."""
        self.state = BEGUN
        self.tell(conflicts, None)

    def voted(self, loop, timeout):
        self.held_since = time.monotonic()
        self.state = VOTED  # last: another thread may ask how old it is
        self._count_no_more()
        if timeout:
            self._timer = loop.call_later(
                timeout, self.client.timed_out, self)

    def over(self):
        self.state = OVER
        self._end_timer()
        self._count_no_more()

    def _end_timer(self):
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def is_forgotten(self):
        """Nothing is left of it."""
        self._give_back_memory_only()
        self.files_are_closed()

    def want_files(self):
        """Called before it opens a file; the client may raise to refuse."""
        if not self._has_files:
            self.client.enter_files(self)
            self._has_files = True

    def files_are_closed(self):
        if self._has_files:
            self._has_files = False
            self.client.files_closed(self)

    # In the loop: what the client stores

    def counts(self, number, size):
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
            self.want_files()
            self._count_no_more()
            self._is_spilled = True
            self.storage.spill(self.transaction)

    def undoes(self):
        self._has_undo = True

    def _count_no_more(self):
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

    def _give_back_memory_only(self):
        self._kept_of_client.memory_only -= self._memory_only
        kept.memory_only -= self._memory_only
        self._memory_only = 0

    def begin_blob(self, open_file):
        self.want_files()
        self._has_blobs = True  # a thread removes the file
        self.half_a_blob = open_file()

    def add_blob(self, oid, serial, data, file_name):
        """The file belongs to the storage from now on."""
        self._has_blobs = True
        try:
            if len(data) > MOST_OF_A_BLOB:
                raise StorageError(
                    f'a record of a blob of {len(data)} bytes')
            self._count_memory_only(len(file_name))
            self.counts(1, len(data))
            self.storage.storeBlob(
                oid, serial, data, file_name, '', self.transaction)
        except BaseException:
            remove_if_possible(file_name)
            raise

    @property
    def weight(self):
        """Bytes that the storage needs for it, at most.

        The storage keeps the data that were stored and the data that resolve
        conflicts: in a file, if they are more than IN_MEMORY.
        """
        size, number = 2 * self._size, 1 + self._number
        if self._has_undo:
            if not self.is_asked:
                return OF_AN_UNDO
            size, number = IN_MEMORY, number + len(self.oids)
        return min(size, IN_MEMORY) + IN_STORAGE * number

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

    def vote_in(self, wait=True, resolve=True):
        """Vote: it holds its objects then.

        Return the oids whose conflicts were resolved.  A storage of ours
        raises `Occupied` where it would have to wait and `wait` is false; and
        `VoteAgain`, after which it holds nothing.  The caller calls this again
        later.
        """
        try:
            resolved = list(self.storage.tpc_vote(
                self.transaction, wait,
                ForAClient(resolve, self._leaves_conflicts)))
        except Occupied:
            self.is_asked = True
            raise
        except VoteAgain:
            self.is_asked = self.has_turn = False
            if self._is_spilled:
                self.storage.spill(self.transaction)
            raise
        except BaseException:
            self.take_back()
            raise
        self._remove_half_a_blob()
        self.oids = self.storage.changed_oids(self.transaction)
        self.conflicts_resolved = len(set(resolved))
        if self._has_undo:
            resolved += self.storage.undone_oids(self.transaction)
        return resolved

    def take_back(self):
        """Abort it in the storage.  May be repeated."""
        self.is_asked = self.has_turn = False
        try:
            self.storage.tpc_abort(self.transaction)
        finally:
            self._remove_half_a_blob()

    def _remove_half_a_blob(self):
        if self.half_a_blob is not None:
            file, self.half_a_blob = self.half_a_blob, None
            with contextlib.suppress(OSError):  # of what is to be written
                file.close()
            remove_if_possible(file.name)
