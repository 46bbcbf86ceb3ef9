"""The seal: a checksum for each transaction, in the stock file format.

A seal stands at the end of the transaction's extension field, behind the STOP
of the pickle there.  Every unpickler stops at STOP, so stock code never sees
the seal.  An empty extension becomes the pickle of ``{}``, and a flag in the
seal notes that.  docs/internals/file.rst lists the 44 bytes of a seal.

The crc covers, in this order: the data records, the length behind them, and
the header with its final status, user, description and extension up to the
crc.  The records come first, so that their crc can be computed before the
header is known.

If a sound seal is at another position than it names, a stock tool has *moved*
it there (a pack, a copy): its transaction counts as unsealed.

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

# What a seal shows about its transaction.
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
    """The extension field of a transaction, with its seal.

    `front` is the header with the final status, user and description;
    `records_crc` is the crc of the records and the length behind them.
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
    """The seal in these bytes, or None if they are no seal."""
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
    """What the seal shows about the transaction at `position`.

    `front` is the header with user and description as they are in the file,
    `field` is the extension field, and `records_crc` is as for `make`.
    """
    seal = find(field)
    if seal is None:
        return (DAMAGED if MAGIC in front or may_have_been_sealed(field)
                else ABSENT)
    if seal.position != position:
        return MOVED
    # The crc stands between the bytes that it covers and the check.
    covered = front + field[:-2 * _CRC.size]
    if zlib.crc32(covered, records_crc) != seal.crc:
        return DAMAGED
    return SOUND


def may_have_been_sealed(field: bytes) -> bool:
    """Does an extension contain the remains of a seal?

    These are: the magic of a seal anywhere (then the sizes in the header are
    wrong); the magic at the end, with one byte changed, or with zeros in place
    of lost bytes; or as many bytes as a seal has, behind a pickle.  The
    application wrote anything else: to stock, an extension may be any bytes.
    """
    found = field[-SIZE:]
    if len(found) < SIZE:
        return False
    as_expected = sum(
        byte in (0, expected) for byte, expected in zip(found, MAGIC))
    return (as_expected >= len(MAGIC) - 1 or MAGIC in field
            or _length_of_pickle(field) == len(field) - SIZE)


def _length_of_pickle(field: bytes) -> int | None:
    """The length of a pickle up to its STOP; None if this is no pickle."""
    # (pickletools does not define what it raises.)
    with contextlib.suppress(Exception):
        for opcode, _, at in pickletools.genops(field):
            if opcode.name == 'STOP' and at is not None:
                return at + 1
    return None
