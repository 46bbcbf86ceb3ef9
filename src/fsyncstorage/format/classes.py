"""The classes of records, by name, without importing or calling anything.

A record begins with a pickle of its class.  ZODB's `get_pickle_metadata`
returns the name, and `is_blob_record` tells whether it is that of a blob.  If
they do not see the name at once, they unpickle, which imports and calls what
the pickle names, and can take 4 GB for a memo index of five bytes.  Here only
the first bytes of a record are looked at.

ZODB writes the class alone, or in a tuple with arguments.  A record of another
form, as releases of ZODB wrote it long ago, has no name.

Names come from the file, so their number and their length have bounds.  When
there are too many names, further classes count under `OTHERS`, so that totals
stay right.

Left to others: whole records (references), and records that only a wrapper can
read, which may be of blobs or not (check.verify).
"""

import binascii
import re
import zlib

from . import scan
from .window import Window

#: So many bytes of a record nearly always suffice for its name.
FRONT = 256
#: So many bytes of a record always suffice for its name.
ENOUGH = 4096
#: So many bytes show whether it is that of a blob, even if it is compressed.
#: The number is even, because of hex.
FRONT_OF_BLOB = 1024
# More than a record of a blob has of its class, in hex.
_ENOUGH_OF_BLOB = 128
#: At most so many bytes of a name are shown.
LONGEST = 200
#: Shown at the end of a name that is longer.
CUT_OFF = '...'

# The class comes first, alone or in a tuple.
_CLASS = re.compile(rb'(?:\x80.)?\(?c([^\n]*)\n([^\n]*)\n', re.DOTALL)
# The class of blobs alone, perhaps remembered in the memo.
_BLOB = re.compile(
    rb'(?:\x80.)?cZODB\.blob\nBlob\n(?:q.|r.{4}|p[0-9]{1,9}\n)?\.', re.DOTALL)
# The bound of different names.
MOST_NAMES = 20_000

OTHERS = '(others)'
UNKNOWN_CLASS = '(unknown class)'
#: The class of a record that only its storage wrapper can read.
WRAPPED = '(wrapped record)'
BLOB = 'ZODB.blob.Blob'


def is_of_blob(front: bytes) -> bool:
    """Is this the record, or its first `FRONT_OF_BLOB` bytes, of a blob?"""
    if front[:1] == b'.':
        front = _unwrapped(front, _ENOUGH_OF_BLOB)
    return _BLOB.match(front) is not None


def class_name(record: bytes) -> str | None:
    """Module and name of the class of a record, or None."""
    front = record[:ENOUGH]
    if front[:1] == b'.':
        front = _unwrapped(front, ENOUGH)
    found = _CLASS.match(front)
    return '.'.join(map(_shown, found.groups())) if found else None


def _unwrapped(front: bytes, enough: int) -> bytes:
    """The first bytes of a record, without what a storage wrapper has made of
    them: compressed (zc.zlibstorage) or hexed; of a compressed one, at most
    `enough` bytes.  Empty, if they cannot be read."""
    try:
        for _ in range(2):
            if front[:2] == b'.z':
                front = zlib.decompressobj().decompress(front[2:], enough)
            elif front[:2] == b'.h':
                front = binascii.unhexlify(front[2:])
    except (ValueError, zlib.error):
        return b''
    return front


def _shown(name: bytes) -> str:
    text = name[:LONGEST].decode('utf-8', 'backslashreplace')
    return text + CUT_OFF if len(name) > LONGEST else text


def class_of(window: Window, position: int, length: int) -> str:
    """The class of the record at a position, with data of this length, or what
    is shown in its place."""
    front = window.read(
        position + scan.RECORD_HEADER, min(length, ENOUGH))
    is_wrapped = front[:1] == b'.' and front[:2] not in (b'.z', b'.h')
    return class_name(front) or (WRAPPED if is_wrapped else UNKNOWN_CLASS)


class Classes:
    """The classes of a file: each has a number, and figures of its records."""

    def __init__(self) -> None:
        self.names: list[str] = []
        #: For each number: how many records, and the bytes of their data.
        self.records: list[int] = []
        self.bytes: list[int] = []
        self._numbers: dict[str, int] = {}
        #: The beginning of a record -> the number of its class.
        self._by_beginning: dict[bytes, int] = {}
        # Number 0: an object has it until its class is known.
        self.named(UNKNOWN_CLASS)
        self.named(WRAPPED)
        self.blob = self.named(BLOB)
        self._others = self.named(OTHERS)

    def named(self, name: str) -> int:
        """The number of the class of that name."""
        number = self._numbers.get(name)
        if number is None:
            if len(self.names) >= MOST_NAMES:
                return self._others
            number = self._numbers[name] = len(self.names)
            self.names.append(name)
            self.records.append(0)
            self.bytes.append(0)
        return number

    def of_record(self, window: Window, position: int, length: int) -> int:
        """The number of the class of the record at a position, with data of
        this length."""
        begin = position + scan.RECORD_HEADER
        found = _CLASS.match(window.read(begin, min(length, FRONT)))
        if found is None:
            return self.named(class_of(window, position, length))
        number = self._by_beginning.get(found[0])
        if number is None:
            number = self.named(class_name(found[0]) or UNKNOWN_CLASS)
            if len(self._by_beginning) < MOST_NAMES:
                self._by_beginning[found[0]] = number
        return number
