"""Many stores of one transaction, as one message.

One frame for each store would cost both sides more than everything else that
they do with a record.  Here each step is one call for all stores.  The format
is::

    number of stores, the length of each one's data,   4 bytes each
    oid and serial of each,                            8 and 8
    the data of each

It touches no file, socket, thread or clock.
"""

import itertools
import struct
from collections.abc import Iterator
from collections.abc import Sequence

from .framing import PeerError
from .framing import check

# An oid, the serial that it replaces, and the new data.
Store = tuple[bytes, bytes, bytes]

#: Most bytes of a message.  A server takes all of it in one step, and always
#: has room for a frame of this size.
LONGEST = 65_000
#: Bytes that a store takes in addition to its data.
OVERHEAD = 20

_COUNT = struct.Struct('>I')
_IDENTIFIERS = struct.Struct('8s8s')


def pack(stores: Sequence[Store]) -> bytes:
    oids, serials, data = zip(*stores)
    check(*oids, *serials)
    return b''.join((
        _COUNT.pack(len(data)), _lengths(len(data)).pack(*map(len, data)),
        *itertools.chain.from_iterable(zip(oids, serials)), *data))


def size(message: bytes) -> int:
    """How many stores it has.  Raise PeerError if it is no such message."""
    if _COUNT.size <= len(message) <= LONGEST:
        count: int = _COUNT.unpack_from(message)[0]
        left = len(message) - _COUNT.size - count * OVERHEAD
        if count and left >= 0 and left == sum(
                _lengths(count).unpack_from(message, _COUNT.size)):
            return count
    raise PeerError(f'no stores, but {len(message)} bytes')


def stores(message: bytes) -> Iterator[Store]:
    """The stores in a message that has the right form (`size`)."""
    count = size(message)
    lengths = _lengths(count)
    at = _COUNT.size + lengths.size
    begin = at + count * _IDENTIFIERS.size
    for (oid, serial), length in zip(
            _IDENTIFIERS.iter_unpack(message[at:begin]),
            lengths.unpack_from(message, _COUNT.size)):
        yield oid, serial, message[begin:begin + length]
        begin += length


def _lengths(count: int) -> struct.Struct:
    return struct.Struct(f'>{count}I')
