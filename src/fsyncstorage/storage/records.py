"""What a transaction stores and deletes.

A call takes no lock and compares nothing: the record goes into its
transaction.  The vote, which holds the objects, compares all records with what
is *appended* (I6), and resolves conflicts (`_check`).  If it may have to wait
for its objects, it does so before, too: what must fail should not wait.

A transaction that conflicts with one that is not published yet lets go of its
objects, and the conflict is raised when the other one is published: see
`_give_way`.

Left to others: the transaction (transaction), how it is begun and voted
(commits), what it restores and undoes (undoing), which records may be
unpickled to resolve a conflict (resolution).
"""

import contextlib
import sys

from ZODB.FileStorage.FileStorage import FileStorageQuotaError
from ZODB.FileStorage.format import DATA_HDR_LEN
from ZODB.POSException import ConflictError
from ZODB.POSException import POSKeyError
from ZODB.POSException import ReadConflictError
from ZODB.POSException import ReadOnlyError
from ZODB.POSException import StorageError
from ZODB.POSException import StorageTransactionError
from ZODB.POSException import Unsupported

from ..commit.reserve import Reserve
from ..datafile import DataFile
from ..errors import ConflictsLeft
from ..errors import Unpublished
from ..errors import Unresolved
from ..format.classes import is_of_blob
from ..format.view import View
from ..format.view import check_oid
from ..format.view import pread_cached
from ..format.view import read_header
from ..format.view import serial_at
from ..format.view import serial_or_none
from ..positions import Positions
from .conflicts import Conflicts
from .conflicts import leave
from .resolver import LONGEST_WAIT
from .statistics import Statistics
from .transaction import LENGTH_BEHIND
from .transaction import Metadata
from .transaction import Record
from .transaction import Transaction

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
        return self._sequencer.pipeline.appended  # type: ignore[return-value]

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

    def _checked_data(self, data: bytes | bytearray | memoryview) -> bytes:
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise TypeError(f'a record is bytes, not {type(data).__name__}')
        if not data:
            raise StorageError(
                'a record without data would be read as one that points back'
                ' to another: the file would be damaged')
        return bytes(data)

    # Storing

    def store(self, oid: bytes, oldserial: bytes, data: bytes, version: str,
              transaction: Metadata) -> None:
        under_way = self._under_way(transaction)
        assert not version
        self._refuse_oid(oid)
        if data.__class__ is not bytes or not data:
            data = self._checked_data(data)
        if (self.blob_dir is None and len(data) < LONGEST_OF_A_BLOB
                and is_of_blob(data)):
            self._refuse_blob()
        if oid > self._oid:
            self.set_max_oid(oid)
        self._add(under_way, Record(oid, data, serial_or_none(oldserial)))

    def _add(self, under_way: Transaction, record: Record) -> None:
        under_way.add(record)
        if self._quota is not None:
            self._refuse_beyond_quota(
                self._quota, under_way, self._reserve.total, record.size)

    def spill(self, transaction: Metadata) -> None:
        """For a server: keep what this transaction stores on the disk alone,
        until its vote."""
        self._under_way(transaction).spill()

    def changed_oids(self, transaction: Metadata) -> list[bytes]:
        """The objects that a transaction changes, which was voted."""
        return list(self._known(transaction, 'changed_oids').last)

    def _refuse_blob(self) -> None:
        """Refuse a blob: it comes from a BlobStorage that wraps this storage.

        After an abort, a BlobStorage removes all files that were stored since
        the last commit was finished.  Here another transaction may begin
        before that: its abort would remove blobs of the transaction that is
        about to be acknowledged.
        """
        raise Unsupported(NO_BLOBS)

    def _refuse_beyond_quota(self, quota: int, under_way: Transaction,
                             others: int, last: int) -> None:
        """`others`: bytes that are reserved for other transactions.  `last`:
        those of the last record, which may exceed the quota, as in
        FileStorage.  An undo may exceed it, too; a restore may not.
        """
        if (self._pos + others + under_way.length - LENGTH_BEHIND - last
                > quota):
            raise FileStorageQuotaError('The storage quota has been exceeded.')

    def vote_is_plain(self, transaction: Metadata) -> bool:
        """Would the vote neither conflict nor wait for the disk, as far as can
        be seen without waiting?"""
        under_way = self._known(transaction, 'vote_is_plain')
        view = self._view
        return not (under_way.read or under_way.undone
                    or under_way.is_spilled) and all(
            record.length and record.origin is None
            and self._is_plain(view, record) for record in under_way.records)

    @staticmethod
    def _is_plain(view: View, record: Record) -> bool:
        position = view.index.get(record.oid, 0)
        serial = record.oldserial
        if not position or view.file.serials.get(position) == serial:
            return True
        descriptor = view.file.descriptor
        try:
            return pread_cached(
                descriptor.number, DATA_HDR_LEN, position
            ).startswith(record.oid + serial)
        except (OSError, ValueError):
            return False

    def deleteObject(self, oid: bytes, oldserial: bytes,
                     transaction: Metadata) -> None:
        under_way = self._under_way(transaction)
        self._refuse_oid(oid)
        self._add(under_way, Record(oid, b'', serial_or_none(oldserial)))

    def checkCurrentSerialInTransaction(self, oid: bytes, serial: bytes,
                                        transaction: Metadata) -> None:
        under_way = self._known(transaction, 'checkCurrentSerial')
        if under_way.asked:
            raise StorageTransactionError(
                'a transaction that was voted checks no more serials')
        check_oid(oid)
        under_way.reads(oid, serial_or_none(serial))

    # The vote compares

    def _check(self, under_way: Transaction) -> None:
        """Compare what it stores and has read with what is appended; work out
        again what it undoes and restores."""
        if under_way.is_spilled:
            under_way.come_back()
        view, known_to = self._appended, under_way.known_to
        if known_to is view:
            return  # nothing was appended since
        for record in under_way.records:
            position = view.index.get(record.oid, 0)
            if (position != record.previous or known_to is None
                    or known_to.file is not view.file):
                self._check_record(under_way, record, view, position)
        client = under_way.client
        if client is not None and client.conflicts:
            raise ConflictsLeft(client.conflicts)
        for oid, serial in under_way.read.items():
            self._refuse_unless_current(under_way, oid, serial, view)
        if under_way.undone:
            self._work_out_undone(under_way, view)
        under_way.known_to = view

    def _check_record(self, under_way: Transaction, record: Record,
                      view: View, position: int) -> None:
        if record.origin is not None:
            self._place_again(under_way, record)
        elif not record.stored:
            self._refuse_deletion(under_way, record, view, position)
        elif position:
            committed = serial_at(view.file, position, record.oid)
            if committed == record.oldserial:
                # One object for all of them.
                record.base = record.oldserial = committed
            elif committed != record.base and not self._merge(
                    under_way, record, committed):
                return  # the client has to resolve it
        record.previous = position

    def _merge(self, under_way: Transaction, record: Record,
               committed: bytes) -> bool:
        """Resolve a conflict; or leave it to the client."""
        stored = under_way.read_data(
            record.data if record.original is None else record.original)
        try:
            data = self._resolve(
                under_way, record.oid, committed, record.oldserial, stored)
        except ConflictError as error:
            self._give_way(under_way, committed)
            self._count_conflict(under_way)
            if under_way.client is None:
                raise
            under_way.client.leave(record.oid, stored, error)
            return False
        under_way.resolve(record, data)
        under_way.resolved.append(record.oid)
        record.base = committed
        return True

    def _resolve(self, under_way: Transaction, oid: bytes, *of_it: bytes
                 ) -> bytes:
        """Call `tryToResolveConflict`; but, in a server, not for long for one
        transaction, because others may wait for objects that it has."""
        client = under_way.client
        if client is not None and not client.resolve:
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
        if under_way.client is None:
            self._counts.conflict()

    def _refuse_deletion(self, under_way: Transaction, record: Record,
                         view: View, position: int) -> None:
        oid = record.oid
        if not position:
            # It was deleted, perhaps by a transaction that is not published.
            self._give_way_to_all(under_way)
            raise POSKeyError(oid)
        committed = read_header(view.file, position, oid)[1]
        if committed != record.oldserial:
            self._give_way(under_way, committed)
            self._count_conflict(under_way)
            raise ConflictError(
                oid=oid, serials=(committed, record.oldserial))

    def _refuse_unless_current(self, under_way: Transaction, oid: bytes,
                               serial: bytes, view: View) -> None:
        position = view.index.get(oid, 0)
        if position:
            _, tid, _, _, _, length = read_header(view.file, position, oid)
            if tid == serial and length:
                return  # the usual case
        try:
            committed = self._appended.get_tid(oid)
        except POSKeyError:  # deleted, perhaps by an unpublished transaction
            self._give_way_to_all(under_way)
            raise
        if committed != serial:
            self._give_way(under_way, committed)
            self._count_conflict(under_way)
            raise ReadConflictError(oid=oid, serials=(committed, serial))

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

    def _give_way_to_all(self, under_way: Transaction) -> None:
        """It fails, and nobody knows because of which transaction.

        Once only: while others commit, there is always one that is appended
        and not published, and the vote would be put aside for ever."""
        if not under_way.gave_way:
            under_way.gave_way = True
            self._give_way(under_way, self._sequencer.appended.tid)

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
            if self._sequencer.owned and under_way.client is not None:
                raise Unpublished(tid)
            self._let_go(under_way)
            self._sequencer.wait_for(tid)
