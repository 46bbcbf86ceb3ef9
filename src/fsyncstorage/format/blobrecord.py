"""Is a record that of a blob?  Read off its first bytes, building nothing.

What ZODB has for this unpickles the record, which a memo index of five bytes
makes take 4 GB; and all of what is compressed would have to be there.  But
what ZODB writes for a blob begins in one way: the first pickle is its class.

Left to others: records of wrappers that only the wrapper can read; nobody
knows whether they are of blobs (verify).
"""

import binascii
import re
import zlib

# The class alone, perhaps remembered in the memo.
_CLASS = re.compile(
    rb'(?:\x80.)?cZODB\.blob\nBlob\n(?:q.|r.{4}|p[0-9]{1,9}\n)?\.', re.DOTALL)

# More than the longest match takes in hex.
_ENOUGH = 128
#: So much of a record is enough when it is compressed, too; even, for hex.
FRONT = 1024


def is_of_blob(front: bytes) -> bool:
    """Is this the record, or its first `FRONT` bytes, of a blob?

    It may be compressed (zc.zlibstorage) and hexed, as `verify.unwrap` knows.
    """
    if front[:1] == b'.':  # so begins what is compressed, or hexed
        front = _unwrapped(front)
    return _CLASS.match(front) is not None


def _unwrapped(front: bytes) -> bytes:
    try:
        for _ in range(2):
            if front[:2] == b'.z':
                front = zlib.decompressobj().decompress(front[2:], _ENOUGH)
            elif front[:2] == b'.h':
                front = binascii.unhexlify(front[2:])
    except (ValueError, zlib.error):
        return b''
    return front
