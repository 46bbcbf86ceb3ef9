"""The writer's side of the object map: made, kept up to date, retired.

A map is *building* until all of the index is in it, then *current*, until it
is *retired*.  It belongs to one data file, and is retired when a pack replaces
that file, or when a sync fails.  It is also retired when it exceeds its own
bound, because a map of oids that lie far apart takes a page for each of them.
A retired map is not used again; a new one is built when somebody asks for it.

What is stored, and when:

- `add` stores the positions of a transaction when it is appended, under the
  storage's `_lock`, before it can be published;
- `show` stores the end of what is published, before anybody is told of it;
- `announce` stores a tid before clients are told of it;
- `is_durable` stores what a sync has covered, before that is published;
- `build` copies the index, some buckets at a time, under the same `_lock` as
  `add`: so either the index has a new position already, or `add` stores it
  later.

The memory is sealed before anything is stored in it: no other process can
write to it or change its size, not even by opening it again.  Pages are
allocated before a process touches them, here or in a reader: so a machine
without memory causes an error, not a signal.

Left to others: the layout (format.objectmap), when one is built (`object_map`
of the storage), and who gets a descriptor (a server).
"""

import array
import bisect
import fcntl
import logging
import mmap
import os
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

from ..datafile import Descriptor
from ..format import objectmap as layout
from ..format.objectmap import CHUNK
from ..format.objectmap import CHUNK_BITS
from ..format.objectmap import DIRECTORY
from ..format.objectmap import IN_CHUNK
from ..format.objectmap import PAGE
from ..format.objectmap import WORD
from ..format.objectmap import WORDS_OF_A_PAGE

logger = logging.getLogger(__name__)

# A map may take this many bytes for each object, and this many in addition.
BYTES_AN_OBJECT = 32
BYTES_BESIDE = 1 << 20

# A map has room for twice the objects, and for this many chunks in addition.
SPARE_CHUNKS = 1 << 13
# Chunks whose memory is allocated with one call.
ALLOCATED_AT_ONCE = 32

# A build takes the storage's lock for one bucket after the other.  Whenever
# BUILD_FOR seconds have passed, it leaves the lock for PAUSE seconds to the
# threads that wait for it.
BUILD_FOR, PAUSE = 0.002, 0.0005

_SEALS = (layout.F_SEAL_FUTURE_WRITE
          | getattr(fcntl, 'F_SEAL_SHRINK', 0)
          | getattr(fcntl, 'F_SEAL_GROW', 0)
          | getattr(fcntl, 'F_SEAL_SEAL', 0))


class NoMap(Exception):
    """There is no map, for this reason."""


class TooFarApart(NoMap):
    """There will be no map: it does not help to try again."""

    def __init__(self) -> None:
        super().__init__('the oids lie too far apart')


class ObjectMap:

    def __init__(self, objects: int, instance: bytes,
                 data_file: Descriptor) -> None:
        """`objects`: how many objects the storage has."""
        self._data_file = data_file
        self._objects = objects
        self._chunks: dict[int, int] = {}
        self._allocated = 0  # chunks
        #: Guards the words that only grow.
        self._growing = threading.Lock()
        capacity = _capacity_for(objects)
        try:
            self._memory = _memory(layout.size_of(capacity))
        except (OSError, AttributeError) as error:
            raise NoMap(f'the system gives no sealed memory: {error}'
                        ) from error
        try:
            self._words = self._mapped_and_sealed()
            self._write_header(
                capacity, instance, os.fstat(data_file.number))
        except OSError as error:
            raise NoMap(f'the memory cannot be used: {error}') from error

    def _mapped_and_sealed(self) -> memoryview:
        """Map the memory, and seal it: this mapping is the only one that can
        ever be written to."""
        memory = mmap.mmap(self._memory.number, 0)
        fcntl.fcntl(self._memory.number, fcntl.F_ADD_SEALS, _SEALS)
        return memoryview(memory).cast('Q')

    def _write_header(self, capacity: int, instance: bytes,
                      data_file: os.stat_result) -> None:
        self._capacity = capacity
        self._first = layout.chunks_begin(capacity)
        self._allocate(0, 2 * PAGE)  # with the first page of the directory
        words = self._words
        words[layout.MAGIC] = layout.MAGIC_WORD
        words[layout.CAPACITY] = capacity
        words[layout.DEVICE] = data_file.st_dev
        words[layout.INODE] = data_file.st_ino
        for number in range(layout.INSTANCE_SIZE // WORD):
            words[layout.INSTANCE + number] = int.from_bytes(
                instance[WORD * number:WORD * (number + 1)], sys.byteorder)

    def open(self) -> tuple[int, int]:
        """New descriptors of the data file and of the map, to read them.

        Each client gets open files of its own: flags and locks that it sets
        concern no other process.
        """
        data_file = _opened_again(self._data_file.number)
        try:
            return data_file, _opened_again(self._memory.number)
        except BaseException:
            os.close(data_file)
            raise

    # The words of the header

    @property
    def is_retired(self) -> bool:
        return self._words[layout.RETIRED] != 0

    def retire(self) -> None:
        """From now on the map is wrong: readers must not use it."""
        self._words[layout.RETIRED] = 1

    def show(self, end: int) -> None:
        self._grow(layout.END, end)

    def is_durable(self, end: int) -> None:
        self._grow(layout.DURABLE, end)

    def announce(self, tid: bytes) -> None:
        self._grow(layout.ANNOUNCED, int.from_bytes(tid, 'big'))

    def _grow(self, word: int, end: int) -> None:
        """Store this number, unless it is smaller: at the end of a build, two
        threads may call this in the wrong order."""
        with self._growing:
            if end > self._words[word]:
                self._words[word] = end

    # Positions, under the storage's lock

    def add(self, positions: Mapping[bytes, int]) -> None:
        """Store the positions of a transaction.  Raises nothing: a map that
        has no room for them is retired."""
        if self.is_retired:
            return
        try:
            for oid, position in positions.items():
                number = int.from_bytes(oid, 'big')
                at = self._chunk(number >> CHUNK_BITS) + (number & IN_CHUNK)
                if not self._words[at]:
                    self._objects += 1
                self._words[at] = position
        except Exception as error:
            logger.info('the map for local reads has ended: %s', error)
            self.retire()

    def fill(self, prefix: bytes, bucket: bytes) -> None:
        """Store a bucket of the index; all of its oids begin with `prefix`.

        The bytes of a bucket are the last 2 bytes of each oid, in their order,
        and then 6 bytes of each position.
        """
        count = len(bucket) // 8
        ends = _numbers('H', bucket[:2 * count])
        wide = bytearray(8 * count)
        for number in range(6):
            wide[2 + number::8] = bucket[2 * count + number::6]
        positions = _numbers('Q', bytes(wide))
        base = int.from_bytes(prefix, 'big') << 16
        start = 0
        while start < count:
            stop = bisect.bisect_left(ends, (ends[start] | IN_CHUNK) + 1,
                                      start)
            self._fill_chunk(base, ends[start:stop], positions[start:stop])
            start = stop

    def _fill_chunk(self, base: int, ends: 'array.array[int]',
                    positions: 'array.array[int]') -> None:
        at = self._chunk((base | ends[0]) >> CHUNK_BITS)
        first = at + (ends[0] & IN_CHUNK)
        if ends[-1] - ends[0] + 1 == len(ends):  # no oid is missing
            self._words[first:first + len(ends)] = memoryview(positions)
            return
        for end, position in zip(ends, positions):
            self._words[at + (end & IN_CHUNK)] = position

    def _chunk(self, prefix: int) -> int:
        """The number of the first word of a chunk; a missing chunk is added.
        """
        at = self._chunks.get(prefix)
        if at is None:
            at = self._new_chunk(prefix)
        return at

    def _new_chunk(self, prefix: int) -> int:
        used = len(self._chunks)
        if used == self._capacity:
            raise NoMap('it is full')
        self.refuse_more_chunks_than_allowed(used + 1)
        at = self._first + CHUNK * used
        if used == self._allocated:
            more = min(ALLOCATED_AT_ONCE, self._capacity - used)
            self._allocate(WORD * at, PAGE * more)
            self._allocated += more
        behind = used + 1  # readers look at this word, too
        if behind % WORDS_OF_A_PAGE == 0 and behind < self._capacity:
            self._allocate(WORD * (DIRECTORY + behind), PAGE)
        self._words[DIRECTORY + used] = prefix + 1
        self._chunks[prefix] = at
        return at

    def refuse_more_chunks_than_allowed(self, chunks: int) -> None:
        if PAGE * chunks > BYTES_AN_OBJECT * self._objects + BYTES_BESIDE:
            raise TooFarApart

    def _allocate(self, position: int, size: int) -> None:
        os.posix_fallocate(self._memory.number, position, size)


def _capacity_for(objects: int) -> int:
    """The number of words of the directory, a multiple of those of a page."""
    chunks = 2 * objects // CHUNK + SPARE_CHUNKS
    if chunks > layout.MOST_CHUNKS:
        raise NoMap(f'{objects} objects are too many')
    return -(-chunks // WORDS_OF_A_PAGE) * WORDS_OF_A_PAGE


def _memory(size: int) -> Descriptor:
    """Sparse memory of its final size, which no other user may open."""
    if not layout.is_possible():
        raise NoMap('local reads need a 64-bit Linux')
    memory = Descriptor(os.memfd_create(
        'fsyncstorage object map', os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING))
    os.fchmod(memory.number, 0o600)
    os.ftruncate(memory.number, size)
    return memory


def _opened_again(descriptor: int) -> int:
    return os.open(
        f'/proc/self/fd/{descriptor}', os.O_RDONLY | os.O_CLOEXEC)


def _numbers(kind: str, big_endian: bytes) -> 'array.array[int]':
    numbers = array.array(kind, big_endian)
    if sys.byteorder == 'little':
        numbers.byteswap()
    return numbers


def build(storage: Any) -> ObjectMap:
    """Build the map of a storage, and make it current; or raise NoMap.

    Commits go on.  Only one thread at a time may call this.  If there is an
    older map, it is retired.
    """
    journal = storage.journal
    with journal.lock:
        before = journal.replace_map(None)
        journal.refuse_when_stopped()
        _refuse_when_silent(storage)
        if storage.isReadOnly():  # another process may write the file
            raise NoMap('the storage is read-only')
        index = journal.positions
        new = ObjectMap(
            len(index), storage.instance, journal.file.descriptor)
        # Each bucket of the index takes one chunk at least.
        new.refuse_more_chunks_than_allowed(len(index._data))
        journal.replace_map(new)
        prefixes = list(index._data.keys())
    del before  # only now, without the lock: to free its memory takes a while
    try:
        _fill(journal.lock, new, index, prefixes)
        # The storage tells the map what it publishes or syncs from now on.
        # What it did before is told here, and never replaces a newer end.
        new.is_durable(journal.sequencer.durable.end)
        new.show(journal.view.end)
        new.announce(storage.announced)
        journal.refuse_when_stopped()
        _refuse_when_silent(storage)
        if new.is_retired:
            raise NoMap('it was retired while it was built')
    except BaseException:
        with journal.lock:
            journal.replace_map(None)  # it is this one, or none
        raise
    return new


def _refuse_when_silent(storage: Any) -> None:
    if storage.replica is not None and not storage.replica.may_answer():
        raise NoMap('another node may have committed since')


def _fill(lock: Any, new: ObjectMap, index: Any,
          prefixes: list[bytes]) -> None:
    pause_at = time.monotonic() + BUILD_FOR
    for prefix in prefixes:
        with lock:
            if new.is_retired:
                raise NoMap('it was retired while it was built')
            new.fill(prefix, index._data[prefix].toString())
        if time.monotonic() > pause_at:
            time.sleep(PAUSE)
            pause_at = time.monotonic() + BUILD_FOR
