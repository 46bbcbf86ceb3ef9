"""What a transaction restores and undoes: records that point back.

The call of `undo` works out what the records point to, to return the oids; the
vote does so again if anything was appended since, or if a pack has replaced
the file.  What a restore points to, the vote looks for.  From then on the file
stays the same until the transaction ends (place).

While a pack is under way, nothing can be undone, as in a FileStorage.  If a
pack has removed revisions since the call, the vote finds this, or the copy of
a blob file does: then there is an UndoError.  So the vote restores what the
call has found, or nothing.

Left to others: which records undo another transaction (undo).
"""

import collections
import contextlib
import functools
import os
import shutil
from base64 import decodebytes
from collections.abc import Collection
from collections.abc import Iterable

from ZODB.blob import BlobStorageMixin
from ZODB.POSException import ConflictError
from ZODB.POSException import POSKeyError
from ZODB.POSException import UndoError
from ZODB.utils import mktemp

from .. import datafile
from ..format.classes import is_of_blob
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
        if prev_txn is not None:
            check_serial(prev_txn)
        if data is not None:
            data = self._checked_data(data)
        if oid > self._oid:
            self.set_max_oid(oid)
        under_way.alone = True
        self._add(under_way, Record(
            oid, data or b'', serial=serial, origin=Restored(prev_txn)))

    def _place_again(self, under_way: Transaction, record: Record) -> None:
        """Let a restored record point to the same data."""
        origin = record.origin
        if isinstance(origin, Restored) and origin.tid is not None:
            data = under_way.read_data(record.data) if record.stored else None
            try:
                place = self._place_of_same(origin.tid, record.oid, data)
            except UndoError:
                place = 0  # a pack may have removed it: so it has its own
            under_way.points_to(record, place)

    def _place_of_same(self, tid: bytes, oid: bytes,
                       data: bytes | None) -> int:
        """The position of the object's record in the transaction `tid`, if it
        has these data; else 0.

        During a pack, each record gets its own data: the pack has not seen
        what it would point back to.
        """
        if self.is_packing:
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
        undone, view = _undo_of(transaction_id), self._appended
        if under_way.is_spilled:
            under_way.come_back()
            self._work_out_undone(under_way, view)  # this undo may need them
        if not (under_way.records or under_way.read):
            under_way.known_to = view
        elif under_way.known_to is not view:
            under_way.known_to = None
        self._refuse_undo_in_a_pack()
        try:
            oids = self._work_out(under_way, undone, view)
            under_way.undoes(undone)
        except OSError:  # a full disk: it was not called
            under_way.forget_undone()
            under_way.known_to = None
            raise
        return under_way.tid, oids

    def undo_at_vote(self, transaction_id: bytes,
                     transaction: Metadata) -> None:
        """For a server: only the vote reads the file, and works out which
        objects that changes (`undone_oids`)."""
        under_way = self._under_way(transaction)
        under_way.known_to = None
        under_way.undoes(_undo_of(transaction_id))

    def undone_oids(self, transaction: Metadata) -> list[bytes]:
        """What a transaction that was voted changes by its undos."""
        under_way = self._known(transaction, 'undone_oids')
        return [oid for oid, record in under_way.last.items()
                if isinstance(record.origin, Undo)]

    def _work_out_undone(self, under_way: Transaction, view: View) -> None:
        """In the order of the calls: what was stored after an undo stays."""
        left = collections.deque(under_way.start_over())
        try:
            for number, undone in enumerate(under_way.undone):
                while left and left[0].after <= number:
                    under_way.has_last(left.popleft())
                self._work_out(under_way, undone, view,
                               {record.oid for record in left})
        finally:
            for record in left:
                under_way.has_last(record)

    def _work_out(self, under_way: Transaction, undone: Undo, view: View,
                  stored_later: Collection[bytes] = ()) -> list[bytes]:
        """Add the records that undo a transaction; return their oids."""
        try:
            records = undo.records(
                view, under_way,
                undo.find_transaction(view, undone.tid, True),
                functools.partial(self._resolve, under_way))
            self._restores(undone, [
                (record.oid, record.restored) for record in records])
            self._copy_blobs(under_way, view, [
                record for record in records
                if record.back and record.oid not in stored_later])
        except (UndoError, ConflictError):
            self._give_way_to_all(under_way)
            raise
        for record in records:
            added = Record(
                record.oid, record.data, back=record.back, origin=undone)
            added.previous = record.previous
            under_way.add(added)
        return list(dict.fromkeys(record.oid for record in records))

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

    def _copy_blobs(self, under_way: Transaction, view: View,
                    records: Iterable[UndoingRecord]) -> None:
        """Copy the blob file of each record that points back to a blob's
        record, which needs a file of its own; all of them, or none."""
        with contextlib.ExitStack() as copies:
            paths = {}
            for record in records:
                try:
                    data, serial = view.load_back(record.oid, record.back)
                except POSKeyError:
                    continue  # the creation was undone
                if self.blob_dir is None:
                    if is_of_blob(data):
                        self._refuse_blob()
                elif self.is_blob_record(data):
                    path = paths[record.oid] = mktemp(
                        dir=self.fshelper.temp_dir)
                    copies.callback(datafile.remove_if_there, path)
                    self._copy_blob_file(record.oid, serial, path)
            for oid, path in paths.items():
                self._take_blob(under_way, oid, None, path)

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


def _undo_of(transaction_id: bytes) -> Undo:
    tid = decodebytes(transaction_id + b'\n')
    if len(tid) != 8:  # a spool keeps eight bytes
        raise UndoError('Invalid transaction id')
    return Undo(tid)
