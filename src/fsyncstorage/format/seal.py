"""The seal: a checksum for each transaction, in the stock file format.

A seal stands at the end of the transaction's extension field, behind the STOP
of the pickle there.  Every unpickler stops at STOP, so stock code never sees
it.  An empty extension becomes the pickle of ``{}``, which a flag notes.  Its
44 bytes are listed in docs/internals/file.rst.

The crc covers, in this order: the data records, the length behind them, and
the header with its final status, user, description and extension up to here.
The records come first, so that it can be kept while they are stored.

A sound seal in another position than it names was *moved* there by a stock
tool (a pack, a copy): its transaction counts as unsealed.

This module makes seals, strips them and checks them.  It reads no file.
"""

import contextlib
import pickletools
import struct
import typing
import zlib

MAGIC = b'\xf5FSYNC\r\n'
VERSION = 1
WAS_EMPTY = 1

EMPTY_PICKLE = b'}.'
LONGEST_EXTENSION = 0xffff

# Magic, version, flags, status, position, length, durable.
_FRONT = struct.Struct('>8sBBcxQQQ')
_CRC = struct.Struct('>I')
SIZE = _FRONT.size + 2 * _CRC.size

# What a seal tells about its transaction.
SOUND = 'sound'
ABSENT = 'absent'
MOVED = 'moved'
DAMAGED = 'damaged'


class Seal(typing.NamedTuple):
    flags: int
    status: bytes
    position: int
    length: int
    durable: int
    crc: int

    @property
    def was_empty(self) -> bool:
        return bool(self.flags & WAS_EMPTY)


def room(extension: bytes) -> int:
    """Bytes that a seal adds to an extension; 0 if it cannot carry one."""
    length = len(extension)
    more = SIZE if length else SIZE + len(EMPTY_PICKLE)
    return more if length + more <= LONGEST_EXTENSION else 0


def make(front: bytes, extension: bytes, status: bytes, position: int,
         length: int, durable: int, records_crc: int) -> bytes:
    """The extension field of a transaction, sealed.

    `front` is the header with the final status, user and description;
    `records_crc` the crc of the records and the length behind them.
    """
    flags = 0 if extension else WAS_EMPTY
    body = extension or EMPTY_PICKLE
    seal = _FRONT.pack(
        MAGIC, VERSION, flags, status, position, length, durable)
    seal += _CRC.pack(zlib.crc32(front + body + seal, records_crc))
    return body + seal + _CRC.pack(zlib.crc32(seal))


def find(field: bytes) -> Seal | None:
    """The seal at the end of an extension field, or None."""
    return parse(field[-SIZE:])


def parse(data: bytes) -> Seal | None:
    """The seal in these bytes, or None if they are none."""
    if len(data) != SIZE or not data.startswith(MAGIC):
        return None
    check, = _CRC.unpack(data[-_CRC.size:])
    if zlib.crc32(data[:-_CRC.size]) != check:
        return None
    _, version, flags, status, position, length, durable = _FRONT.unpack(
        data[:_FRONT.size])
    if version != VERSION:
        return None
    crc, = _CRC.unpack_from(data, _FRONT.size)
    return Seal(flags, status, position, length, durable, crc)


def strip(field: bytes) -> bytes:
    """The extension that the user wrote."""
    seal = find(field)
    if seal is None:
        return field
    return b'' if seal.was_empty else field[:-SIZE]


def verify(position: int, front: bytes, field: bytes,
           records_crc: int) -> str:
    """What the seal tells about the transaction at `position`.

    `front` is the header with user and description as they are in the file,
    `field` the extension field, `records_crc` as for `make`.
    """
    seal = find(field)
    if seal is None:
        return (DAMAGED if MAGIC in front or may_have_been_sealed(field)
                else ABSENT)
    if seal.position != position:
        return MOVED
    # The crc stands between what it covers and the check.
    covered = front + field[:-2 * _CRC.size]
    if zlib.crc32(covered, records_crc) != seal.crc:
        return DAMAGED
    return SOUND


def may_have_been_sealed(field: bytes) -> bool:
    """Does an extension contain the rest of a seal?

    That is, its magic anywhere (then the sizes in the header are wrong); or at
    the end, with one byte changed, or with zeros for what was lost; or bytes
    of its size behind a pickle.  Anything else was written by the application:
    to stock, an extension may be any bytes.
    """
    found = field[-SIZE:]
    if len(found) < SIZE:
        return False
    as_expected = sum(
        byte in (0, expected) for byte, expected in zip(found, MAGIC))
    return (as_expected >= len(MAGIC) - 1 or MAGIC in field
            or _length_of_pickle(field) == len(field) - SIZE)


def _length_of_pickle(field: bytes) -> int | None:
    """The length up to its STOP; None if it is no pickle."""
    # (pickletools does not define what it raises.)
    with contextlib.suppress(Exception):
        for opcode, _, at in pickletools.genops(field):
            if opcode.name == 'STOP' and at is not None:
                return at + 1
    return None
