"""What a transaction restores and undoes: records that point back.

Such a transaction is *alone*.  The call of `undo` or `restore` works out what
the records point to, so that `undo` can return its oids.  The vote works it
out again if anything was appended since, or if a pack has replaced the file.

While a pack is under way, nothing can be undone, as in a FileStorage.  If a
pack has removed revisions since the call, the vote finds this, or the copy of
a blob file does: then there is an UndoError.  So the vote restores what the
call has found, or nothing.

Left to others: which records undo another transaction (undo).
"""

import functools
import itertools
import operator
import os
import shutil
from base64 import decodebytes

from ZODB.blob import BlobStorageMixin
from ZODB.POSException import ConflictError
from ZODB.POSException import POSKeyError
from ZODB.POSException import UndoError
from ZODB.utils import mktemp

from .. import datafile
from ..format import blobrecord
from ..format.view import View
from ..format.view import check_serial
from . import undo
from .records import Records
from .transaction import Metadata
from .transaction import Record
from .transaction import Restored
from .transaction import Transaction
from .transaction import Undo
from .undo import Record as UndoingRecord

_DISABLED = 'Undo is disabled while the database is packed'
_REMOVED = 'a pack has removed what this would restore since it was called'
_NO_FILE = ('the file of the blob that this would restore is not there any'
            ' more: a pack may have taken it away just now')


class Undoing(Records):

    # Restore

    def restore(self, oid: bytes, serial: bytes, data: bytes | None,
                version: str, prev_txn: bytes | None,
                transaction: Metadata) -> None:
        """Store a revision that was committed in another storage, without
        checks for conflicts.

        `data` is None if the creation of the object was undone.  If the data
        are the same as in transaction `prev_txn`, the record points there.
        """
        under_way = self._under_way(transaction)
        if version:
            raise TypeError('Versions are no-longer supported')
        self._refuse_oid(oid)
        check_serial(serial)
        if data is not None:
            self._refuse_data(data)
        if oid > self._oid:
            self.set_max_oid(oid)
        under_way.alone = True
        back = self._place_of_same(prev_txn, oid, data)
        under_way.add(Record(
            oid, data or b'', serial=serial, back=back,
            origin=Restored(prev_txn)))
        self._refuse_beyond_quota(under_way, self._reserve.total)

    def _place_of_same(self, tid: bytes | None, oid: bytes,
                       data: bytes | None) -> int:
        """The position of the object's record in the transaction `tid`, if it
        has these data; else 0."""
        if tid is None:
            return 0
        view = self._appended
        return undo.find_data(
            view, undo.find_transaction(view, tid, stop_at_pack=False), oid,
            data)

    def restoreBlob(self, oid: bytes, serial: bytes, data: bytes,
                    blobfilename: str, prev_txn: bytes | None,
                    transaction: Metadata) -> bytes | None:
        self.restore(oid, serial, data, '', prev_txn, transaction)
        under_way = self._under_way(transaction)
        self._take_blob(under_way, oid, serial, blobfilename)
        return under_way.tid

    # Undo

    def undo(self, transaction_id: bytes,
             transaction: Metadata) -> tuple[bytes | None, list[bytes]]:
        """Return the tid (None: it is not known yet) and the oids.

        The records are worked out now, and again by the vote if anything was
        appended since.
        """
        under_way = self._under_way(transaction)
        under_way.alone = True
        records = self._undo(
            under_way, Undo(decodebytes(transaction_id + b'\n')))
        return under_way.tid, list(dict.fromkeys(
            record.oid for record in records))

    def _undo(self, under_way: Transaction,
              origin: Undo) -> list[UndoingRecord]:
        view = self._appended
        self._refuse_undo_in_a_pack()
        try:
            records = undo.records(
                view, under_way,
                undo.find_transaction(view, origin.tid, True),
                functools.partial(self._resolve, under_way))
            self._restores(origin, [
                (record.oid, record.restored) for record in records])
            for record in records:
                if record.back:
                    self._copy_blob(view, under_way, record)
        except (UndoError, ConflictError):
            self._give_way(under_way, self._sequencer.appended.tid)
            raise
        for record in records:
            under_way.add(Record(
                record.oid, record.data, back=record.back, origin=origin))
        return records

    @staticmethod
    def _restores(origin: Undo, restored: list[tuple[bytes, bytes]]) -> None:
        """Note what the undo restores, by the file as it is now.

        After a pack, the revision before the undone one may be gone, or be an
        earlier one than at the call.  That is not what the undo was called
        for: so it fails.
        """
        now = dict(restored)
        for oid, tid in dict(origin.restored).items():
            if now.get(oid) != tid:
                raise UndoError(_REMOVED, oid)
        origin.restored = restored

    def _work_out_again(self, under_way: Transaction) -> None:
        """Repeat undo and restore, unless nothing was appended since.

        The transaction is alone: no other can be appended during this.
        """
        if all(record.origin is None for record in under_way.records):
            return  # a large one
        if under_way.known_to is not self._sequencer.pipeline.appended:
            for origin, records in itertools.groupby(
                    under_way.start_over(),
                    operator.attrgetter('origin')):
                if isinstance(origin, Undo):
                    self._undo(under_way, origin)
                    continue
                for record in records:
                    record.points_to(
                        0 if origin is None else
                        self._place_again(under_way, record, origin.tid))
                    under_way.add(record)
            return
        if any(isinstance(record.origin, Undo)
               for record in under_way.records):
            self._refuse_undo_in_a_pack()

    def _place_again(self, under_way: Transaction, record: Record,
                     tid: bytes | None) -> int:
        data = under_way.read_data(record.data) if record.stored else None
        try:
            return self._place_of_same(tid, record.oid, data)
        except UndoError:
            return 0  # it was there before: a pack has removed it

    def _copy_blob(self, view: View, under_way: Transaction,
                   record: UndoingRecord) -> None:
        """Copy the blob file if the record points back to a blob's record:
        each record of a blob needs a file."""
        try:
            data, serial = view.load_back(record.oid, record.back)
        except POSKeyError:
            return  # the creation was undone
        if self.blob_dir is None:
            if blobrecord.is_of_blob(data):
                self._refuse_blob()
        elif self.is_blob_record(data):
            path = mktemp(dir=self.fshelper.temp_dir)
            try:
                self._copy_blob_file(record.oid, serial, path)
                self._take_blob(under_way, record.oid, None, path)
            except BaseException:
                datafile.remove_if_there(path)
                raise

    def _copy_blob_file(self, oid: bytes, serial: bytes, path: str) -> None:
        try:
            source = BlobStorageMixin.loadBlob(self, oid, serial)
        except POSKeyError:
            raise UndoError(_NO_FILE, oid) from None
        try:
            shutil.copyfile(source, path)
        except FileNotFoundError:
            if os.path.exists(source):
                raise
            raise UndoError(_NO_FILE, oid) from None

    def _refuse_undo_in_a_pack(self) -> None:
        """The pack has not seen what it would point back to."""
        if self.is_packing:
            raise UndoError(_DISABLED)
