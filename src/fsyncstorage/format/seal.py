"""The seal: a checksum and a commit id for each transaction, in the stock file
format.

A seal stands at the end of the transaction's extension field, behind the STOP
of the pickle there.  Every unpickler stops at STOP, so stock code never sees
the seal.  An empty extension becomes the pickle of ``{}``, and a flag in the
seal notes that.

In every version the magic, the version, the size and the position stand where
they stand now, and the last four bytes are the check value of all bytes before
them.  So a reader of any version finds a seal of any other.  A reader that
does not know the version raises `UnknownVersion`: if it took the seal for
damage, it would cut off what a newer release has acknowledged.

If a sound seal is at another position than it names, a stock tool has *moved*
it there (a pack, a copy): its transaction counts as unsealed.

This module makes seals, strips them and checks them.  It reads no file.
"""

import contextlib
import pickletools
import struct
import typing
import zlib
from collections.abc import Iterator

from ZODB.POSException import StorageError

MAGIC = b'\xf5FSYNC\r\n'
VERSION = 3
#: A flag.
WAS_EMPTY = 1
#: The id of a transaction that has none.
NO_ID = bytes(16)

EMPTY_PICKLE = b'}.'
LONGEST_EXTENSION = 0xffff

# A seal, with its numbers in big-endian order:
#
#       0  8 s  magic
#       8  B    version
#       9  B    flags: WAS_EMPTY
#      10  c    status: the one that the transaction finally has
#      11  B    size of the seal: 61
#      12  Q    position of the transaction in the file
#      20  Q    length, as in the transaction's header
#      28  Q    durable: all before this position was durable by then
#      36  I    crc of the records, the length behind them, and the header
#               with its final status, user, description, and extension up to
#               here, in this order
#      40  x    zero
#      41  16 s commit id; zeros: it has none
#      57  I    check value: the crc of the 57 bytes before
#
# The records come first in the crc, so that it can be begun before the header
# is known.  The id is chosen by a client, who could choose the begin of a seal
# of another version: so too few bytes are left from there on, and no magic can
# begin before the id and go on in it.
_FRONT = struct.Struct('>8sBBcBQQQ')
_REST = struct.Struct('>Ix16s')
_CHECK = struct.Struct('>I')
SIZE = _FRONT.size + _REST.size + _CHECK.size

# Of a seal of any version: magic, version, size, position.
_ANY_VERSION = struct.Struct('>8sB2xBQ')
SMALLEST = _ANY_VERSION.size + _CHECK.size
#: A size is one byte.
LARGEST = 0xff
# Version 1 had zero in the place of the size.
_SIZE_OF_THE_FIRST = 44
# Bytes of a transaction's header, before the user.
_HEADER = 23

# What a seal shows about its transaction.
SOUND = 'sound'
ABSENT = 'absent'
MOVED = 'moved'
DAMAGED = 'damaged'


class UnknownVersion(StorageError):
    """A transaction has a sound seal of a version that is not known here.

    Another release of this package wrote the file, which must not be changed.
    """

    def __init__(self, position: int, version: int, size: int) -> None:
        super().__init__(position, version, size)
        self.position = position
        self.version = version
        self.size = size
        #: The file, if it is known.
        self.path = ''

    def __str__(self) -> str:
        release = 'An older' if self.version < VERSION else 'A newer'
        place = f'{self.path}: ' if self.path else ''
        return (f'{place}the transaction at {self.position} has a seal of'
                f' version {self.version} ({self.size} bytes); this release'
                f' of fsyncstorage knows version {VERSION} ({SIZE} bytes).'
                f' {release} release wrote the file: use that. Nothing was'
                ' changed')


@contextlib.contextmanager
def naming(path: str) -> Iterator[None]:
    """A context: an UnknownVersion in it names this file."""
    try:
        yield
    except UnknownVersion as error:
        error.path = path
        raise


class Seal(typing.NamedTuple):
    flags: int
    status: bytes
    position: int
    length: int
    durable: int
    crc: int
    id: bytes

    @property
    def was_empty(self) -> bool:
        return bool(self.flags & WAS_EMPTY)


def room(extension: bytes) -> int:
    """Bytes that a seal adds to an extension; 0 if it cannot carry one."""
    length = len(extension)
    more = SIZE if length else SIZE + len(EMPTY_PICKLE)
    return more if length + more <= LONGEST_EXTENSION else 0


def make(front: bytes, extension: bytes, status: bytes, position: int,
         length: int, durable: int, records_crc: int,
         id: bytes = NO_ID) -> bytes:
    """The extension field of a transaction, with its seal.

    `front` is the header with the final status, user and description;
    `records_crc` is the crc of the records and the length behind them.
    """
    flags = 0 if extension else WAS_EMPTY
    body = extension or EMPTY_PICKLE
    seal = _FRONT.pack(
        MAGIC, VERSION, flags, status, SIZE, position, length, durable)
    seal += _REST.pack(zlib.crc32(front + body + seal, records_crc), id)
    return body + seal + _CHECK.pack(zlib.crc32(seal))


def find(field: bytes) -> Seal | None:
    """The seal at the end of an extension field, or None.

    UnknownVersion if it is sound, and of another version.
    """
    # The last magic that fits: a user can choose the bytes before our seal
    # such that, together with it, they are a sound seal of another version.
    first = max(len(field) - LARGEST, 0)
    begin = field.rfind(MAGIC, first)
    while begin >= 0:
        found = field[begin:]
        if (size := size_of(found)) == len(found):
            return parse(found, size)
        begin = field.rfind(MAGIC, first, begin)
    return None


def size_of(data: bytes) -> int:
    """The size of the seal of any version that these bytes begin with; 0 if
    they do not begin with a sound seal."""
    if len(data) < SMALLEST or not data.startswith(MAGIC):
        return 0
    _, version, size, _ = _ANY_VERSION.unpack_from(data)
    if version == 1:
        size = _SIZE_OF_THE_FIRST
    if not SMALLEST <= size <= len(data):
        return 0
    checked = size - _CHECK.size
    check, = _CHECK.unpack_from(data, checked)
    return size if zlib.crc32(data[:checked]) == check else 0


def parse(data: bytes, size: int | None = None) -> Seal | None:
    """The seal that these bytes begin with, of this size, if that is known; or
    None if there is none.

    UnknownVersion if it is sound, and of another version.
    """
    if not (size := size_of(data) if size is None else size):
        return None
    _, version, _, position = _ANY_VERSION.unpack_from(data)
    if version != VERSION or size != SIZE:
        raise UnknownVersion(position, version, size)
    _, _, flags, status, _, position, length, durable = _FRONT.unpack_from(
        data)
    crc, id = _REST.unpack_from(data, _FRONT.size)
    return Seal(flags, status, position, length, durable, crc, id)


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
        return (DAMAGED if MAGIC in front[_HEADER:]
                or may_have_been_sealed(field) else ABSENT)
    if seal.position != position:
        return MOVED
    covered = front + field[:_FRONT.size - SIZE]
    if zlib.crc32(covered, records_crc) != seal.crc:
        return DAMAGED
    return SOUND


def would_mislead(texts: bytes, extension: bytes, is_sealed: bool) -> bool:
    """Could a reader of any version take what a user wrote for a seal, or for
    what is left of one?

    `texts` are user and description.  `is_sealed`: our seal will follow, and
    readers look at that; but a copy takes it off.
    """
    return MAGIC in extension or not is_sealed and (
        MAGIC in texts or may_have_been_sealed(extension))


def may_have_been_sealed(field: bytes) -> bool:
    """Does an extension contain the remains of a seal?

    These are: the magic of a seal anywhere (then the sizes in the header are
    wrong); the magic at the end, with one byte changed, or with zeros in place
    of lost bytes, unless all of the field is one pickle; or as many bytes as a
    seal has, behind a pickle.  The application wrote anything else: to stock,
    an extension may be any bytes.
    """
    found = field[-SIZE:]
    if len(found) < SIZE:
        return False
    if MAGIC in field:
        return True
    as_expected = sum(
        byte in (0, expected) for byte, expected in zip(found, MAGIC))
    if as_expected >= len(MAGIC) - 1:
        return _length_of_pickle(field) != len(field)
    return _length_of_pickle(field) == len(field) - SIZE


def _length_of_pickle(field: bytes) -> int | None:
    """The length of a pickle up to its STOP; None if this is no pickle."""
    # (pickletools does not define what it raises.)
    with contextlib.suppress(Exception):
        for opcode, _, at in pickletools.genops(field):
            if opcode.name == 'STOP' and at is not None:
                return at + 1
    return None
