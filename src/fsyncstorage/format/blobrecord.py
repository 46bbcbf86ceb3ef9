"""Is a record that of a blob?  Its first bytes show it, without unpickling.

ZODB's function for this unpickles the record, which can take 4 GB for a memo
index of five bytes, and needs all of a compressed record.  But every blob
record of ZODB begins in the same way: its first pickle is the class.

Left to others: records that only a wrapper can read, which may be blobs or not
(check.verify).
"""

import binascii
import re
import zlib

# The class alone, perhaps remembered in the memo.
_CLASS = re.compile(
    rb'(?:\x80.)?cZODB\.blob\nBlob\n(?:q.|r.{4}|p[0-9]{1,9}\n)?\.', re.DOTALL)

# More than the length of the longest match in hex.
_ENOUGH = 128
#: So many bytes of a record suffice, even if it is compressed.  The number is
#: even, because of hex.
FRONT = 1024


def is_of_blob(front: bytes) -> bool:
    """Is this the record, or its first `FRONT` bytes, of a blob?

    It may be compressed (zc.zlibstorage) and hexed, as in `wrapped.unwrap`.
    """
    if front[:1] == b'.':  # compressed, or hexed
        front = unwrapped(front, _ENOUGH)
    return _CLASS.match(front) is not None


def unwrapped(front: bytes, enough: int) -> bytes:
    """The first bytes of a record that a wrapper has changed; of a compressed
    one, at most `enough` bytes.  Empty, if they cannot be read."""
    try:
        for _ in range(2):
            if front[:2] == b'.z':
                front = zlib.decompressobj().decompress(front[2:], enough)
            elif front[:2] == b'.h':
                front = binascii.unhexlify(front[2:])
    except (ValueError, zlib.error):
        return b''
    return front
