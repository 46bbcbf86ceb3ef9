"""A storage that is not ours, or one in a wrapper with a vote of its own.

Such a storage has one transaction at a time.  So what clients store is kept
here, in a file, and the vote gives it to the storage; the committer makes one
vote at a time, and the next one when that transaction has ended.  A vote that
fails aborts all of that: it can be made again.

To the committer this is like a storage of ours, but for `wait`: nothing is
waited for here.
"""

import contextlib

from ZODB.POSException import ConflictError
from ZODB.POSException import StorageError
from ZODB.utils import z64

from .. import datafile
from ..errors import ConflictsLeft
from ..format.view import serial_or_none
from ..storage.spool import READ
from ..storage.spool import RESTORE
from ..storage.spool import STORE
from ..storage.spool import UNDO
from ..storage.spool import Spool
from ..storage.told import ForAClient


class _Transaction:

    def __init__(self, begin):
        self.begin = begin  # the arguments of `tpc_begin`
        self.oids = []      # that it changes
        self.blobs = {}     # oid -> file name
        #: The storage may have some of it.
        self.is_given = False
        self.spool = Spool()

    def data(self, entry):
        return self.spool.read(entry.data) if entry.length else b''

    def close(self):
        self.spool.close()
        for file_name in self.blobs.values():
            remove_if_possible(file_name)


class OneAtATime:

    #: Each transaction has a file from its begin on.
    needs_files = True

    def __init__(self, storage):
        self._storage = storage
        self._begun = {}  # the caller's object -> _Transaction

    def __getattr__(self, name):
        return getattr(self._storage, name)

    def tpc_begin(self, transaction, *begin):
        self._begun[transaction] = _Transaction(begin)

    # What a client stores

    def store(self, oid, serial, data, version, transaction):
        self._begun[transaction].spool.add(
            STORE, oid, serial_or_none(serial), data=_not_empty(data))

    def deleteObject(self, oid, serial, transaction):
        self._begun[transaction].spool.add(STORE, oid, serial)

    def checkCurrentSerialInTransaction(self, oid, serial, transaction):
        self._begun[transaction].spool.add(READ, oid, serial)

    def restore(self, oid, serial, data, version, previous, transaction):
        self._begun[transaction].spool.add(
            RESTORE, oid, serial, previous or z64, data or b'')

    def undo_at_vote(self, transaction_id, transaction):
        self._begun[transaction].spool.add(UNDO, data=transaction_id)

    def storeBlob(self, oid, serial, data, file_name, version, transaction):
        _not_empty(data)
        under_way = self._begun[transaction]
        earlier = under_way.blobs.pop(oid, None)
        if earlier is not None:
            datafile.remove_if_there(earlier)
        under_way.blobs[oid] = file_name
        under_way.spool.add(STORE, oid, serial_or_none(serial), data=data)

    def spill(self, transaction):
        """All of it is in a file already."""

    def changed_oids(self, transaction):
        return self._begun[transaction].oids

    # The vote, and the end

    def tpc_vote(self, transaction, wait=True, client=None):
        under_way = self._begun[transaction]
        client = client or ForAClient()
        try:
            under_way.oids = []
            under_way.is_given = True
            self._storage.tpc_begin(transaction, *under_way.begin)
            self._give(transaction, under_way, client)
            resolved = self._vote(transaction, under_way, client)
            if client.conflicts:
                raise ConflictsLeft(client.conflicts)
            return resolved
        except BaseException:
            self._abort(transaction, under_way)
            raise

    def _give(self, transaction, under_way, client):
        last = {entry.oid: number for number, entry
                in enumerate(under_way.spool.entries()) if entry.kind == STORE}
        for number, entry in enumerate(under_way.spool.entries()):
            if entry.kind != STORE:
                self._give_one(transaction, under_way, entry)
            elif number == last[entry.oid]:
                try:
                    self._store(transaction, under_way, entry)
                except ConflictError as error:
                    self._leave(under_way, entry, error, client)

    def _give_one(self, transaction, under_way, entry):
        if entry.kind == READ:
            self._storage.checkCurrentSerialInTransaction(
                entry.oid, entry.serial, transaction)
        elif entry.kind == UNDO:
            _, oids = self._storage.undo(under_way.data(entry), transaction)
            under_way.oids += oids
        else:
            self._storage.restore(
                entry.oid, entry.serial, under_way.data(entry) or None, '',
                None if entry.other == z64 else entry.other, transaction)
            under_way.oids.append(entry.oid)

    def _store(self, transaction, under_way, entry):
        oid, serial, data = entry.oid, entry.serial, under_way.data(entry)
        if not data:
            self._storage.deleteObject(oid, serial, transaction)
        elif oid in under_way.blobs:
            self._store_blob(
                oid, serial, data, under_way.blobs[oid], transaction)
        else:
            self._storage.store(oid, serial, data, '', transaction)
        under_way.oids.append(oid)

    def _store_blob(self, oid, serial, data, file_name, transaction):
        """The file stays: the vote may have to be made again."""
        given = file_name + '.given'
        try:
            datafile.link_or_copy(file_name, given)
            self._storage.storeBlob(oid, serial, data, given, '', transaction)
        finally:
            remove_if_possible(given)  # if the storage did not take it

    @staticmethod
    def _leave(under_way, entry, error, client):
        data = under_way.data(entry)
        if not data:  # a deletion
            raise error
        client.leave(entry.oid, data, error)

    def _vote(self, transaction, under_way, client):
        if client.conflicts:
            return []
        try:
            return list(self._storage.tpc_vote(transaction) or ())
        except ConflictError as error:
            for entry in reversed(list(under_way.spool.entries())):
                if entry.kind == STORE and entry.oid == error.oid:
                    self._leave(under_way, entry, error, client)
                    return []
            raise

    def _abort(self, transaction, under_way):
        """Abort what the storage has of it.

        (A BlobStorage takes any abort for one of its current transaction,
        and removes the blobs of that transaction.)"""
        if under_way.is_given:
            under_way.is_given = False
            self._storage.tpc_abort(transaction)

    def tpc_finish(self, transaction, f=None):
        tid = self._storage.tpc_finish(transaction, f)
        self._begun.pop(transaction).close()
        return tid

    def tpc_abort(self, transaction):
        under_way = self._begun.get(transaction)
        if under_way is not None:
            try:
                self._abort(transaction, under_way)
            finally:
                del self._begun[transaction]
                under_way.close()


def _not_empty(data):
    """Here no data are a deletion; and a FileStorage would be damaged."""
    if not data:
        raise StorageError('a record without data')
    return data


def remove_if_possible(file_name):
    """A file that is not needed any more.

    An error here must not fail a vote that has succeeded, nor stop the rest of
    the clean-up.  The next opening of the storage removes what is left.
    """
    with contextlib.suppress(OSError, ValueError):  # of an impossible name
        datafile.remove_if_there(file_name)
