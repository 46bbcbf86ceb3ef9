"""The object map: where each object's newest record is, in shared memory.

One process writes it (storage.objectmap), any number of others read it
(`MapReader`).  It belongs to one data file.  It is an array of 8-byte words in
the byte order of the machine::

    header      one page, see the words below
    directory   word i: which 512 oids chunk i is for (`oid >> 9`), plus 1;
                0: there is no such chunk yet
    chunks      512 words each: the position of the record of each oid; 0: not
                known here

Each word is stored in one step, so a reader never sees a part of it.  A chunk
is never moved, and its directory word never changes again, so a reader may
remember where the chunk is.

docs/internals/localreads.rst says in which order words are stored, why no
reader sees them in a wrong order, and what a reader may do with a position.
"""

import fcntl
import mmap
import os
import stat
import struct
import sys
from typing import Any

from . import NotAMap

WORD = 8
PAGE = 4096
WORDS_OF_A_PAGE = PAGE // WORD

# A chunk is one page.
CHUNK = WORDS_OF_A_PAGE
CHUNK_BITS = 9
IN_CHUNK = CHUNK - 1

#: Enough for 2 thousand million objects, if their oids are dense.
MOST_CHUNKS = 1 << 22

# The words of the header, by their numbers.
MAGIC = 0         # `MAGIC_WORD`, which also tells the byte order
CAPACITY = 1      # words of the directory, a multiple of 512
DEVICE = 2        # of the data file ...
INODE = 3
INSTANCE = 4      # two words: of the storage that writes the map
END = 6           # transactions from this position on are not published
DURABLE = 7       # records before this position are durable
RETIRED = 8       # not 0: new transactions are not in the map
ANNOUNCED = 9     # the last tid that clients were told of
DIRECTORY = WORDS_OF_A_PAGE

# (Each of these four words is read in one step, as by a memoryview.)
_marks = struct.Struct('@4Q')

#: The last byte is the version.
MAGIC_WORD = int.from_bytes(b'FSMAP\0\0\3', 'big')
#: A storage draws as many random bytes each time when it is opened.
INSTANCE_SIZE = 16

# Linux 5.1; Python 3.15 will name it.
F_SEAL_FUTURE_WRITE = 0x10
#: A reader relies on this seal: if its memory were cut off, the process would
#: be killed.
_NEEDED_SEALS = getattr(fcntl, 'F_SEAL_SHRINK', 2)


def chunks_begin(capacity: int) -> int:
    """The number of the first word of the first chunk."""
    return DIRECTORY + capacity


def size_of(capacity: int) -> int:
    """The bytes of a map with room for this many chunks."""
    return WORD * (chunks_begin(capacity) + CHUNK * capacity)


def instance_of(words: memoryview) -> bytes:
    return words[INSTANCE:INSTANCE + INSTANCE_SIZE // WORD].tobytes()


class MapReader:
    """The map of another process.  `get` works as that of an index."""

    def __init__(self, descriptor: int, instance: bytes | None) -> None:
        """Map it into memory, or raise NotAMap, also for the map of another
        instance (None: any is taken); the descriptor may be closed then."""
        self._chunks: dict[int, int] = {}
        self._seen = 0
        try:
            self._memory = _mapped(descriptor)
        except (OSError, ValueError, OverflowError, AttributeError) as error:
            raise NotAMap(f'it cannot be mapped: {error}') from error
        self._words = memoryview(self._memory).cast('Q')
        self._capacity = self._words[CAPACITY]
        found = self._words[MAGIC]
        if found >> 8 != MAGIC_WORD >> 8:
            raise NotAMap('it is not an object map')
        if found != MAGIC_WORD:
            raise NotAMap(f'it is a map of version {found & 0xff}, and this'
                          f' release knows version {MAGIC_WORD & 0xff}')
        if instance not in (None, instance_of(self._words)):
            raise NotAMap('it is not a map of this server')
        if (self._capacity > MOST_CHUNKS
                or size_of(self._capacity) != self._words.nbytes):
            raise NotAMap('its length is not what it says')

    def is_of(self, file: os.stat_result) -> bool:
        """Is it the map of this data file?"""
        return (self._words[DEVICE] == file.st_dev
                and self._words[INODE] == file.st_ino)

    @property
    def instance(self) -> bytes:
        return instance_of(self._words)

    @property
    def retired(self) -> bool:
        return self._words[RETIRED] != 0

    def marks(self) -> tuple[int, int, int, int]:
        """END, DURABLE, RETIRED and ANNOUNCED, sooner than one by one."""
        return _marks.unpack_from(self._memory, WORD * END)

    def get(self, oid: bytes, default: Any = None) -> Any:
        number = int.from_bytes(oid, 'big')
        chunk = self._chunks.get(number >> CHUNK_BITS)
        if chunk is None:
            chunk = self._look_for(number >> CHUNK_BITS)
            if chunk is None:
                return default
        return self._words[chunk + (number & IN_CHUNK)] or default

    def _look_for(self, prefix: int) -> int | None:
        """Learn of the chunks that were added since the last time.

        Several threads may do so at once: they learn the same.
        """
        at = self._seen
        while at < self._capacity and (found := self._words[DIRECTORY + at]):
            self._chunks[found - 1] = (
                chunks_begin(self._capacity) + CHUNK * at)
            at += 1
        self._seen = at
        return self._chunks.get(prefix)


def _mapped(descriptor: int) -> mmap.mmap:
    """Map the memory of another process, which may be hostile."""
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise NotAMap('it is no memory')
    if not fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & _NEEDED_SEALS:
        raise NotAMap('it is not sealed')
    if not size_of(0) <= status.st_size <= size_of(MOST_CHUNKS):
        raise NotAMap(f'it has {status.st_size} bytes')
    return mmap.mmap(descriptor, status.st_size, access=mmap.ACCESS_READ)


def is_possible() -> bool:
    """Has this system what a map needs?

    Only 64-bit machines store a word of 8 bytes in one step.
    """
    return (sys.platform == 'linux' and sys.maxsize > 1 << 32
            and hasattr(os, 'memfd_create')
            and hasattr(fcntl, 'F_ADD_SEALS'))
