"""What a client stores in one transaction, until its vote.

The methods have the names of ZEO's protocol, and its arguments without the id
of the transaction.  They are called in the event loop, with arguments whose
types were checked (calls).  A blob that arrives in pieces is written to a
file, which belongs to the ballot until all of it is there.  If the rest does
not arrive, the ballot removes the file, in a thread.

An error ends the transaction; but OutOfPlace is the peer's own mistake.
"""

import logging
import os
import tempfile

from ZODB.POSException import StorageTransactionError

from ..commit.blobs import UPLOAD
from ..wire import batch
from .ballot import BEGUN


class OutOfPlace(StorageTransactionError):
    """A call that its transaction does not expect."""


class BadFileName(ValueError):
    """No storage has given this name for a blob."""


class Storing:

    def __init__(self, session, ballot):
        self._session = session
        self._ballot = ballot
        self._storage = ballot.storage
        self._transaction = ballot.transaction

    def _needs_begun(self):
        if self._ballot.state is not BEGUN:
            raise OutOfPlace(f'Already {self._ballot.state}')

    def deleteObject(self, oid, serial):
        self._needs_begun()
        self._ballot.counts(1, 0)
        self._storage.deleteObject(oid, serial, self._transaction)
        self._session.stats.stores += 1

    def storea(self, oid, serial, data):
        self._needs_begun()
        self._ballot.counts(1, len(data))
        self._storage.store(oid, serial, data, '', self._transaction)
        self._session.stats.stores += 1

    def batch(self, message, size):
        """Several stores, in the form of `wire.batch`."""
        self._needs_begun()
        self._ballot.counts(size, len(message))
        for oid, serial, data in batch.stores(message):
            self._storage.store(oid, serial, data, '', self._transaction)
        self._session.stats.stores += size

    def checkCurrentSerialInTransaction(self, oid, serial):
        self._needs_begun()
        self._ballot.counts(1, 0)
        self._storage.checkCurrentSerialInTransaction(
            oid, serial, self._transaction)

    def restorea(self, oid, serial, data, prev_txn):
        self._needs_begun()
        self._ballot.counts(1, len(data or b''))
        self._storage.restore(
            oid, serial, data, '', prev_txn, self._transaction)
        self._session.stats.stores += 1

    def undoa(self, trans_id):
        self._needs_begun()
        self._ballot.counts(1, len(trans_id))
        self._ballot.undoes()
        self._storage.undo_at_vote(trans_id, self._transaction)

    # Blobs

    def storeBlobStart(self):
        if self.has_half_a_blob or self._ballot.state is not BEGUN:
            raise OutOfPlace('storeBlobStart out of order')
        self._ballot.begin_blob(lambda: tempfile.NamedTemporaryFile(
            prefix=UPLOAD, delete=False,
            dir=self._session.storage.temporaryDirectory()))

    def storeBlobChunk(self, chunk):
        self._needs_half_a_blob()
        self._ballot.half_a_blob.write(chunk)

    def _needs_half_a_blob(self):
        self._needs_begun()  # else a thread may be about to remove the file
        if not self.has_half_a_blob:
            raise OutOfPlace('no blob has been started')

    def storeBlobEnd(self, oid, serial, data):
        self._needs_half_a_blob()
        # This raises if something could not be written.
        self._ballot.half_a_blob.close()
        file, self._ballot.half_a_blob = self._ballot.half_a_blob, None
        self._ballot.add_blob(oid, serial, data, file.name)
        self._session.stats.stores += 1

    def storeBlobShared(self, oid, serial, data, filename):
        self._needs_begun()
        # (A file of a name with NUL can neither be found nor removed.)
        if (os.path.sep in filename or '.tmp' not in filename[-5:]
                or not (filename.isascii() and filename.isprintable())):
            self._session.log(f'a bad file name for a blob: {filename!r}',
                              logging.CRITICAL)
            raise BadFileName(filename)
        directory = self._session.storage.fshelper.getPathForOID(oid)
        self._ballot.add_blob(
            oid, serial, data, os.path.join(directory, filename))
        self._session.stats.stores += 1

    @property
    def has_half_a_blob(self):
        return self._ballot.half_a_blob is not None
