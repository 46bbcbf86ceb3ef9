"""What a transaction stores, deletes, restores and undoes.

Each record is checked against what is *appended* (I6), and goes into the
transaction that is under way; nothing is written to the file yet.

A transaction that conflicts with one that is not published yet is aborted, and
hears of it when that is published: see `_give_way`.

Left to others: the transaction (transaction), how it is begun and voted
(commits), which records undo another transaction (undo), which records may be
unpickled to resolve a conflict (conflicts).
"""

import contextlib
import shutil
from base64 import decodebytes

from ZODB.blob import BlobStorageMixin
from ZODB.FileStorage.FileStorage import FileStorageQuotaError
from ZODB.FileStorage.format import DATA_HDR_LEN
from ZODB.POSException import ConflictError
from ZODB.POSException import POSKeyError
from ZODB.POSException import ReadConflictError
from ZODB.POSException import ReadOnlyError
from ZODB.POSException import StorageError
from ZODB.POSException import StorageTransactionError
from ZODB.POSException import UndoError
from ZODB.POSException import Unsupported
from ZODB.utils import mktemp

from .. import blobrecord
from .. import conflicts
from .. import datafile
from ..errors import Unpublished
from ..reading import View
from ..reading import check_oid
from ..reading import pread_cached
from ..reading import read_header
from . import undo

# New oids are counted on from the highest one that was stored: behind this one
# 2**56 are left.
HIGHEST_OID = b'\xfe' + b'\xff' * 7

# No record of a blob is as long; to look at each record would take time.
LONGEST_OF_A_BLOB = 256

NO_BLOBS = (
    'this storage has no blob-dir, and keeps no blobs. (A BlobStorage, or'
    ' <blobstorage>, cannot wrap it: it assumes that the commit lock is held'
    ' until a commit is synced. Use the blob-dir of the storage itself)')


class Records:

    _pack_is_in_progress = False
    _distrusts_records = False
    #: Oids that were not given, behind which there are none.
    _refuses_last_oids = True

    @property
    def _appended(self):
        """What the commit machinery sees (I6); the commit lock is held."""
        if self._flusher is None:  # only read
            return self._view
        return View(self._file, self._index, self._pos,
                    self._flusher.appended.tid)

    def _under_way(self, transaction):
        """The Transaction of the caller, who must have begun it."""
        under_way = self._begun
        if under_way is None or transaction is not under_way.metadata:
            if self._is_read_only:
                raise ReadOnlyError()
            raise StorageTransactionError(self, transaction)
        return under_way

    def _refuse_oid(self, oid):
        check_oid(oid)
        if (oid > HIGHEST_OID and oid > self._oid
                and self._refuses_last_oids):
            raise StorageError(
                f'the oid {oid.hex()} was not given by this storage, and'
                f' is above {HIGHEST_OID.hex()}: behind it, no new oids'
                ' would be left')

    def _refuse_data(self, data):
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise TypeError(f'a record is bytes, not {type(data).__name__}')
        if not data:
            raise StorageError(
                'a record without data would be read as one that points back'
                ' to another: the file would be damaged')

    # Storing

    def store(self, oid, oldserial, data, version, transaction):
        under_way = self._under_way(transaction)
        assert not version
        self._refuse_oid(oid)
        self._refuse_data(data)
        if self.blob_dir is None and len(data) < LONGEST_OF_A_BLOB:
            self._refuse_blob(data)
        if oid > self._oid:
            self.set_max_oid(oid)
        previous = self._index.get(oid, 0)
        if previous:
            committed = read_header(self._file, previous, oid)[1]
            if committed != oldserial:
                try:
                    data = self.tryToResolveConflict(
                        oid, committed, oldserial, data)
                except ConflictError:
                    self._give_way(transaction, committed)
                    raise
                under_way.resolved.append(oid)
        place = under_way.add(oid, under_way.tid, previous, data)
        self._refuse_beyond_quota(place)

    def _refuse_blob(self, data):
        """It comes from a BlobStorage that was put around this storage.

        A BlobStorage takes back the files of an abort by a list of all that
        were stored since the last commit was through.  Here another
        transaction begins before that: its abort would remove blobs of the
        one that is about to be acknowledged.
        """
        if blobrecord.is_of_blob(data):
            raise Unsupported(NO_BLOBS)

    def _refuse_beyond_quota(self, place):
        if self._quota is not None and place > self._quota:
            raise FileStorageQuotaError('The storage quota has been exceeded.')

    def store_is_plain(self, oid, serial):
        """Would its store neither conflict nor wait for the disk?

        Whoever has the commit lock may know better.
        """
        position = self._index.get(oid, 0)
        descriptor = self._file.descriptor
        try:
            return not position or pread_cached(
                descriptor.number, DATA_HDR_LEN, position
            ).startswith(oid + serial)
        except (OSError, ValueError):
            return False

    def deleteObject(self, oid, oldserial, transaction):
        under_way = self._under_way(transaction)
        self._refuse_oid(oid)
        previous = self._index.get(oid, 0)
        if not previous:
            # Deleted, perhaps by what is not published.
            self._give_way(transaction, self._flusher.appended.tid)
            raise POSKeyError(oid)
        committed = read_header(self._file, previous, oid)[1]
        if committed != oldserial:
            self._give_way(transaction, committed)
            raise ConflictError(oid=oid, serials=(committed, oldserial))
        place = under_way.add(oid, under_way.tid, previous, b'')
        self._refuse_beyond_quota(place)

    def restore(self, oid, serial, data, version, prev_txn, transaction):
        """What was committed in another storage, without questions.

        `data` is None where the creation of the object was undone.  If they
        are those of transaction `prev_txn`, too, the record points there.
        """
        under_way = self._under_way(transaction)
        if version:
            raise TypeError('Versions are no-longer supported')
        self._refuse_oid(oid)
        if data is not None:
            self._refuse_data(data)
        if oid > self._oid:
            self.set_max_oid(oid)
        back = self._place_of_same(prev_txn, oid, data)
        under_way.add(oid, serial, self._index.get(oid, 0),
                      b'' if back or data is None else data, back)

    def _place_of_same(self, tid, oid, data):
        """The record of the object in that transaction, if it has these data;
        else 0."""
        if tid is None:
            return 0
        view = self._appended
        return undo.find_data(
            view, undo.find_transaction(view, tid, stop_at_pack=False), oid,
            data)

    def checkCurrentSerialInTransaction(self, oid, serial, transaction):
        self._check_transaction(transaction, 'checkCurrentSerial')
        position = self._index.get(oid, 0)
        if position:
            _, tid, _, _, _, length = read_header(self._file, position, oid)
            if tid == serial and length:
                return  # mostly
        try:
            committed = self._appended.get_tid(oid)
        except POSKeyError:  # deleted, perhaps by what is not published
            self._give_way(transaction, self._flusher.appended.tid)
            raise
        if committed != serial:
            self._give_way(transaction, committed)
            raise ReadConflictError(oid=oid, serials=(committed, serial))

    # Blobs

    def storeBlob(self, oid, oldserial, data, blobfilename, version,
                  transaction):
        assert not version, "Versions aren't supported."
        self.store(oid, oldserial, data, '', transaction)
        under_way = self._under_way(transaction)
        self._place_blob(under_way, oid, under_way.tid, blobfilename)

    def restoreBlob(self, oid, serial, data, blobfilename, prev_txn,
                    transaction):
        self.restore(oid, serial, data, '', prev_txn, transaction)
        under_way = self._under_way(transaction)
        self._place_blob(under_way, oid, serial, blobfilename)
        return under_way.tid

    def _place_blob(self, under_way, oid, serial, path):
        if under_way.blobs is None:
            raise Unsupported(NO_BLOBS)
        with self._lock:  # a pack removes empty directories under it
            under_way.blobs.put(path, oid, serial)

    # Undo

    def undo(self, transaction_id, transaction):
        self._refuse_undo_in_a_pack()
        under_way = self._under_way(transaction)
        try:
            records = self._undone(
                decodebytes(transaction_id + b'\n'), under_way)
        except (UndoError, ConflictError):
            self._give_way(transaction, self._flusher.appended.tid)
            raise
        for record in records:
            under_way.add(record.oid, under_way.tid, record.previous,
                          record.data, record.back)
        return under_way.tid, list(dict.fromkeys(
            record.oid for record in records))

    def _undone(self, tid, under_way):
        """The records; with their blobs in place."""
        view = self._appended
        records = undo.records(
            view, under_way, undo.find_transaction(view, tid, True),
            self.tryToResolveConflict)
        for record in records:
            if record.back:
                self._copy_blob(view, under_way, record)
        return records

    def _copy_blob(self, view, under_way, record):
        """If the record points back to one of a blob: for each record of a
        blob there is a file."""
        try:
            data, serial = view.load_back(record.oid, record.back)
        except POSKeyError:
            return  # it was removed
        if self.blob_dir is None:
            self._refuse_blob(data)
        elif self.is_blob_record(data):
            source = BlobStorageMixin.loadBlob(self, record.oid, serial)
            path = mktemp(dir=self.fshelper.temp_dir)
            try:
                shutil.copyfile(source, path)
                self._place_blob(under_way, record.oid, under_way.tid, path)
            except BaseException:
                datafile.remove_if_there(path)
                raise

    def _refuse_undo_in_a_pack(self):
        """An undo points to data that the pack may be about to leave out."""
        if self._pack_is_in_progress:
            raise UndoError('Undo is disabled while the database is packed')

    # Conflicts

    def tryToResolveConflict(self, oid, committedSerial, oldSerial, newpickle,
                             committedData=b''):
        if not committedData:
            # Stock would ask loadSerial, which shows only what is published.
            try:
                committedData = self._appended.load_serial(
                    oid, committedSerial)
            except POSKeyError:
                pass  # its creation was undone: stock says so
        if self._distrusts_records:
            try:
                self._check_records(oid, oldSerial, newpickle, committedData)
            except conflicts.Refused as reason:
                raise ConflictError(
                    oid=oid, serials=(committedSerial, oldSerial),
                    data=newpickle) from reason
        return super().tryToResolveConflict(
            oid, committedSerial, oldSerial, newpickle, committedData)

    def distrust_records(self):
        """From now on, records come from clients: a server calls it."""
        self._distrusts_records = True

    def _check_records(self, oid, old_serial, *records):
        """Stock is about to unpickle these, and the one of the old serial."""
        for record in records:
            if record:
                conflicts.check(self._crs_untransform_record_data(record))
        with contextlib.suppress(POSKeyError):  # stock says so
            conflicts.check(self._crs_untransform_record_data(
                self.loadSerial(oid, old_serial)))

    def _give_way(self, transaction, tid):
        """We conflict with the transaction of that tid (I6).

        If it is not published, a retry would not see it, and conflict again.
        So wait for it; but first give up the commit lock: a transaction that
        is doomed holds up nobody.  An event loop that owns the publishing does
        not wait.
        """
        if tid > self._view.tid:
            self.tpc_abort(transaction)
            if self._publisher.owned:
                raise Unpublished(tid)
            self._flusher.wait_for(tid)
