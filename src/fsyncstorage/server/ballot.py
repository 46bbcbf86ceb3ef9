"""One client's transaction.

What the client stores is kept in memory, and above a size in a file.  Each
vote gives all of it to the storage: a vote may have to be repeated.  Blob
files, too, are kept until a vote has succeeded: each vote gives the storage a
hard link to them, or a copy where there are no hard links.

Its states, which the event loop owns (the committer changes them)::

    BEGUN      the client stores
    OUTSIDE    its vote waits for room in the storage
    VOTING     the loop or a thread votes it, or it waits for a thread
    WAITING    its vote waits for its objects, or before that for room in the
               log of the storage; no thread is blocked
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

What is stored belongs to the loop; while a thread votes or aborts the ballot,
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
from ZODB.POSException import ConflictError
from ZODB.POSException import StorageError

from .. import datafile
from ..commit import asking
from ..errors import Occupied
from ..errors import Unpublished
from ..errors import Unresolved
from . import chosentids
from .conflicts import Conflicts
from .operations import BATCH
from .operations import Operations
from .times import Timed

# Bytes of a transaction that are kept in memory, and the bytes that are
# counted for each operation in addition to its data.
IN_MEMORY = 1 << 20
OVERHEAD = 300
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
# Bytes that can only be in memory (descriptions, and the records of blobs),
# for all ballots of one client, and for all ballots.
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
        self._committer = committer
        self._begin = () if tid is None and status == ' ' else (tid, status)
        #: The client resolves conflicts itself, so it gets them.
        self._resolves_conflicts = resolves_conflicts
        self._operations = Operations()
        self._size = self._number = 0
        self._blobs = {}  # oid -> (serial, data, file name)
        self._memory_only = 0
        self._has_blobs = self._has_undo = self._is_counted = False
        #: It may have open files: `enter_files` was called.
        self._has_files = False
        #: The storage has all of it.
        self.is_given = False
        #: The storage may have some of it.
        self._is_begun = False
        self._reset()
        self._count_memory_only(length)

    def _reset(self):
        self.oids = []       # changed
        self._resolved = []
        #: Objects whose conflicts the storage has resolved.
        self.conflicts_resolved = 0
        self._conflicts = Conflicts()

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

    def voted(self, loop, timeout):
        self.held_since = time.monotonic()
        self.state = VOTED  # last: another thread may ask how old it is
        self._count_no_more()
        self.files_are_closed()
        if timeout:
            self._timer = loop.call_later(
                timeout, self.client.timed_out, self)

    def over(self):
        self.state = OVER
        self._end_timer()
        # The rest may have to wait for the thread that aborts ballots.
        self._operations.forget()
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

    def add(self, operation, *arguments):
        """Note an operation, named after one of the methods below."""
        size = OVERHEAD
        for each in arguments:
            if each is not None:
                size += len(each)
        self._has_undo |= operation == 'undo'
        self._note(1, size, operation, arguments)

    def add_batch(self, message, count):
        """Note several stores, in the form of `wire.batch`."""
        self._note(
            count, count * OVERHEAD + len(message), BATCH, (message,))

    def _note(self, number, size, operation, arguments):
        if self._number + number > MOST_OPERATIONS:
            raise StorageError(
                f'{self._number + number} stores in one transaction, which may'
                f' have {MOST_OPERATIONS}: commit its work in parts')
        self._number += number
        self._size += size
        self._operations.add(operation, arguments)
        if self._operations.log is not None:
            return
        kept.bytes += size
        self._kept_of_client.bytes += size
        self._is_counted = True
        if (self._size > IN_MEMORY or kept.bytes > IN_MEMORY_OF_ALL
                or self._kept_of_client.bytes > IN_MEMORY_OF_ONE):
            self.want_files()
            self._count_no_more()
            self._operations.move_to_file()

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
                f'descriptions and records of blobs of {of_one} bytes in the'
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
        try:
            if len(data) > MOST_OF_A_BLOB:
                raise StorageError(
                    f'a record of a blob of {len(data)} bytes')
            self._count_memory_only(len(data))
        except StorageError:
            datafile.remove_if_there(file_name)
            raise
        earlier = self._blobs.pop(oid, None)
        if earlier is not None:
            datafile.remove_if_there(earlier[-1])
        self._blobs[oid] = serial, data, file_name
        self._has_blobs = True

    @property
    def weight(self):
        """Bytes that the storage needs for it, at most.

        The storage keeps the data that were stored and the data that resolve
        conflicts: in a file, if they are more than IN_MEMORY.
        """
        size, number = 2 * self._size, 1 + self._number
        if self._has_undo:
            if not self.is_given:
                return OF_AN_UNDO
            size, number = IN_MEMORY, number + len(self.oids)
        return (min(size, IN_MEMORY) + IN_STORAGE * number
                + sum(IN_STORAGE + len(data)
                      for _, data, _ in self._blobs.values()))

    @property
    def is_small(self):
        return (self._size <= SMALL and self._operations.log is None
                and not self._has_blobs and not self._has_undo)

    def is_light(self, storage):
        """Would the vote of a storage of ours neither conflict nor wait?"""
        try:
            return self.is_small and all(
                operation == 'store' and storage.store_is_plain(*arguments[:2])
                for operation, arguments in self._operations)
        except Exception:  # a client's invalid data: the vote will report it
            return False

    # In the loop or in a thread: the vote

    @property
    def has_conflicts(self):
        """Nothing was voted: the client has to resolve conflicts."""
        return bool(self._conflicts)

    def tell_conflicts(self, result):
        self._conflicts = Conflicts()  # its next vote finds them anew
        self.state = BEGUN
        self.tell(result, None)

    def vote_in(self, storage, wait=True, resolve=True):
        """Give everything to the storage and vote: it holds its objects then.

        Return the oids whose conflicts were resolved, or the conflicts that
        the client has to resolve.  A storage of ours raises `Occupied` where
        it would have to wait and `wait` is false, and `Unresolved` where it
        would have to resolve a conflict and `resolve` is false.  The caller
        calls this again later; if `is_given`, the storage still has all of it.
        """
        try:
            if not self.is_given:
                self._give(storage, resolve)
            else:
                _never_wait(storage, self.transaction, resolve)
            if not self._conflicts:
                self._vote(storage, {} if wait else {'wait': False})
        except Occupied:
            raise
        except (Unpublished, Unresolved):
            self.take_back(storage)
            raise
        except BaseException:
            self.take_back(storage)
            self.close()
            raise
        if self._conflicts:
            self.take_back(storage)
            return self._conflicts.told()
        self.close()
        return self._resolved

    def _give(self, storage, resolve):
        if self._begin and self._begin[0] is not None:
            chosentids.check(self._begin[0])
        self._reset()
        self._is_begun = True
        storage.tpc_begin(self.transaction, *self._begin)
        _never_wait(storage, self.transaction, resolve)
        for operation, arguments in self._operations:
            getattr(self, '_' + operation)(storage, *arguments)
        for oid, (serial, data, file_name) in self._blobs.items():
            self._store_blob(storage, oid, serial, data, file_name)
        self.is_given = True

    def take_back(self, storage):
        """Abort it in the storage, if the storage may have some of it.

        (A BlobStorage takes any abort for one of its current transaction, and
        removes the blobs of that transaction.)
        """
        self.is_given = self.has_turn = False
        if self._is_begun:
            self._is_begun = False
            storage.tpc_abort(self.transaction)

    def _vote(self, storage, not_to_wait):
        try:
            resolved = list(storage.tpc_vote(
                self.transaction, **not_to_wait) or ())
        except ConflictError as error:
            stored = self._operations.last_stored(error.oid)
            if stored is None:
                raise
            self._not_stored(error.oid, stored, error)
        else:
            self._resolved += resolved
            self.conflicts_resolved = len(set(resolved))

    def _store(self, storage, oid, serial, data):
        try:
            storage.store(oid, serial, data, '', self.transaction)
        except ConflictError as error:
            self._not_stored(oid, data, error)
        else:
            self._stored(oid)

    def _store_blob(self, storage, oid, serial, data, file_name):
        given = file_name + '.given'
        try:
            datafile.link_or_copy(file_name, given)
            storage.storeBlob(oid, serial, data, given, '', self.transaction)
        except ConflictError as error:
            self._not_stored(oid, data, error)
        else:
            self._stored(oid)
        finally:
            remove_if_possible(given)  # if the storage did not take it

    def _stored(self, oid):
        # The client may have resolved the conflict and stored again.
        self._conflicts.resolved(oid)
        self.oids.append(oid)

    def _not_stored(self, oid, data, error):
        if not (self._resolves_conflicts and error.serials):
            raise error
        self._conflicts.add(oid, data, error)

    def _delete(self, storage, oid, serial):
        storage.deleteObject(oid, serial, self.transaction)
        self.oids.append(oid)

    def _checkread(self, storage, oid, serial):
        storage.checkCurrentSerialInTransaction(oid, serial, self.transaction)

    def _restore(self, storage, oid, serial, data, previous):
        storage.restore(oid, serial, data, '', previous, self.transaction)
        self.oids.append(oid)

    def _undo(self, storage, transaction_id):
        _, oids = storage.undo(transaction_id, self.transaction)
        self.oids += oids
        self._resolved += oids

    def close(self):
        """Remove what was kept: it is voted, or over.  May be repeated."""
        self._operations.close()
        if self.half_a_blob is not None:
            file, self.half_a_blob = self.half_a_blob, None
            with contextlib.suppress(OSError):  # of what is to be written
                file.close()
            remove_if_possible(file.name)
        while self._blobs:
            _, (_, _, file_name) = self._blobs.popitem()
            remove_if_possible(file_name)


def remove_if_possible(file_name):
    """A file that is not needed any more.

    An error here must not fail a vote that has succeeded, nor stop the rest of
    the clean-up.  The next opening of the storage removes what is left.
    """
    with contextlib.suppress(OSError, ValueError):  # of an impossible name
        datafile.remove_if_there(file_name)


def _never_wait(storage, transaction, resolve):
    """Of a storage of ours: see its `never_wait_for_publishing`."""
    never_wait = getattr(storage, 'never_wait_for_publishing', None)
    if never_wait is not None:
        never_wait(transaction, resolve)
