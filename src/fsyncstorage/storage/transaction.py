"""One transaction, from its begin until it is appended.

All that belongs to a transaction is in here: its description, its records,
the objects that it has read, its blob files, and, once it is written, its
position in the file.  The storage finds it by the caller's object
(`metadata`), and keeps nothing else of it.

Its states::

    BEGUN     it takes records, and compares them with nothing; they are kept
              in memory, or, above a certain size, all of them in a file that
              has no name (spool), until the vote.  Or it undoes others: then
              it takes nothing else
    ASKED     it takes no more records, and waits for its objects
    VOTED     it holds its objects
    FAILED    its vote failed, perhaps half way: it can only be aborted

A vote that ends with VoteAgain makes it BEGUN again.  When it is written, it
has a tid and a `start`, and each record has its `position`.

Before a transaction is written, nothing in it depends on its position: tid,
positions and checksum are made in `write`.  What a record replaces or points
back to is a position in the file of `known_to`; a pack may replace that file,
which the finish checks (journal).

The thread that makes a call with the metadata owns the transaction: one thread
at a time.

Left to others: which records are allowed, its turn and its outcome
(commits).
"""

import contextlib
import struct
import weakref
import zlib
from collections.abc import Callable
from typing import Any
from typing import TypeAlias

from ZODB.FileStorage.FileStorage import FileStorageError
from ZODB.FileStorage.format import DATA_HDR
from ZODB.FileStorage.format import DATA_HDR_LEN
from ZODB.FileStorage.format import TRANS_HDR
from ZODB.FileStorage.format import TRANS_HDR_LEN
from ZODB.interfaces import IStorageTransactionMetaData
from ZODB.POSException import StorageTransactionError
from ZODB.utils import as_bytes
from ZODB.utils import z64

from ..commit import asking
from ..commit.blobs import Stored
from ..commit.pipeline import Commit
from ..commit.policies import Policy
from ..datafile import DataFile
from ..format import seal
from ..format.view import View
from . import spool
from .spool import Spool
from .spool import StoredData
from .told import ForAClient

BEGUN, ASKED, VOTED, FAILED = 'begun', 'asked', 'voted', 'failed'

# The data of a transaction up to this size are kept in memory.
SPOOL_IN_MEMORY = 1 << 20
COPY_CHUNK = 1 << 20
# A transaction with more bytes than this is too large to be written in one go
# under the append lock.  With more objects than this, written or read, it is
# too large to lock each object.  See `is_large`.
MOST_BYTES_AT_ONCE = 16 << 20
MOST_OBJECTS_AT_ONCE = 10_000
# At most this many serials of records (2 MB) are remembered after a
# transaction was written.
MOST_SERIALS = 10_000

# What is to be undone is kept in memory.
MOST_UNDONE = 1000

LONGEST_FIELD = 65535
STATUS_OFFSET = 16  # of the status byte in the header
POINTER = 8  # bytes of a back pointer, in place of data
LENGTH_BEHIND = 8  # bytes of the length behind the last record
# In place of the position of the revision that a record replaces: the record
# was not compared with what is in the file.
UNKNOWN = -1

_header = struct.Struct(TRANS_HDR)
_record_header = struct.Struct(DATA_HDR)
_number = struct.Struct('>Q')

# The caller's object.
Metadata: TypeAlias = IStorageTransactionMetaData


class Restored:
    """Where a record that is restored has its data from: the transaction with
    this tid, if it is not None."""

    def __init__(self, tid: bytes | None) -> None:
        self.tid = tid


class NewRecord:
    """A new revision of an object."""

    __slots__ = ('oid', 'serial', 'oldserial', 'base', 'previous', 'data',
                 'stored', 'length', 'size', 'back', 'original', 'restored',
                 'position')

    def __init__(self, oid: bytes, data: bytes, oldserial: bytes = z64,
                 serial: bytes | None = None, back: int = 0,
                 restored: Restored | None = None) -> None:
        self.oid = oid
        #: Bytes; or where they are in the transaction's spool.
        self.data: StoredData = data
        #: Length of these bytes.
        self.stored = length = len(data)
        #: Position of the record that this one points back to; 0: none.
        self.back = back
        #: Length of the data in this record, and of the whole record.
        self.length = length = 0 if back else length
        self.size = DATA_HDR_LEN + (length or POINTER)
        #: What the caller stored: the serial of the revision that it has
        #: changed, and the data, if `data` resolve a conflict.
        self.oldserial = oldserial
        self.original: StoredData | None = None
        #: Position and serial of the revision that it replaces.
        self.previous = UNKNOWN
        self.base: bytes | None = None
        #: The serial; None: that of the transaction.
        self.serial = serial
        #: None: it was not restored, but stored, or undoes another.
        self.restored = restored
        #: Its position in the file, once it is written.
        self.position = 0

    def stores(self, data: StoredData, stored: int, oldserial: bytes) -> None:
        """The caller has stored these data."""
        self.oldserial, self.original = oldserial, None
        self.previous, self.base = UNKNOWN, None
        self.has(data, stored)

    def has(self, data: StoredData, stored: int) -> None:
        self.data, self.stored = data, stored
        self.points_to(self.back)

    def points_to(self, back: int) -> None:
        self.back = back
        #: Length of the data in this record, and of the whole record.
        self.length = 0 if back else self.stored
        self.size = DATA_HDR_LEN + (self.length or POINTER)


class Transaction:

    __slots__ = ('caller', 'key', 'given_tid', 'status', 'policy', 'alone',
                 'blobs', 'known_to', 'records', 'last', 'read', 'undone',
                 'undone_in', 'resolved', 'client', 'resolving', 'is_spilled',
                 'gave_way', 'state', 'asked_at',
                 'sealed', 'commit_id', 'barred', 'length', 'tid', 'start',
                 'commit', 'blob_keys', '_texts', '_extension', '_lengths',
                 '_header_length', '_in_memory', '_directory', '_spool')

    def __init__(self, metadata: Metadata, tid: bytes | None, status: bytes,
                 commit_id: bytes, policy: Policy, sealed: bool,
                 directory: str,
                 on_drop: Callable[[weakref.ref[Any]], object]) -> None:
        """`tid`: None, or the tid that it must have.  `commit_id`: by
        which it can be found later (outcome).  `policy`: that of the storage;
        the transaction may ask for more.

        `sealed`: it gets a seal, if there is room.  `on_drop` is called when
        the metadata is gone, in any thread.
        """
        self.caller = weakref.ref(metadata, on_drop)
        #: The key by which the storage finds it.
        self.key = id(metadata)
        self.given_tid = tid
        self.commit_id = commit_id
        #: A finish finds this under the append lock, and appends nothing.
        self.barred = False
        #: The final status byte, which makes it count.
        self.status = status
        #: It is voted only while no other transaction is.
        self.alone = tid is not None
        #: Its blob files (blobs.Stored); None without a blob directory.
        self.blobs: Stored | None = None
        #: The view with which all of it was compared, or worked out; None:
        #: there is something new.
        self.known_to: View | None = None
        self.records: list[NewRecord] = []
        #: oid -> its last record.
        self.last: dict[bytes, NewRecord] = {}
        #: oid -> serial that must still be current.
        self.read: dict[bytes, bytes] = {}
        #: What it stores is in the spool alone.
        self.is_spilled = False
        #: The tids of the transactions that it undoes, in this order.
        self.undone: list[bytes] = []
        #: The file for which `undo` was called; None: only its vote looks.
        self.undone_in: DataFile | None = None
        #: Oids whose conflicts were resolved.
        self.resolved: list[bytes] = []
        #: Whose vote it is, in a server; see told.
        self.client: ForAClient | None = None
        #: Seconds that it took to resolve its conflicts.
        self.resolving = 0.0
        self.state = BEGUN
        #: It has waited, or was put aside, for all that was appended (checks).
        self.gave_way = False
        #: When its vote was first called.
        self.asked_at = 0.0
        #: Its tid, and its position in the file.
        self.tid: bytes | None = None
        self.start = 0
        #: Its Commit in the pipeline, and the keys of its blobs.
        self.commit: Commit | None = None
        self.blob_keys: bytearray
        self._in_memory = 0  # bytes of data
        self._directory = directory
        self._spool: Spool | None = None
        self._describe(metadata, policy, sealed)

    def _describe(self, metadata: Metadata, policy: Policy,
                  sealed: bool) -> None:
        """Take over its description, and what it asks for."""
        user, description = metadata.user, metadata.description
        if user.__class__ is not bytes or description.__class__ is not bytes:
            user, description = as_bytes(user), as_bytes(description)
        #: The policy that holds for this transaction.
        self.policy = policy
        extension = metadata.extension_bytes
        if extension:
            # A copy keeps its extension, and asks for nothing.
            asked = None if self.given_tid else asking.asked(metadata)
            if asked is not None:
                self.policy, extension = asked.heeded(policy)
            # A copy may have the seal of another file.
            with contextlib.suppress(seal.UnknownVersion):
                extension = seal.strip(extension)
        room = seal.room(extension) if sealed else 0
        self.sealed = room > 0
        if extension and seal.would_mislead(
                user + description, extension, self.sealed):
            raise FileStorageError(
                'the extension of the transaction, its user or its description'
                ' has bytes that readers of the file would take for a checksum'
                ' of fsyncstorage')
        self._texts, self._extension = user + description, extension
        # In the file.
        self._lengths = len(user), len(description), len(extension) + room
        self._header_length = (
            TRANS_HDR_LEN + len(self._texts) + len(extension) + room)
        if self._header_length > LONGEST_FIELD:  # then a field may be too long
            self._refuse_long_fields(user, description, extension)
        #: Bytes that it will take in the file.
        self.length = self._header_length + LENGTH_BEHIND

    @staticmethod
    def _refuse_long_fields(user: bytes, description: bytes,
                            extension: bytes) -> None:
        for field, what in ((user, 'user name too long'),
                            (description, 'description too long'),
                            (extension, 'too much extension data')):
            if len(field) > LONGEST_FIELD:
                raise FileStorageError(what)

    @property
    def metadata(self) -> Metadata:
        """The caller's object; None when it is gone."""
        return self.caller()

    @property
    def user(self) -> bytes:
        return self._texts[:self._lengths[0]]

    @property
    def description(self) -> bytes:
        return self._texts[self._lengths[0]:]

    # Records

    def add(self, record: NewRecord) -> None:
        """Take the record; if it was stored, in the place of another that was
        stored for its object."""
        if self.undone:
            self._refuse_beside_undos()
        # (If the disk is full, the record is not taken, and the others stay.)
        if not self.is_spilled and (
                self._in_memory + record.stored > SPOOL_IN_MEMORY):
            self.spill()
        if self._spool is not None:
            self._log(self._spool, record)
        if self.is_spilled:
            self.length += record.size
        else:
            self._take(record)
            self._in_memory += record.stored

    def _take(self, record: NewRecord) -> None:
        self.known_to = None
        earlier = self.last.get(record.oid)
        if earlier is not None and earlier.restored is record.restored is None:
            self.length -= earlier.size
            earlier.stores(record.data, record.stored, record.oldserial)
            self.length += earlier.size
        else:
            self._has_last(record)

    def _has_last(self, record: NewRecord) -> None:
        self.records.append(record)
        self.last[record.oid] = record
        self.length += record.size

    def reads(self, oid: bytes, serial: bytes) -> None:
        if self.undone:
            self._refuse_beside_undos()
        if self._spool is not None:
            self._spool.add(spool.READ, oid, serial)
        if not self.is_spilled:
            self.known_to = None
            self.read[oid] = serial

    # What it undoes

    def _refuse_beside_undos(self) -> None:
        raise StorageTransactionError(
            'a transaction that undoes others stores and reads nothing else')

    def undoes(self, tid: bytes) -> None:
        if not self.undone and (
                self.records or self.read or self.is_spilled):
            raise StorageTransactionError(
                'a transaction that has stored or read something undoes no'
                ' other')
        if len(self.undone) == MOST_UNDONE:
            raise StorageTransactionError(
                f'a transaction undoes at most {MOST_UNDONE} others: undo the'
                ' rest in another one')
        self.undone.append(tid)

    def add_undoing(self, record: NewRecord) -> None:
        """Take a record that undoes another."""
        self._in_memory += record.stored
        if self._in_memory > SPOOL_IN_MEMORY:
            record.data = self._the_spool().add(
                spool.DATA, data=self.read_data(record.data))
        self._has_last(record)

    def forget_undoing(self) -> None:
        """Forget the records that undo others: they are worked out again."""
        self._forget()
        self.length = self._header_length + LENGTH_BEHIND
        self._in_memory = 0

    # In the spool

    def spill(self) -> None:
        """Keep nothing of it in memory until its vote."""
        if self.undone:
            self.forget_undoing()
            return
        self._the_spool()
        self._forget()
        self.is_spilled, self._in_memory = True, 0

    def _forget(self) -> None:
        self.records, self.last, self.read = [], {}, {}
        self.known_to = None

    def _the_spool(self) -> Spool:
        """The spool, which has all that was stored, from now on."""
        if self._spool is None:
            new = Spool(self._directory)
            try:
                if not self.undone:
                    self._log_all(new)
            except BaseException:
                new.close()
                raise
            self._spool = new
        return self._spool

    def _log_all(self, to: Spool) -> None:
        for record in self.records:
            self._log(to, record)
        for oid, serial in self.read.items():
            to.add(spool.READ, oid, serial)

    @staticmethod
    def _log(to: Spool, record: NewRecord) -> None:
        kind, serial, other = spool.STORE, record.oldserial, z64
        if record.restored is not None:
            kind = spool.RESTORE
            serial, other = record.serial or z64, record.restored.tid or z64
        stored = record.data if record.original is None else record.original
        assert isinstance(stored, bytes)
        to.add(kind, record.oid, serial, other, stored)

    def come_back(self) -> None:
        """The vote needs all of it, but for the data."""
        assert self._spool is not None
        self._forget()
        self.length = self._header_length + LENGTH_BEHIND
        for each in self._spool.entries():
            if each.kind == spool.READ:
                self.read[each.oid] = each.serial
            elif each.kind == spool.STORE:
                record = NewRecord(each.oid, b'')
                record.stores(each.data, each.length, each.serial)
                self._take(record)
            elif each.kind == spool.RESTORE:
                record = NewRecord(
                    each.oid, b'', serial=each.serial, restored=Restored(
                        None if each.other == z64 else each.other))
                record.has(each.data, each.length)
                self._take(record)
        self.is_spilled = False

    def flush(self) -> None:
        """A full disk is an error now, not later."""
        if self._spool is not None:
            self._spool.flush()

    def read_data(self, data: StoredData) -> bytes:
        """The bytes of `data` or `original` of a record."""
        if not isinstance(data, int):
            return data
        assert self._spool is not None
        return self._spool.read(data)

    def resolve(self, record: NewRecord, data: bytes) -> None:
        """A conflict was resolved: give the record its new data."""
        if record.original is None:
            record.original = record.data
        stored: StoredData = data
        self._in_memory += len(data)
        if self._spool is not None or self._in_memory > SPOOL_IN_MEMORY:
            stored = self._the_spool().add(spool.DATA, data=data)
        self.length -= record.size
        record.has(stored, len(data))
        self.length += record.size

    def points_to(self, record: NewRecord, back: int) -> None:
        self.length -= record.size
        record.points_to(back)
        self.length += record.size

    # In the file

    def is_large(self) -> bool:
        """Does writing the transaction, or locking its objects, take longer
        than others should wait?"""
        return (self.length > MOST_BYTES_AT_ONCE
                or len(self.records) + len(self.read) > MOST_OBJECTS_AT_ONCE)

    def write(self, file: DataFile, tid: bytes, start: int, durable: int,
              counts: bool) -> None:
        """Write the transaction at `start`.

        `durable`: the file is known to be durable up to this position.
        `counts`: write the final status; else status 'c', for now.
        """
        self.tid, self.start = tid, start
        length = self.length - LENGTH_BEHIND  # as in the header
        status = self.status if counts else b'c'
        body: list[bytes] = []
        crc = 0
        position = at = first = start + self._header_length
        remembers = len(self.records) <= MOST_SERIALS
        for record in self.records:
            record.position = at
            serial = record.serial or tid
            if remembers:
                file.serials[at] = serial
                # The old serial is hardly ever needed again.  It would take
                # the place of one that each commit of its object needs.
                file.serials.pop(record.previous, None)
            at += record.size
            content: Any = (record.data if record.length
                            else _number.pack(record.back))
            if content.__class__ is int:  # it is in the spool
                content = self.read_data(content)
            body += _record_header.pack(
                record.oid, serial, record.previous, start, 0,
                record.length), content
            if at - position > COPY_CHUNK:
                chunk = b''.join(body)
                file.write_at(chunk, position)
                crc = zlib.crc32(chunk, crc)
                body, position = [], at
        body.append(_number.pack(length))
        rest = b''.join(body)
        header = self._header(status, length, zlib.crc32(rest, crc), durable)
        if position == first:  # one write for everything
            file.write_at(header + rest, start)
        else:
            file.write_at(rest, position)
            file.write_at(header, start)
        if len(file.serials) > MOST_SERIALS:
            file.serials.clear()

    def _header(self, status: bytes, length: int, records_crc: int,
                durable: int) -> bytes:
        """The header; the seal in it has the final status."""
        user, description, extension = self._lengths
        front = _header.pack(
            self.tid, length, self.status, user, description, extension
            ) + self._texts
        field = self._extension
        if self.sealed:
            field = seal.make(
                front, field, self.status, self.start, length, durable,
                records_crc, self.commit_id)
        if status == self.status:
            return front + field
        return b''.join((front[:STATUS_OFFSET], status,
                         front[STATUS_OFFSET + 1:], field))

    # The end

    def close(self) -> None:
        """Free the data of its records."""
        self.records, self.last = [], {}
        if self._spool is not None:
            self._spool.close()

    def abandon(self) -> None:
        """Called in the child of a fork: the spool is the parent's."""
        if self._spool is not None:
            self._spool.abandon()
