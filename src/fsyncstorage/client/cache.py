"""The client's cache of objects: ZEO's, which also knows the pending loads.

The file is ZEO's `.zec`, and a stock client can go on with it as it is.  We
add the loads that wait for an answer on another connection than that of the
invalidations (`pending`), under the lock of the cache: so an invalidation
finds either the load or the answer that was kept.

A completed commit, an invalidation and a load do not fail because of the
cache's file.  The file is in one of three states:

- It is used.  If the process were killed now, what ZEO would find in it is
  true as of the last tid that is written in it.
- It cannot be written, or something else is in it than was written, or a
  change of it was interrupted: the file is emptied, and used again.
- It cannot be emptied either, or the last tid cannot be written into it: the
  file is closed as it is, with an earlier last tid, and nothing is cached
  until the client is opened again.
"""

import contextlib
import functools
import io
import logging
import os
import struct
import threading

from ZEO.cache import ZEC_HEADER_SIZE
from ZEO.cache import ClientCache
from ZEO.cache import allocated_record_overhead
from ZEO.cache import magic
from ZODB.utils import z64

from .. import wire
from ..positions import Positions
from . import revisions
from .gathered import HEADER
from .gathered import Gathered
from .pending import Pending
from .process import Process

logger = logging.getLogger(__name__)

_free = struct.Struct('>cI')

# Larger objects are written in ZEO's way, which is safe even if the system
# writes only a part.
ONE_WRITE = 1 << 12
# One call reads most objects, and some of those behind them.
READ_AHEAD = 1 << 12
# Small objects are written together, up to this many bytes.
TOGETHER = 1 << 14

# What ZEO raises where the file cannot be used, or has something else in it
# than was written.
FILE_ERRORS = OSError, AssertionError, KeyError, ValueError, struct.error


def _changes(method):
    """If the method fails, the cache is emptied: it may be half changed.

    Errors of the file are not raised to the caller.
    """
    @functools.wraps(method)
    def changing(self, *args):
        with self._lock:
            try:
                return method(self, *args)
            except BaseException as error:
                self._give_up(error)
                if not isinstance(error, FILE_ERRORS):
                    raise

    return changing


class Cache(ClientCache):

    # `_free_bytes` from `_free_from` on are known to be free.
    _free_from = _free_bytes = 0

    # The block that was read last, and its position in the file.
    _block, _block_at = b'', 0

    def __init__(self, path=None, size=200 << 20):
        self.pending = Pending()
        self._unwritten = Gathered()  # up to `_free_from`
        self._process = Process('cache')
        super().__init__(path, size)
        # No buffer: objects are scattered, so it would be filled in vain.
        self.f = self.f.detach()

    def _initfile(self, fsize):
        self._free_from = self._free_bytes = 0  # it is another file now
        super()._initfile(fsize)
        self.current = Positions(self.current)

    def __bool__(self):
        """Must the cache be verified?  ZEO asks by its truth value.

        An empty cache with a last tid must be, too: connections of ZODB may
        have seen objects as of that tid, which were not kept here.
        """
        return self.tid != z64 or len(self) > 0

    @property
    def f(self):
        """The file, with all objects written; the caller may write, too."""
        self._write()
        self._block = b''
        return self._file

    @f.setter
    def f(self, file):
        self._file = file

    # Reading.  ZEO makes four system calls to read an object, and some more
    # to find out that it is not there.  Unusual cases are left to ZEO.

    def loadBefore(self, oid, tid):
        with self._lock:
            # Most callers want the current record.
            if self._tracefile is None and (found := self.load(oid, tid)):
                return *found, None
            return super().loadBefore(oid, tid)

    def load(self, oid, before_tid=None):
        with self._lock:
            if self._unwritten and oid in self.current:
                self._write()
            position = self.current.get(oid)
            if self._tracefile is None and position is None:
                return None
            if self._tracefile is not None or self._is_far_back(position):
                return super().load(oid, before_tid)
            block, first = self._block, position - self._block_at
            if not 0 <= first <= len(block) - HEADER.size:
                block, first = self._read_block(position, READ_AHEAD), 0
            status, _, found, serial, end, _, length = HEADER.unpack_from(
                block, first)
            if status != b'a' or found != oid or end != z64:
                return super().load(oid, before_tid)  # reports the damage
            if before_tid and serial >= before_tid:
                return None
            data = first + HEADER.size
            last = data + length  # where the oid is repeated
            if len(block) < last + len(oid):
                data, last = data - first, last - first
                block = self._read_block(position, last + len(oid))
            if block[last:last + len(oid)] != oid:
                return super().load(oid, before_tid)
            self._n_accesses += 1
            return block[data:last], serial

    def _read_block(self, position, size):
        """Read ahead: what follows is often wanted next."""
        self._block = os.pread(self._file.fileno(), size, position)
        self._block_at = position
        return self._block

    def _is_far_back(self, position):
        """Would ZEO copy the object forward when it is read, to keep it?"""
        return (self.currentofs - position) % self.maxsize > self.rearrange

    # What ZEO's client calls when something changes

    @_changes
    def invalidate(self, oid, tid):
        self.pending.overtake(oid)
        self._write()  # before ZEO looks for the object in the file
        super().invalidate(oid, tid)

    @_changes
    def invalidate_all(self, oids, tid):
        """A transaction has changed these objects."""
        self.pending.overtake_all(oids)
        if self._tracefile is not None:
            for oid in oids:
                self.invalidate(oid, tid)
        elif found := self.current.take_out(oids):
            self._end([(*each, tid) for each in found])

    @_changes
    def invalidate_each(self, changes):
        """Several transactions have changed objects: each is a tid and its
        oids, in their order."""
        # (The first one that changes an object ends its revision.)
        ends = {oid: tid for tid, oids in reversed(changes) for oid in oids}
        self.pending.overtake_all(ends)
        if self._tracefile is not None:
            for oid, tid in ends.items():
                self.invalidate(oid, tid)
        elif found := self.current.take_out(ends):
            self._end([(position, oid, ends[oid]) for position, oid in found])

    def _end(self, found):
        """`found`: position, oid and tid of each revision that ends."""
        if self._unwritten:
            found = self._end_unwritten(found)
        if found:
            self._write()
            self._block = b''
            for position, oid, serial in revisions.end(
                    self._file.fileno(), sorted(found)):
                self._set_noncurrent(oid, serial, position)

    def _end_unwritten(self, found):
        """End those that are not in the file yet; return the others."""
        written = []
        for position, oid, tid in found:
            if position not in self._unwritten:
                written.append((position, oid, tid))
            elif (serial := self._unwritten.end(position, tid)) != tid:
                self._set_noncurrent(oid, serial, position)
        return written

    def committed(self, tid, updates, f):
        """Note a commit of this client, as ZEO's client does in its loop.

        Other threads see the new last tid only when `f` was called.
        """
        with self._lock:
            self.invalidate_all([oid for oid, _, _ in updates], tid)
            kept = [(oid, data) for oid, data, resolved in updates
                    if data and not resolved]
            self._add_all(kept, tid)
            self.setLastTid(tid)
            f(tid)

    def new_generation(self):
        """Forget the pending loads: they may have gone to another server."""
        with self._lock:
            self.pending.new_generation()

    def begin_anew(self, tid):
        """Empty the cache, and set its last tid, which may go back.

        Errors of the file are not raised: the client could not connect again.
        """
        with self._lock:
            self.pending.new_generation()
            self.clear()
            self.tid = z64  # `setLastTid` ignores a tid of zeros
            self.setLastTid(tid)

    # Loads on read channels, and on a ZEO connection without invalidations

    def ask(self, oid, tid, generation):
        """Return (load, None) if the caller must do the load, or (load, last
        tid) if another thread does it.

        In the latter case wait until the load has ended: on `load.prefetches`
        if that is set, else take `load.done`, and release it.  Use its reply
        if that is true as of the last tid.
        """
        with self._lock:
            load = self.pending.find(oid, tid)
            if load is None:
                return self.pending.begin(
                    oid, tid, self.tid, generation), None
            if load.done is None:
                load.done = threading.Lock()
                load.done.acquire()
            return load, self.tid

    def ask_beside(self, oid, tid):
        """Return a load for this thread to do, whatever others do."""
        with self._lock:
            return self.pending.begin(
                oid, tid, self.tid, self.pending.generation)

    def forsake(self, load):
        """Let no other thread wait for this load."""
        with self._lock:
            load.overtaken = True

    def ask_for_missing(self, oids, tid, generation, prefetches, loads):
        """Append new loads, for oids that are neither cached nor pending."""
        with self._lock:
            for oid in oids:
                if (oid not in self.current
                        and self.pending.find(oid, tid) is None):
                    load = self.pending.begin(
                        oid, tid, self.tid, generation)
                    load.prefetches = prefetches
                    loads.append(load)

    def answered(self, load):
        """Keep what may be kept of its reply, if there was one."""
        with self._lock:
            self.pending.end(load)
            try:
                if load.reply.__class__ is wire.Found:
                    self._keep(load)
            finally:
                if load.done is not None:
                    with contextlib.suppress(RuntimeError):  # it was done
                        load.done.release()

    def _keep(self, load):
        reply = load.reply
        if reply.end is None:
            if (load.oid not in self.current
                    and self.pending.may_keep_as_current(load, self.tid)):
                self._add(load.oid, reply.serial, reply.data)
        # Only when the cache knows of the end: until then the object may be
        # in it as current.
        elif self.pending.may_keep(load) and reply.end <= self.tid:
            self.store(load.oid, reply.serial, reply.end, reply.data)

    def _add(self, oid, serial, data):
        """Store a current record that is not here, without ZEO's check."""
        size = allocated_record_overhead + len(data)
        if size > ONE_WRITE or size >= self.maxsize - ZEC_HEADER_SIZE:
            self.store(oid, serial, None, data)
            return
        self._n_adds += 1
        self._n_added_bytes += size
        self._len += 1
        self._store(oid, serial, None, data, size)
        self._trace(0x52, oid, serial, dlen=len(data))

    # Writing objects.  ZEO looks for room in the file each time, and writes in
    # two steps, of which the second marks the first as done.  Here the room is
    # known, and small objects are written together, with one write, when there
    # are enough of them, or when the file is needed.  A process that is killed
    # leaves what was written before.

    def _makeroom(self, size):
        # ZEO's last free block may be longer than the file.
        room = min(self._free_bytes, self.maxsize - self.currentofs)
        if self.currentofs == self._free_from and size <= room:
            return self._free_bytes
        self._write()
        if size <= READ_AHEAD:  # few objects must go
            return super()._makeroom(size)
        # ZEO reads the header of each object that must go: use a buffer.
        file = self._file
        try:
            # A second file object, which can be dropped at any moment.
            self._file = io.BufferedReader(
                io.FileIO(file.fileno(), closefd=False), READ_AHEAD)
            return super()._makeroom(size)
        finally:
            self._file = file

    @_changes
    def _add_all(self, objects, tid):
        """`_add` each of them.  Room is made once, for all of them.

        They are stored right away: until they overwrite them, the objects
        that had to go are still in the file.
        """
        size = 1 + sum(
            allocated_record_overhead + len(data) for _, data in objects)
        if len(objects) > 1 and size <= self.maxsize // 4:
            room = self._makeroom(size)
            self._free_from, self._free_bytes = self.currentofs, room
        for oid, data in objects:
            self._add(oid, tid, data)

    def _store(self, oid, start_tid, end_tid, data, size):
        try:
            if size > ONE_WRITE:
                super()._store(oid, start_tid, end_tid, data, size)
                self._free_bytes = 0  # no longer known
            else:
                self._gather(oid, start_tid, end_tid, data, size)
        except BaseException as error:  # as `_changes` does, but faster
            self._give_up(error)
            if not isinstance(error, FILE_ERRORS):
                raise
        else:
            # The object was counted before.  If the cache was emptied in
            # between, ZEO would take it for empty, and not verify it.
            if not self._len:
                self._len = 1
            if self.currentofs - self._unwritten.begin > TOGETHER:
                self._write()

    def _gather(self, oid, start_tid, end_tid, data, size):
        room = self._makeroom(size + 1)
        position = self.currentofs
        self._unwritten.add(position, size, oid, start_tid, end_tid, data)
        if end_tid:
            self._set_noncurrent(oid, start_tid, position)
        else:
            self.current[oid] = position
        self.currentofs = self._free_from = position + size
        self._free_bytes = room - size

    def _write(self):
        if not self._unwritten:
            return
        self._process.check()
        pieces = self._unwritten.joined()
        self._block = b''
        begin = self._unwritten.begin
        try:
            self._unwritten.clear()
            if begin + len(pieces) != self._free_from:
                raise OSError('a store was interrupted')
            pieces += _free_block(self._free_bytes)
            if os.pwrite(self._file.fileno(), pieces, begin) < len(pieces):
                raise OSError('not all of it was written')
        except BaseException as error:
            self._give_up(error)
            if not isinstance(error, FILE_ERRORS):
                raise

    # When the file cannot be used

    def _give_up(self, error):
        self._process.check()
        logger.warning('the cache is cleared, its file cannot be used: %s',
                       error or type(error).__name__)
        self.clear()

    def clear(self):
        with self._lock:
            self._unwritten.clear()
            tid = self.tid
            try:
                super().clear()
            except BaseException as error:
                self.tid = tid
                self._go_on_without_file(error)
                if not isinstance(error, Exception):
                    raise
            # ZEO has read it from the file, which may not have the newest.
            self.tid = tid

    def setLastTid(self, tid):
        if tid and len(tid) != len(z64):
            # A server may send anything; in the file there are 8 bytes for it.
            raise ValueError(f'a last tid of {len(tid)} bytes')
        with self._lock:
            try:
                if not tid or tid <= self.tid:
                    super().setLastTid(tid)
                else:
                    self.tid = tid
                    self._write_last_tid()
            except OSError as error:  # it is set here, but not in the file
                self._go_on_without_file(error)

    def _write_last_tid(self):
        if self.path is None or isinstance(self._file, io.BytesIO):
            return  # nobody opens it again
        # First: the file still has objects that are not known here any more.
        self._write()
        if os.pwrite(self._file.fileno(), self.tid, len(magic)) < 8:
            raise OSError('not all of it was written')

    def _go_on_without_file(self, error):
        """Cache nothing from now on.

        The file is left as a killed process would leave it: true as of the
        last tid that is written in it, by which the next client verifies it.
        """
        logger.warning(
            'nothing is cached until the client is opened again, the file of'
            ' the cache cannot be emptied: %s', error or type(error).__name__)
        file, self._file = self._file, io.BytesIO(magic + self.tid)
        self.maxsize = ZEC_HEADER_SIZE  # there is no room for any object
        self._initfile(ZEC_HEADER_SIZE)
        with contextlib.suppress(OSError):
            file.close()

    def close(self):
        if isinstance(self._file, io.BytesIO):
            self._file = None  # ZEO would sync it
        super().close()


def _free_block(size):
    """How a free block begins; a very small one is a single digit."""
    return b'%d' % size if size < 5 else _free.pack(b'f', size)
