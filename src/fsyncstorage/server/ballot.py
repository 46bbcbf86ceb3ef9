"""One client's transaction, from its begin until it is voted.

What the client stores is kept in memory, and above a size in a file.  It is
given to the storage when the vote has its turn, and again when the vote has to
be repeated.  Blob files are kept until the transaction is over: each vote
gives the storage a hard link to them, or a copy where there are no hard links.

A ballot belongs to the event loop until the vote is asked for, and again while
the client resolves conflicts; else to the committer.  `abandoned` may be set
at any time.
"""

import time

from ZEO.StorageServer import CommitLog
from ZODB.Connection import TransactionMetaData
from ZODB.POSException import ConflictError
from ZODB.POSException import StorageError
from ZODB.POSException import StorageTransactionError
from ZODB.TimeStamp import TimeStamp

from .. import datafile

# Bytes of a transaction that are kept in memory, and the bytes that are
# counted for each operation in addition to its data.
IN_MEMORY = 1 << 20
OVERHEAD = 300
# The same for all ballots together: above it, each is kept in a file.
IN_MEMORY_OF_ALL = 64 << 20
# Bytes of the record of a blob, which is always kept in memory.
MOST_OF_A_BLOB = 1 << 20
# A transaction up to this size is voted too quickly to be worth a thread.
SMALL = 1 << 15
# A client may choose the id of its transaction, at most this many seconds
# ahead of the clock.  Every later id must be greater: after one from the far
# future, ids no longer tell the time, and after the greatest there is none.
MOST_AHEAD = 24 * 3600


class _Kept:
    """Bytes in memory, of all ballots that still belong to a client.

    (An attribute of an object, not of a class: changing a class attribute
    clears Python's caches for that class, which costs microseconds.)
    """

    bytes = 0


kept = _Kept()


class Ballot:

    #: The client is gone or was too slow: it does not wait for the outcome.
    abandoned = False

    def __init__(self, session, id, user, description, extension, tid, status,
                 resolves_conflicts):
        self.session = session
        self.transaction = TransactionMetaData(user, description, extension)
        self.transaction.id = id
        self._begin = () if tid is None and status == ' ' else (tid, status)
        #: The client resolves conflicts itself: it is told of them.
        self._resolves_conflicts = resolves_conflicts
        self._operations = []
        self._size = 0
        self._log = None
        self._blobs = {}  # oid -> (serial, data, file name)
        self._reset()

    def _reset(self):
        self.oids = []       # changed
        self._resolved = []
        self._conflicts = {}

    # In the loop: what the client stores

    def add(self, operation, *arguments):
        """Note an operation, named after one of the methods below."""
        if self._log is not None:
            getattr(self._log, operation)(*arguments)
            return
        self._operations.append((operation, arguments))
        size = OVERHEAD + sum(
            len(each) for each in arguments if each is not None)
        self._size += size
        kept.bytes += size
        if (self._size > IN_MEMORY
                or kept.bytes > IN_MEMORY_OF_ALL):
            self.forgotten()
            self._log = CommitLog()
            for operation, arguments in self._operations:
                getattr(self._log, operation)(*arguments)
            self._operations = []

    def forgotten(self):
        """The ballot no longer belongs to its client."""
        if self._log is None:
            kept.bytes -= self._size

    def add_blob(self, oid, serial, data, file_name):
        if len(data) > MOST_OF_A_BLOB:
            datafile.remove_if_there(file_name)
            raise StorageError(f'a record of a blob of {len(data)} bytes')
        earlier = self._blobs.pop(oid, None)
        if earlier is not None:
            datafile.remove_if_there(earlier[-1])
        self._blobs[oid] = serial, data, file_name

    # In the committer: the vote

    @property
    def is_small(self):
        return self._size <= SMALL and not self._blobs

    def is_light(self, storage):
        """Would the vote of a storage of ours neither conflict nor wait?"""
        return self.is_small and all(
            operation == 'store' and storage.store_is_plain(*arguments[:2])
            for operation, arguments in self._operations)

    def vote(self, storage, wait=True):
        """Give everything to the storage and vote: it holds its objects then.

        Return the oids whose conflicts were resolved, and the conflicts that
        the client has to resolve; if there are any, nothing was voted.
        Without `wait`, a storage of ours raises `Occupied` if it had to wait.
        """
        if self._begin:
            _refuse_far_future(self._begin[0])
        self._reset()
        storage.tpc_begin(self.transaction, *self._begin)
        try:
            for operation, arguments in self._each_operation():
                getattr(self, '_' + operation)(storage, *arguments)
            for oid, (serial, data, file_name) in self._blobs.items():
                self._store_blob(storage, oid, serial, data, file_name)
            if not self._conflicts:
                self._vote(storage, {} if wait else {'wait': False})
        except BaseException:
            storage.tpc_abort(self.transaction)
            raise
        if self._conflicts:
            storage.tpc_abort(self.transaction)
        return self._resolved, list(self._conflicts.values())

    def _each_operation(self):
        if self._log is None:
            yield from self._operations
        else:
            for name, arguments in self._log:
                yield name.removeprefix('_'), arguments

    def _vote(self, storage, not_to_wait):
        try:
            self._resolved += storage.tpc_vote(
                self.transaction, **not_to_wait) or ()
        except ConflictError as error:
            if not (self._resolves_conflicts and error.oid
                    and error.serials and error.data):
                raise
            self._note_conflict(error.oid, error, error.data)

    def _note_conflict(self, oid, error, data):
        self._conflicts[oid] = dict(oid=oid, serials=error.serials, data=data)

    def _store(self, storage, oid, serial, data):
        self._try_to_store(oid, data, storage.store, oid, serial, data, '')

    def _store_blob(self, storage, oid, serial, data, file_name):
        given = file_name + '.given'
        try:
            datafile.link_or_copy(file_name, given)
            self._try_to_store(oid, data, storage.storeBlob,
                               oid, serial, data, given, '')
        finally:
            datafile.remove_if_there(given)  # the storage did not take it

    def _try_to_store(self, oid, data, store, *arguments):
        try:
            store(*arguments, self.transaction)
        except ConflictError as error:
            if not (self._resolves_conflicts and error.serials):
                raise
            self._note_conflict(oid, error, data)
        else:
            # The client has resolved the conflict and stores again.
            self._conflicts.pop(oid, None)
            self.oids.append(oid)

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
        """The transaction is over: remove what was kept.  May be repeated."""
        if self._log is not None:
            self._log.close()
        while self._blobs:
            _, (_, _, file_name) = self._blobs.popitem()
            datafile.remove_if_there(file_name)


def _refuse_far_future(tid):
    limit = TimeStamp(*time.gmtime(time.time() + MOST_AHEAD)[:6]).raw()
    if tid is not None and tid > limit:
        raise StorageTransactionError(
            f'the transaction id {tid.hex()} is more than'
            f' {MOST_AHEAD // 3600} hours ahead of the clock of this server;'
            ' every later commit would need a greater one. (To copy a database'
            ' that has such ids, use the process that has it open)')
