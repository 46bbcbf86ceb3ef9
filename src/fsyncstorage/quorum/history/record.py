"""A record of the log: what it says, and its bytes.

Every record has a front of the same shape, and then a part that depends on its
kind:

    Data        bytes of Data.fs: a chunk of a batch
    Epoch       from this record on another writer writes
    PackBegin   all nodes may begin this pack
    PackSwap    the packed file takes the place of the old one
    PackEnd     the pack is given up
    Trim        the records before a given one may be removed from the log

A *batch* is the bytes of whole transactions, with the status that they finally
have.  Its chunks are consecutive records with the same id.

A record names the one before it by its *link*, a hash of its front.  The front
has the CRC of the rest, and the link of the record before.  So a link stands
for all of the log up to its record.  The first record names the log itself.
Two logs that were equal up to some record (one of them was restored from a
backup) have other links from there on, whatever their sequence numbers are.

The bytes of a log may be damaged, or made to do harm.  `parse` checks every
type and bound before anything is used, and its cost is proportional to the
size of the record.  `pack` makes no record that `parse` refuses.
"""

import hashlib
import struct
import typing
import zlib
from dataclasses import dataclass

MAGIC = b'\xf5QUORUM\n'
VERSION = 3

#: Bytes of an identity: of a log, a writer, a node, a batch, a staged blob.
IDENTITY = 16
#: Stands for "no identity".
NOBODY = bytes(IDENTITY)
#: Bytes of a link.
LINK = 16
#: Bytes of an oid, a tid and a checksum.
OID = 8
CHECKSUM = 32
#: The most bytes after the front of a record.  An engine must take records of
#: `LARGEST` bytes.
MOST = 1 << 20
#: The most bytes of a packer's version.
LONGEST_VERSION = 64
#: Positions, sequence numbers and the like are smaller.
LIMIT = 1 << 63

# Magic, version, kind, log, sequence, previous, epoch, writer, batch,
# generation, position, length of the rest.
_FRONT = struct.Struct('>8sBB16sQ16sQ16s16sQQI')
# The CRC of the front before it, and of the rest after it.
_CRC = struct.Struct('>I')
FRONT = _FRONT.size + _CRC.size
LARGEST = FRONT + MOST

# The fixed parts at the begin of each kind.
_DATA = struct.Struct('>QQI')
_EPOCH = struct.Struct('>16s')
_BEGIN = struct.Struct('>8sB')
_SWAP = struct.Struct('>16sQ32s')
_END = struct.Struct('>16s')
_TRIM = struct.Struct('>Q')

_BLOB = struct.Struct('>16s8s8sQ32s')
_PLACE = struct.Struct('>Q16s')

#: Bytes of one blob in a chunk, and how many bytes a chunk has for its blobs
#: and data together.
BLOB = _BLOB.size
ROOM = MOST - _DATA.size


class Damaged(ValueError):
    """These bytes are not a record."""


class Unknown(ValueError):
    """A whole record, but of a later release."""


class Place(typing.NamedTuple):
    """A record of one log: its number, and a link to all before it."""

    sequence: int
    link: bytes

    def packed(self) -> bytes:
        return _PLACE.pack(*self)


def node_name(node: str) -> bytes:
    """The name of a node, as the log has it."""
    return node.encode('ascii').ljust(IDENTITY, b'\0')


class Ends(typing.NamedTuple):
    """Where a log begins and ends."""

    log: bytes
    #: The number of the first record that the log has, or will have.
    first: int
    #: Its last record.
    head: Place


def parse_place(raw: bytes) -> Place:
    if len(raw) != _PLACE.size:
        raise Damaged(f'a place of {len(raw)} bytes')
    return Place._make(_PLACE.unpack(raw))


class Blob(typing.NamedTuple):
    """The blob staged under an identity is the blob of this object record."""

    staged: bytes
    oid: bytes
    tid: bytes
    #: Of the whole blob: by these a node checks that it has the right bytes,
    #: wherever the parts come from.
    size: int
    checksum: bytes


@dataclass(frozen=True, slots=True)
class Data:
    """A chunk of a batch.

    The blobs of a batch are in its first chunks, before any bytes; so its last
    chunk has bytes, and ends where the batch does.
    """

    #: Where the batch begins and ends in the file.
    begin: int
    end: int
    blobs: tuple[Blob, ...]
    #: The bytes at the position of the record.
    data: bytes

    def packed(self) -> bytes:
        return b''.join((
            _DATA.pack(self.begin, self.end, len(self.blobs)),
            *(_BLOB.pack(*each) for each in self.blobs), self.data))

    @classmethod
    def parsed(cls, rest: bytes) -> 'Data':
        begin, end, blobs = _DATA.unpack_from(rest)
        data_at = _DATA.size + blobs * _BLOB.size
        if data_at > len(rest):
            raise ValueError(f'{blobs} blobs')
        return cls(
            begin, end,
            tuple(map(Blob._make, _BLOB.iter_unpack(
                rest[_DATA.size:data_at]))),
            rest[data_at:])

    def check(self, position: int) -> None:
        _check_numbers(self.begin, self.end)
        for blob in self.blobs:
            _check_size(IDENTITY, blob.staged)
            _check_size(OID, blob.oid, blob.tid)
            _check_numbers(blob.size)
            _check_size(CHECKSUM, blob.checksum)
        if not self.begin <= position <= position + len(self.data) <= self.end:
            raise ValueError(
                f'{len(self.data)} bytes at {position} of a batch from'
                f' {self.begin} to {self.end}')
        if not self.data and (
                position != self.begin or position == self.end
                or not self.blobs):
            raise ValueError(f'a chunk without bytes, at {position}')


@dataclass(frozen=True, slots=True)
class Epoch:
    """From now on only the writer of this record writes.

    The chunks of a batch that is not complete are given up.
    """

    node: bytes

    def packed(self) -> bytes:
        return _EPOCH.pack(self.node)

    @classmethod
    def parsed(cls, rest: bytes) -> 'Epoch':
        return cls(*_EPOCH.unpack(rest))

    def check(self, position: int) -> None:
        _check_size(IDENTITY, self.node)


@dataclass(frozen=True, slots=True)
class PackBegin:
    """A pack of the file up to this record's position.

    The id of the pack is the `batch` of the record.
    """

    #: The pack time, as a tid; whether garbage is removed; what packs.
    time: bytes
    collects: bool
    version: bytes

    def packed(self) -> bytes:
        return _BEGIN.pack(self.time, self.collects) + self.version

    @classmethod
    def parsed(cls, rest: bytes) -> 'PackBegin':
        time, collects = _BEGIN.unpack_from(rest)
        return cls(time, _as_flag(collects), rest[_BEGIN.size:])

    def check(self, position: int) -> None:
        _check_size(OID, self.time)
        if not 0 < len(self.version) <= LONGEST_VERSION:
            raise ValueError(f'a version of {len(self.version)} bytes')


@dataclass(frozen=True, slots=True)
class PackSwap:
    """The file up to this record's position is replaced by the result of the
    pack: the next generation."""

    pack: bytes
    #: Of the new file.
    size: int
    checksum: bytes

    def packed(self) -> bytes:
        return _SWAP.pack(self.pack, self.size, self.checksum)

    @classmethod
    def parsed(cls, rest: bytes) -> 'PackSwap':
        return cls(*_SWAP.unpack(rest))

    def check(self, position: int) -> None:
        _check_size(IDENTITY, self.pack)
        _check_numbers(self.size)
        _check_size(CHECKSUM, self.checksum)


@dataclass(frozen=True, slots=True)
class PackEnd:
    """The pack is given up: it failed, was cancelled, or freed nothing."""

    pack: bytes

    def packed(self) -> bytes:
        return _END.pack(self.pack)

    @classmethod
    def parsed(cls, rest: bytes) -> 'PackEnd':
        return cls(*_END.unpack(rest))

    def check(self, position: int) -> None:
        _check_size(IDENTITY, self.pack)


@dataclass(frozen=True, slots=True)
class Trim:
    """No node needs the records before the record `first`."""

    first: int

    def packed(self) -> bytes:
        return _TRIM.pack(self.first)

    @classmethod
    def parsed(cls, rest: bytes) -> 'Trim':
        return cls(*_TRIM.unpack(rest))

    def check(self, position: int) -> None:
        _check_numbers(self.first)


Body = Data | Epoch | PackBegin | PackSwap | PackEnd | Trim

_KINDS: dict[int, type[Body]] = {
    1: Data, 2: Epoch, 3: PackBegin, 4: PackSwap, 5: PackEnd, 6: Trim}
_NUMBERS = {kind: number for number, kind in _KINDS.items()}


@dataclass(frozen=True, slots=True)
class Record:
    log: bytes
    #: 1 for the first one.
    sequence: int
    #: The link of the record before; in the first record, the log's identity.
    previous: bytes
    epoch: int
    writer: bytes
    batch: bytes
    #: Of the file; and the position in it.
    generation: int
    position: int
    body: Body


def pack(record: Record) -> bytes:
    """The bytes of a record; ValueError if it cannot be encoded."""
    _check(record)
    rest = record.body.packed()
    if len(rest) > MOST:
        raise ValueError(f'a record of {len(rest)} bytes')
    front = _FRONT.pack(
        MAGIC, VERSION, _NUMBERS[type(record.body)], record.log,
        record.sequence, record.previous, record.epoch, record.writer,
        record.batch, record.generation, record.position, len(rest))
    return b''.join((front, _CRC.pack(_crc(front, rest)), rest))


def parse(raw: bytes) -> Record:
    """Return the record in these bytes, which may be any bytes.

    Raise Damaged or Unknown.  (Every version has its front and its CRC in the
    same place.)
    """
    if len(raw) < FRONT or not raw.startswith(MAGIC):
        raise Damaged(f'{len(raw)} bytes that are no record')
    (_, version, kind, log, sequence, previous, epoch, writer, batch,
     generation, position, length) = _FRONT.unpack_from(raw)
    if len(raw) != FRONT + length:
        raise Damaged(f'a record of {length} bytes in {len(raw)}')
    rest = raw[FRONT:]
    crc, = _CRC.unpack_from(raw, _FRONT.size)
    if _crc(raw[:_FRONT.size], rest) != crc:
        raise Damaged(f'the CRC of the record that says {sequence} is wrong')
    if version != VERSION or kind not in _KINDS:
        raise Unknown(
            f'record {sequence} has kind {kind} of version {version}, which'
            ' this release does not know')
    if length > MOST:
        raise Damaged(f'a record of {length} bytes')
    try:
        record = Record(
            log, sequence, previous, epoch, writer, batch, generation,
            position, _KINDS[kind].parsed(rest))
        _check(record)
    except (struct.error, ValueError) as error:
        raise Damaged(f'record {sequence}: {error}') from None
    return record


def place_of(raw: bytes) -> Place:
    """The place of a record that was parsed or packed before."""
    sequence, = struct.unpack_from('>Q', raw, _SEQUENCE_AT)
    return Place(sequence, hashlib.blake2b(
        raw[:FRONT], digest_size=LINK).digest())


_SEQUENCE_AT = struct.calcsize('>8sBB16s')


def _crc(front: bytes, rest: bytes) -> int:
    return zlib.crc32(rest, zlib.crc32(front))


def _check(record: Record) -> None:
    _check_size(IDENTITY, record.log, record.writer, record.batch)
    _check_size(LINK, record.previous)
    _check_numbers(record.sequence, record.epoch, record.generation,
                   record.position)
    if not record.sequence or not record.epoch:
        raise ValueError('sequence numbers and epochs begin with 1')
    record.body.check(record.position)


def _check_size(size: int, *identifiers: bytes) -> None:
    """Struct would pad or cut an identifier of another size."""
    for each in identifiers:
        if len(each) != size:
            raise ValueError(f'{each!r} has not {size} bytes')


def _check_numbers(*numbers: int) -> None:
    for each in numbers:
        if not 0 <= each < LIMIT:
            raise ValueError(f'the number {each}')


def _as_flag(number: int) -> bool:
    if number > 1:
        raise ValueError(f'a flag of {number}')
    return bool(number)
