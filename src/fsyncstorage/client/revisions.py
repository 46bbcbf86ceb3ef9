"""The ends of revisions in the file of a cache.

Objects that were written together lie side by side.  Their headers are read
with one call, and written back with one.
"""

import os
import struct

from ZODB.utils import z64

from .gathered import END

# Headers are changed together if they lie within `BLOCK` bytes, and none of
# them is further than `GAP` bytes from the one before.
BLOCK = 1 << 16
GAP = 1 << 12

# The first part of the header: status, oid, first tid, end tid.
_identity = struct.Struct('>c4x8s8s8s')


def end(descriptor, found):
    """Note in the file which revisions end.

    `found` has position, oid and tid of each, in the order of the positions.
    Yield position, oid and serial; OSError if one is not there.
    """
    first = 0
    for number in range(1, len(found) + 1):
        if (number == len(found)
                or found[number][0] - found[number - 1][0] > GAP
                or found[number][0] - found[first][0] > BLOCK):
            yield from _end_neighbours(descriptor, found[first:number])
            first = number


def _end_neighbours(descriptor, found):
    begin = found[0][0]
    length = found[-1][0] - begin + _identity.size
    block = bytearray(os.pread(descriptor, length, begin))
    if len(block) < length:
        raise OSError('it is too short')
    ended = []
    for position, oid, tid in found:
        at = position - begin
        status, there, serial, end = _identity.unpack_from(block, at)
        if status != b'a' or there != oid or end != z64:
            raise OSError(f'it is damaged at {position}')
        # As in ZEO, a record that begins with this transaction stays as it is,
        # and is in no index: it is current in the file, and is not found.
        if serial != tid:
            block[at + END:at + END + len(tid)] = tid
            ended.append((position, oid, serial))
    if os.pwrite(descriptor, block, begin) < len(block):
        raise OSError('not all of it was written')
    return ended
