"""Records and identities for tests."""

import itertools
import struct
import zlib

from fsyncstorage.quorum.history.record import FRONT
from fsyncstorage.quorum.history.record import Data
from fsyncstorage.quorum.history.record import Record
from fsyncstorage.quorum.history.record import pack

LOG = b'the log'.ljust(16)
OTHER = b'another log'.ljust(16)
#: The identity of a node.
SELF = b'this node'.ljust(16)
#: The file begins with the magic of a Data.fs.
MAGIC = b'FS30'

# Where a field is in the bytes of a record, and in those of its Data.
VERSION, KIND, SEQUENCE, EPOCH = 8, 9, 26, 50
BEGIN, END, BLOBS = (FRONT + offset for offset in (0, 8, 16))


def with_sum(raw):
    """The same bytes, with a length and a CRC that are right."""
    front, rest = raw[:FRONT - 8], raw[FRONT:]
    front += struct.pack('>I', len(rest))
    return front + struct.pack('>I', zlib.crc32(front + rest)) + rest


def changed(raw, offset, shape, value):
    """A record with another value in one of its fields."""
    raw = bytearray(raw)
    struct.pack_into(shape, raw, offset, value)
    return with_sum(bytes(raw))


def identify(front):
    """Makes identities, as a writer wants them, always the same ones."""
    numbers = itertools.count()
    return lambda: f'{front} {next(numbers)}'.encode().ljust(16)


def following(state, body, position=None, **fields):
    """The bytes of a record that follows a state, but for these fields."""
    return pack(Record(**{
        'log': state.log, 'sequence': state.place.sequence + 1,
        'previous': state.place.link, 'epoch': state.epoch,
        'writer': state.writer, 'batch': b'batch'.ljust(16),
        'generation': state.generation,
        'position': state.next if position is None else position,
        'body': body, **fields}))


def data(state, content, end=None, blobs=()):
    """The next chunk of a batch: its last one, unless it ends later."""
    return Data(
        state.end, state.next + len(content) if end is None else end,
        blobs, content)


def settle(writer, tries=20):
    """Let it write what it has begun to."""
    for _ in range(tries):
        if writer.advance():
            return
    raise AssertionError('it takes too long')
