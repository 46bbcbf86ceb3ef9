"""One client's transaction, from its begin until it is voted.

What the client stores is kept in memory, and from a size on in a file; it is
brought to the storage when the vote has its turn, and once more when the vote
has to be repeated.  Blob files are kept until all is over: the storage gets a
second name of them each time, or a copy where there are no hard links.

Whose it is: the event loop's until the vote is asked for, and again when the
client has to resolve conflicts; else the committer's.  `abandoned` may always
be set.
"""

import time

from ZEO.StorageServer import CommitLog
from ZODB.Connection import TransactionMetaData
from ZODB.POSException import ConflictError
from ZODB.POSException import StorageError
from ZODB.POSException import StorageTransactionError
from ZODB.TimeStamp import TimeStamp

from .. import datafile

# Bytes of a transaction that are kept in memory, and of each operation those
# that are not data.
IN_MEMORY = 1 << 20
OVERHEAD = 300
# The same of all ballots together: from there on, each is kept in a file.
IN_MEMORY_OF_ALL = 64 << 20
# Bytes of the record of a blob, which is always kept in memory.
MOST_OF_A_BLOB = 1 << 20
# Up to this size it takes no time worth a thread.
SMALL = 1 << 15
# A client may give its transaction an id: so many seconds ahead of the clock.
# Every later one must be greater: after one of the far future, clocks mean
# nothing any more, and after the last there is none.
MOST_AHEAD = 24 * 3600


class _Kept:
    """Bytes in memory, of all ballots whose client still has to do with them.

    (Of an object, not of a class: what changes in a class makes Python forget
    what it knows of it, which costs microseconds.)
    """

    bytes = 0


kept = _Kept()


class Ballot:

    #: The client is gone, or was too slow: nobody waits for the outcome.
    abandoned = False

    def __init__(self, session, id, user, description, extension, tid, status,
                 resolves_conflicts):
        self.session = session
        self.transaction = TransactionMetaData(user, description, extension)
        self.transaction.id = id
        self._begin = () if tid is None and status == ' ' else (tid, status)
        #: The client resolves conflicts: tell it of them, and let it go on.
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
        """Note an operation; its name is that of a method below."""
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
        """Its client has nothing to do with it any more."""
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
        """Bring all to the storage, where it holds its objects then.

        Return the oids whose conflicts were resolved, and the conflicts that
        the client has to resolve; if there are any, nothing was voted.  A
        storage of ours can be asked not to wait for its turn: `Occupied`.
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
            datafile.remove_if_there(given)  # it was not taken

    def _try_to_store(self, oid, data, store, *arguments):
        try:
            store(*arguments, self.transaction)
        except ConflictError as error:
            if not (self._resolves_conflicts and error.serials):
                raise
            self._note_conflict(oid, error, data)
        else:
            # Stored once more by a client that has resolved its conflict.
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
        """All is over: remove what was kept, if it was not done yet."""
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
            ' every later commit would need a greater one. (A database that'
            ' has such ids can be copied by the process that has it open)')
