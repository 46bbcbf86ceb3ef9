"""How much a blob cache holds, and which blobs leave it to make room.

All processes share one lock file, `total`:

    bytes of all blobs and of all parts (8), a negative number if it is unknown
    the run of the machine in which a process last began (36)

*The total is the sum of the lengths of these files.*  A part is made as long
as its blob before a byte is written, so making it longer is the reservation.
Whoever locks the file to change something first makes the total unknown, and
writes it at the end: after a death in between, the next process counts anew.
Where a count and a change miss each other, the total is too high, and never
too low; each count corrects it.

A count looks at all files, and also finds the batch of blobs that were not
used for the longest time: a tenth of all.  They leave one after the other, as
room is needed, unless they were used since.  Then another count finds the next
batch.

All other attributes of a Room belong to the thread that has the file locked.
"""

import contextlib
import math
import os
import struct
import time

from .directory import LONGEST_LEASE
from .part import LockedFile
from .part import Part

_TOTAL = struct.Struct('>q')
_UNKNOWN = -1

# A batch is this part of all blobs.
_BATCH = 10


class Room:

    def __init__(self, directory, limit):
        """`limit` is in bytes, or infinite."""
        self.directory = directory
        self._limit = limit
        #: Blobs that this process has removed to make room for others.
        self.evictions = 0
        self._total = 0
        self._batch = []  # (time of use, size, path); the next one is the last
        anew = directory.stock_was_here()
        with self._counted() as file:
            run = os.pread(file.fileno(), 100, _TOTAL.size)
            if run and run != boot():
                directory.remove_young()
            # Where it is not known whether the machine was started again, the
            # total may be from before a power cut.
            if anew or not run or run != boot() or directory.parts():
                self._count()
            self._evict(limit)
            os.pwrite(file.fileno(), boot(), _TOTAL.size)

    @contextlib.contextmanager
    def _counted(self):
        """Lock the total, and have it in `_total` to be changed."""
        with self.directory.open(
                LockedFile, self.directory.total) as file:
            file.lock(wait=True)
            try:
                self._total = _read(file)
                os.pwrite(file.fileno(), _TOTAL.pack(_UNKNOWN), 0)
                if self._total < 0:
                    self._count()
                yield file
                os.pwrite(file.fileno(), _TOTAL.pack(self._total), 0)
            finally:
                file.unlock()

    def total(self):
        """Bytes of all blobs; the last known value, if it is being changed."""
        with contextlib.suppress(FileNotFoundError):
            with open(self.directory.total, 'rb') as file:
                total = _read(file)
                return total if total >= 0 else self._total
        return self._total

    # What takes and leaves room

    def resize(self, part, size):
        """Make a part `size` bytes long.  If there is no room for that, it
        becomes the part of a guest, which does not count."""
        with self._counted():
            before = part.length
            if size <= before or self._make_room(size - before):
                os.truncate(part.fileno(), size)
                self._total += size - before
            else:
                self.directory.make_guest(part)
                self._total -= before

    def remove(self, part):
        """A download failed, or a guest is not needed any more."""
        if part.is_guest:
            part.remove()
        else:
            with self._counted():
                if part.has_its_name():
                    part.remove()
                    self._total -= part.length

    def add(self, path, blob):
        """Make a file the blob of that path, if there is room, and if nobody
        else has it or downloads it."""
        size = os.stat(path).st_size
        with self._counted():
            if not (os.path.exists(blob)
                    or os.path.exists(self.directory.part(blob))
                    or not self._make_room(size)):
                self.directory.give_name(path, blob)
                self._total += size

    def free(self, size):
        """The disk is full: remove blobs of this size, if there is a limit."""
        if self._limit < math.inf:
            with self._counted():
                self._evict(self._total - size)

    # How room is made; with the lock

    def _make_room(self, size):
        """Remove blobs, if that helps; return whether `size` bytes fit now."""
        if self._total + size > self._limit:
            if self._under_way() + size > self._limit:
                return False
            self._evict(self._limit - size)
        return self._total + size <= self._limit

    def _evict(self, most):
        """Remove blobs until all takes `most` bytes, or none is left."""
        while self._total > most:
            if not self._batch:
                self._count()
                if not self._batch:
                    return
                continue
            used, size, path = self._batch.pop()
            with contextlib.suppress(FileNotFoundError):
                if used == _last_use(os.stat(path)):
                    os.remove(path)
                    self._total -= size
                    self.evictions += 1

    def _count(self):
        # Parts first: one that becomes a blob meanwhile is counted twice.
        self._total = self._under_way()
        blobs = []
        for path, found in self.directory.blobs():
            blobs.append((_last_use(found), found.st_size, path))
            self._total += found.st_size
        blobs.sort()
        self._batch = blobs[:len(blobs) // _BATCH + 1]
        self._batch.reverse()

    def _under_way(self):
        """Bytes of the parts that cannot be removed; remove all others, whose
        processes have died."""
        found = 0
        for path in self.directory.parts():
            with contextlib.suppress(FileNotFoundError), \
                    Part(path, create=False) as part:
                counts = 0 if part.is_guest else part.length
                if not part.lock():
                    found += counts
                elif part.has_its_name():
                    part.remove()
        return found


def _read(file):
    data = os.pread(file.fileno(), _TOTAL.size, 0)
    return _TOTAL.unpack(data)[0] if len(data) == _TOTAL.size else _UNKNOWN


def _last_use(found):
    """Nanoseconds; 0 if a clock was wrong, and nothing is known."""
    used = found.st_atime_ns
    return used if used <= time.time_ns() + LONGEST_LEASE else 0


def boot():
    """A name for this run of the machine; b'' if unknown."""
    try:
        with open('/proc/sys/kernel/random/boot_id', 'rb') as file:
            return file.read().strip()
    except OSError:
        return b''
