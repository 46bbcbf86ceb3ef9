"""What a client stores in one transaction, until its vote.

The methods have the names of ZEO's protocol, and its arguments without the id
of the transaction.  They are called in the event loop, with arguments whose
types were checked (calls).  A blob that arrives in pieces is written to a
file, which belongs to the ballot.  If the rest does not arrive, the ballot
removes the file, in a thread.
"""

import logging
import os
import tempfile

from ZODB.POSException import StorageTransactionError

from ..commit.blobs import UPLOAD
from .ballot import BEGUN


class Storing:

    def __init__(self, session, ballot):
        self._session = session
        self._ballot = ballot

    def _add(self, operation, *arguments):
        self._needs_begun()
        self._ballot.add(operation, *arguments)

    def _needs_begun(self):
        if self._ballot.state is not BEGUN:
            raise StorageTransactionError(f'Already {self._ballot.state}')

    def deleteObject(self, oid, serial):
        self._add('delete', oid, serial)
        self._session.stats.stores += 1

    def storea(self, oid, serial, data):
        self._add('store', oid, serial, data)
        self._session.stats.stores += 1

    def batch(self, message, size):
        """Several stores, in the form of `wire.batch`."""
        self._needs_begun()
        self._ballot.add_batch(message, size)
        self._session.stats.stores += size

    def checkCurrentSerialInTransaction(self, oid, serial):
        self._add('checkread', oid, serial)

    def restorea(self, oid, serial, data, prev_txn):
        self._add('restore', oid, serial, data, prev_txn)
        self._session.stats.stores += 1

    def undoa(self, trans_id):
        self._add('undo', trans_id)

    # Blobs

    def storeBlobStart(self):
        if self.has_half_a_blob or self._ballot.state is not BEGUN:
            raise StorageTransactionError('storeBlobStart out of order')
        self._ballot.begin_blob(lambda: tempfile.NamedTemporaryFile(
            prefix=UPLOAD, delete=False,
            dir=self._session.storage.temporaryDirectory()))

    def storeBlobChunk(self, chunk):
        self._needs_half_a_blob()
        self._ballot.half_a_blob.write(chunk)

    def _needs_half_a_blob(self):
        self._needs_begun()  # else a thread may be about to remove the file
        if not self.has_half_a_blob:
            raise StorageTransactionError('no blob has been started')

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
            raise ValueError(filename)
        directory = self._session.storage.fshelper.getPathForOID(oid)
        self._ballot.add_blob(
            oid, serial, data, os.path.join(directory, filename))
        self._session.stats.stores += 1

    @property
    def has_half_a_blob(self):
        return self._ballot.half_a_blob is not None
