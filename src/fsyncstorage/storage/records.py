"""What a transaction stores and deletes.

Each record is checked against what is *appended* (I6), and goes into its
transaction.  No lock is held for that, so others may append in the meantime:
the vote, which holds the objects, checks again what has changed since
(`_check_again`).  A conflict that exists already is raised at once.

A transaction that conflicts with one that is not published yet is aborted, and
the conflict is raised when the other one is published: see `_give_way`.

Left to others: the transaction (transaction), how it is begun and voted
(commits), what it restores and undoes (undoing), which records may be
unpickled to resolve a conflict (resolution).
"""

import contextlib
import sys
import typing

from ZODB.FileStorage.FileStorage import FileStorageQuotaError
from ZODB.FileStorage.format import DATA_HDR_LEN
from ZODB.POSException import ConflictError
from ZODB.POSException import POSKeyError
from ZODB.POSException import ReadConflictError
from ZODB.POSException import ReadOnlyError
from ZODB.POSException import StorageError
from ZODB.POSException import StorageTransactionError
from ZODB.POSException import Unsupported
from ZODB.utils import z64

from ..commit.reserve import Reserve
from ..datafile import DataFile
from ..errors import Unpublished
from ..errors import Unresolved
from ..format import blobrecord
from ..format.view import View
from ..format.view import check_oid
from ..format.view import pread_cached
from ..format.view import read_header
from ..format.view import serial_at
from ..positions import Positions
from .conflicts import Conflicts
from .conflicts import leave
from .resolver import LONGEST_WAIT
from .statistics import Statistics
from .transaction import Metadata
from .transaction import Record
from .transaction import Transaction
from .transaction import Undo

# New oids follow the highest one that was stored: above this one, 2**56 are
# left.
HIGHEST_OID = b'\xfe' + b'\xff' * 7

# No record of a blob is longer than this.  (To check longer records, too,
# would only take time.)
LONGEST_OF_A_BLOB = 256

NO_BLOBS = (
    'this storage has no blob-dir, and keeps no blobs. (A BlobStorage, or'
    ' <blobstorage>, cannot wrap it: it assumes that one commit is under way'
    ' at a time. Use the blob-dir of the storage itself)')

NOT_OF_ANOTHER = (
    'under durability quorum, a blob is restored in a transaction with the tid'
    ' that it had: a node that starts knows by it which of its blob files no'
    ' transaction has')


class UnpublishedView(View):
    """All that is in the file.  What is not published may be taken back."""

    __slots__ = ()

    keeps = False

    def __init__(self, view: View) -> None:
        super().__init__(view.file, view.index, sys.maxsize, view.tid)


class Records(Statistics, Conflicts):

    # The storage sets these when it is opened; all parts of it use them.
    _begun: dict[int, Transaction]
    _file: DataFile
    _last_given: bytes
    _pos: int
    _positions: Positions
    _quota: int | None
    _reserve: Reserve
    _view: View

    #: Is a pack under way?
    is_packing = False
    #: Has the pack come so far that it may hold the locks for some time?
    is_swapping = False
    #: Refuse oids that were not given by us, and leave too few above them.
    _refuses_last_oids = True

    @property
    def _appended(self) -> View:
        """What the commit machinery sees (I6)."""
        return typing.cast(View, self._sequencer.appended)

    def _find(self, transaction: Metadata) -> Transaction | None:
        """The Transaction that was begun with this object, or None."""
        under_way = self._begun.get(id(transaction))
        if under_way is not None:
            caller = under_way.caller  # an older object may have had this id
            if caller() is transaction:
                return under_way
        return None

    def _under_way(self, transaction: Metadata) -> Transaction:
        """The Transaction that the caller has begun, for a new record."""
        if self._closed:
            raise self._is_closed()
        under_way = self._find(transaction)
        if under_way is None:
            if self._is_read_only:
                raise ReadOnlyError()
            raise StorageTransactionError(self, transaction)
        if under_way.asked:
            raise StorageTransactionError(
                'a transaction that was voted takes no more records')
        return under_way

    def _refuse_oid(self, oid: bytes) -> None:
        if oid.__class__ is not bytes or len(oid) != 8:
            check_oid(oid)
        if (oid > HIGHEST_OID and oid > self._oid
                and self._refuses_last_oids):
            raise StorageError(
                f'the oid {oid.hex()} was not given by this storage, and'
                f' is above {HIGHEST_OID.hex()}: it would leave too few new'
                ' oids')

    def _refuse_data(self, data: bytes) -> None:
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise TypeError(f'a record is bytes, not {type(data).__name__}')
        if not data:
            raise StorageError(
                'a record without data would be read as one that points back'
                ' to another: the file would be damaged')

    # Storing

    def store(self, oid: bytes, oldserial: bytes, data: bytes, version: str,
              transaction: Metadata) -> None:
        under_way = self._under_way(transaction)
        assert not version
        self._refuse_oid(oid)
        if data.__class__ is not bytes or not data:
            self._refuse_data(data)
        if (self.blob_dir is None and len(data) < LONGEST_OF_A_BLOB
                and blobrecord.is_of_blob(data)):
            self._refuse_blob()
        if oid > self._oid:
            self.set_max_oid(oid)
        view = self._view
        previous = view.index.get(oid, 0)
        committed = original = None
        if previous:
            committed = serial_at(view.file, previous, oid)
            if committed != oldserial:
                original, data = data, self._merged(
                    under_way, oid, committed, oldserial, data)
            else:
                oldserial = committed  # one object for both
        elif oldserial == z64:
            oldserial = z64  # one object for all of them
        self._add(under_way, view, Record(
            oid, data, previous, committed, oldserial, original))

    def _add(self, under_way: Transaction, view: View, record: Record) -> None:
        """Add a record that replaces one in the file of the view."""
        if under_way.file is not view.file:  # a pack has replaced the file
            under_way.file = None  # now it has positions of several files
        under_way.add(record)
        self._refuse_beyond_quota(under_way, self._reserve.total)

    def _merged(self, under_way: Transaction, oid: bytes, committed: bytes,
                oldserial: bytes, data: bytes) -> bytes:
        """The data that resolve a conflict."""
        try:
            data = self._resolve(under_way, oid, committed, oldserial, data)
        except ConflictError:
            self._give_way(under_way, committed)
            self._count_conflict(under_way)
            raise
        under_way.resolved.append(oid)
        return data

    def _resolve(self, under_way: Transaction, oid: bytes, *of_it: bytes
                 ) -> bytes:
        """Call `tryToResolveConflict`; but, in a server, not for long for one
        transaction, because others may wait for objects that it has."""
        if not under_way.resolves_conflicts:
            raise Unresolved
        if self._resolver is None:
            return self.tryToResolveConflict(oid, *of_it)
        if under_way.resolving > LONGEST_WAIT:
            leave(oid, *of_it)
        spent = self._resolver.spent
        spent.seconds = 0.0
        try:
            return self.tryToResolveConflict(oid, *of_it)
        finally:
            under_way.resolving += spent.seconds

    def _count_conflict(self, under_way: Transaction) -> None:
        # The server counts the conflicts of its clients, once a vote has
        # failed: the vote may be repeated, and a client may resolve conflicts.
        if under_way.waits_for_publishing:
            self._counts.conflict()

    def _refuse_blob(self) -> None:
        """Refuse a blob: it comes from a BlobStorage that wraps this storage.

        After an abort, a BlobStorage removes all files that were stored since
        the last commit was finished.  Here another transaction may begin
        before that: its abort would remove blobs of the transaction that is
        about to be acknowledged.
        """
        raise Unsupported(NO_BLOBS)

    def _refuse_beyond_quota(self, under_way: Transaction,
                             others: int) -> None:
        """`others`: bytes that are reserved for other transactions.

        As in FileStorage, an undo may exceed the quota; a restore may not.
        """
        records = under_way.records
        if (self._quota is not None and records
                and not isinstance(records[-1].origin, Undo)
                and self._pos + others + under_way.offset_of_last_record
                > self._quota):
            raise FileStorageQuotaError('The storage quota has been exceeded.')

    def store_is_plain(self, oid: bytes, serial: bytes) -> bool:
        """Can this be stored without a conflict, and without waiting for the
        disk?  The vote may still find a conflict."""
        view = self._view
        position = view.index.get(oid, 0)
        if not position or view.file.serials.get(position) == serial:
            return True
        descriptor = view.file.descriptor
        try:
            return pread_cached(
                descriptor.number, DATA_HDR_LEN, position
            ).startswith(oid + serial)
        except (OSError, ValueError):
            return False

    def deleteObject(self, oid: bytes, oldserial: bytes,
                     transaction: Metadata) -> None:
        under_way = self._under_way(transaction)
        self._refuse_oid(oid)
        view = self._view
        previous = view.index.get(oid, 0)
        self._refuse_deletion(under_way, oid, oldserial, view, previous)
        self._add(under_way, view, Record(
            oid, b'', previous, oldserial, oldserial))

    def _refuse_deletion(self, under_way: Transaction, oid: bytes,
                         oldserial: bytes, view: View, previous: int) -> None:
        if not previous:
            # It was deleted, perhaps by a transaction that is not published.
            self._give_way(under_way, self._sequencer.appended.tid)
            raise POSKeyError(oid)
        committed = read_header(view.file, previous, oid)[1]
        if committed != oldserial:
            self._give_way(under_way, committed)
            self._count_conflict(under_way)
            raise ConflictError(oid=oid, serials=(committed, oldserial))

    def checkCurrentSerialInTransaction(self, oid: bytes, serial: bytes,
                                        transaction: Metadata) -> None:
        under_way = self._known(transaction, 'checkCurrentSerial')
        if under_way.asked:
            raise StorageTransactionError(
                'a transaction that was voted checks no more serials')
        check_oid(oid)
        self._refuse_unless_current(under_way, oid, serial)
        under_way.read[oid] = serial

    def _refuse_unless_current(self, under_way: Transaction, oid: bytes,
                               serial: bytes) -> None:
        view = self._view
        position = view.index.get(oid, 0)
        if position:
            _, tid, _, _, _, length = read_header(view.file, position, oid)
            if tid == serial and length:
                return  # the usual case
        try:
            committed = self._appended.get_tid(oid)
        except POSKeyError:  # deleted, perhaps by an unpublished transaction
            self._give_way(under_way, self._sequencer.appended.tid)
            raise
        if committed != serial:
            self._give_way(under_way, committed)
            self._count_conflict(under_way)
            raise ReadConflictError(oid=oid, serials=(committed, serial))

    # Again, at the vote

    def _check_again(self, under_way: Transaction) -> None:
        """Has any of its objects changed since it was stored or read?"""
        appended = self._sequencer.pipeline.appended
        if under_way.known_to is appended:
            return  # nothing was appended since
        view = self._view
        for record in under_way.records:
            position = view.index.get(record.oid, 0)
            if record.origin is None and (
                    position != record.previous
                    or under_way.file is not view.file):
                self._check_record_again(under_way, record, view, position)
        under_way.file = view.file
        for oid, serial in under_way.read.items():
            self._refuse_unless_current(under_way, oid, serial)
        under_way.known_to = appended

    def _check_record_again(self, under_way: Transaction, record: Record,
                            view: View, position: int) -> None:
        oid, oldserial = record.oid, record.oldserial
        assert oldserial is not None
        if not record.length:
            self._refuse_deletion(under_way, oid, oldserial, view, position)
        elif position:
            committed = serial_at(view.file, position, oid)
            if committed not in (record.base, oldserial):
                changed = record.data
                if record.original is not None:
                    changed = record.original
                under_way.resolved_again(record, self._merged(
                    under_way, oid, committed, oldserial,
                    under_way.read_data(changed)))
                record.base = committed
        record.previous = position

    # Blobs

    def storeBlob(self, oid: bytes, oldserial: bytes, data: bytes,
                  blobfilename: str, version: str,
                  transaction: Metadata) -> None:
        assert not version, "Versions aren't supported."
        self.store(oid, oldserial, data, '', transaction)
        self._take_blob(self._under_way(transaction), oid, None, blobfilename)

    def _take_blob(self, under_way: Transaction, oid: bytes,
                   serial: bytes | None, path: str) -> None:
        if under_way.blobs is None:
            raise Unsupported(NO_BLOBS)
        if self.durability.policy.replicated and serial not in (
                None, under_way.given_tid):
            raise Unsupported(NOT_OF_ANOTHER)
        under_way.blobs.take(path, oid, serial)

    # Conflicts

    def tryToResolveConflict(self, oid: bytes, committedSerial: bytes,
                             oldSerial: bytes, newpickle: bytes,
                             committedData: bytes = b'') -> bytes:
        if not committedData:
            # Stock would use loadSerial, which shows only what is published.
            # The committed record may even be in the index, and not appended
            # yet.  If its creation was undone, stock raises the error.
            all_of_it = UnpublishedView(self._view)
            with contextlib.suppress(POSKeyError):
                committedData = all_of_it.load_serial(oid, committedSerial)
        return super().tryToResolveConflict(
            oid, committedSerial, oldSerial, newpickle, committedData)

    def _give_way(self, under_way: Transaction, tid: bytes) -> None:
        """This transaction conflicts with the transaction of this tid (I6).

        If that one is not published, a retry would not see it, and conflict
        again.  So wait until it is; but first let go of everything, because a
        transaction that must fail should delay nobody.  An event loop that
        owns the publishing, and the threads that vote for it, do not wait.
        """
        # A restored record may have any tid.
        tid = min(tid, self._sequencer.appended.tid)
        if tid > self._view.tid:
            self._end(under_way)
            if self._sequencer.owned and not under_way.waits_for_publishing:
                raise Unpublished(tid)
            self._sequencer.wait_for(tid)
