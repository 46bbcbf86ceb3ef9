"""The client's cache of objects: which revisions it has, and what may be kept.

What can be found here is true as of the last tid, and so is what a killed
process leaves in the file: a revision is written when the file was told of its
serial and of its end; and when the file is opened, a revision whose end comes
behind the last tid there is forgotten.

A completed commit, an invalidation and a load do not fail because of the file.
It is in one of three states:

- It is used.
- It cannot be written, or has something else than was written, or a change was
  interrupted: it is emptied, and used again.
- It cannot be emptied either: it is closed as it is, and nothing is cached
  until the client is opened again.

The lock guards all of it, and `Pending`; it is taken before what `f` of a
commit takes.  An invalidation finds either the load that is pending or the
answer that was kept.
"""

import collections
import contextlib
import functools
import logging
import threading

from BTrees.OLBTree import OLBTree
from ZEO.Exceptions import ClientDisconnected
from ZODB.fsIndex import fsIndex
from ZODB.utils import maxtid
from ZODB.utils import z64

from ..positions import Positions
from .cachefile import DATA
from .cachefile import ENDED
from .cachefile import SEGMENT
from .cachefile import TOLD
from .cachefile import CacheFile
from .pending import Pending

logger = logging.getLogger(__name__)

OID = TID = 8

#: The file is told of the last tid before so many others have come.
UNTOLD = 256
#: Oids in one ENDED.
OIDS_TOGETHER = 256
#: Bytes of the file that are evicted together.
BATCH = 1 << 16
#: A revision that is found is written again if more than this part of the file
#: was written since.
OLD = 0.75
#: Unless it takes more than one in so many bytes of the file.
LARGE = 10


def _alone(method):
    """Under the lock.  What the method has overwritten in the file is
    forgotten.

    If the method fails, the cache is emptied: it may be half changed.  So it
    is if a finaliser has called it meanwhile, in the same thread.

    Errors of the file are not raised to the caller, who gets None.
    """
    @functools.wraps(method)
    def alone(self, *args):
        with self._lock:
            self._calls = call = self._calls + 1
            try:
                result = method(self, *args)
                if self._file is not None:
                    while self._begin < self._file.begin:
                        self._evict()
                if self._calls != call:
                    raise OSError('it was used in the middle of a change')
                return result
            except BaseException as error:
                self._empty()
                logger.warning(
                    'the cache is cleared, its file cannot be used: %s',
                    error or type(error).__name__)
                if not isinstance(error, OSError):
                    raise

    return alone


class Cache:

    def __init__(self, path=None, size=200 << 20):
        """LockError if another cache uses the file; ValueError if it is of
        another kind."""
        self.path = path
        self.size = size
        self.pending = Pending()
        self._lock = threading.RLock()
        self._calls = 0  # of methods that are `_alone`
        self._hits = self._evictions = 0
        self._last_tid = z64
        self._untold = 0
        #: None: it could not be used.
        self._file = CacheFile(path, size)
        self._forget_all()
        self._read_file()

    def __len__(self):
        with self._lock:
            return len(self._current) + len(self._ended)

    def __bool__(self):
        """Must the cache be verified?

        An empty cache with a last tid must be, too: connections of ZODB may
        have seen objects as of that tid, which were not kept here.
        """
        return self.last_tid != z64

    @property
    def last_tid(self):
        with self._lock:
            return self._last_tid

    @property
    def generation(self):
        return self.pending.generation

    def stats(self):
        """Hits, evictions; bytes of the file that are used."""
        with self._lock:
            used = self._file.end - self._begin if self._file else 0
            return self._hits, self._evictions, used

    def load_before(self, oid, tid):
        """Return data, serial, and the tid of the next revision or None; or
        None."""
        with self._lock:
            # Most callers want the current revision.
            position = self._current.get(oid)
            if position is None and not self._ended:
                return None
            return self._found(position, oid, tid)

    @_alone
    def _found(self, position, oid, tid):
        if position is not None:
            data, serial = self._read(position, oid)
            if serial < tid:
                self._hits += 1
                if (self._file.end - position > OLD * self._file.ring
                        and len(data) < self._file.ring // LARGE):
                    self._put(oid, serial, z64, data)
                return data, serial, None
        if self._ended:
            for key, position in self._ended.items(oid + tid, oid + maxtid):
                if position < self._begin:
                    break
                data, serial = self._read(position, oid)
                if serial < tid:
                    self._hits += 1
                    return data, serial, key[OID:]
                break
        return None

    def _read(self, position, oid):
        found = self._file.revision(position, oid)
        if found is None:
            raise OSError(f'{oid.hex()} is not where it was written')
        return found

    # What changes

    @_alone
    def invalidate(self, changes):
        """Transactions have changed objects: each is a tid and its oids, in
        their order.  The last tid stays."""
        # All of it first, before the file may fail.
        for tid, oids in changes:
            self.pending.overtake(oids)
        for tid, oids in changes:
            self._end(tid, oids)

    @_alone
    def drop(self, oids):
        """Forget the current revisions of these objects."""
        self.pending.overtake(oids)
        self._end(z64, oids)

    def set_last_tid(self, tid):
        """All was told here that has changed up to this transaction."""
        with self._lock:
            self._check_next(tid)
            self._last_tid = tid
            self._untold += 1
            if self._untold >= UNTOLD:
                self._flush()

    def committed(self, tid, updates, f):
        """Note a commit of this client.  Each update has an oid, data, and
        whether the server has other data, since it resolved a conflict.

        Other threads see the new last tid only when `f` was called.  If `f` is
        interrupted, it is the earlier one: connections have to be told of all
        that came since.
        """
        updates = list(updates)
        with self._lock:
            self._check_next(tid)
            earlier = self._last_tid
            try:
                self._take_over(tid, updates)
                # (A finaliser may have been told of later ones.)
                self._last_tid = max(tid, self._last_tid)
                f(tid)
            except BaseException:
                self._last_tid = earlier
                raise

    @_alone
    def _take_over(self, tid, updates):
        oids = [oid for oid, _, _ in updates]
        self.pending.overtake(oids)
        self._end(tid, oids)
        for oid, data, resolved in updates:
            if data and not resolved:
                self._put(oid, tid, z64, data, told=tid)

    def begin_anew(self, tid):
        """Empty the cache, and set its last tid, which may go back."""
        _check_tid(tid)
        self._begin_anew(tid)

    @_alone
    def _begin_anew(self, tid):
        self.pending.new_generation()
        self._last_tid = tid
        self._empty()

    def _check_next(self, tid):
        _check_tid(tid)
        if tid < self._last_tid:
            raise ValueError(
                f'the last tid {tid.hex()} is before {self._last_tid.hex()}')

    @_alone
    def _flush(self):
        self._untold = 0
        if self._file is not None:
            self._file.tell(self._last_tid)
            self._file.write()

    # Loads

    def new_generation(self):
        """Forget the pending loads: they may have gone to another server."""
        with self._lock:
            self.pending.new_generation()

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
                    oid, tid, self._last_tid, generation), None
            if load.done is None:
                load.done = threading.Lock()
                load.done.acquire()
            return load, self._last_tid

    def ask_for_missing(self, oids, tid, generation, prefetches, loads):
        """Append new loads, for oids that are neither cached nor pending."""
        with self._lock:
            for oid in oids:
                if (self._current.get(oid) is None
                        and self.pending.find(oid, tid) is None):
                    load = self.pending.begin(
                        oid, tid, self._last_tid, generation)
                    load.prefetches = prefetches
                    loads.append(load)

    def forsake(self, load):
        """Let no other thread wait for this load."""
        with self._lock:
            load.overtaken = True

    def answered(self, load):
        """Keep what may be kept of its reply, if there was one."""
        with self._lock:
            self.pending.end(load)
            try:
                if getattr(load.reply, 'data', None) is not None:
                    self._keep(load)
            finally:
                if load.done is not None:
                    with contextlib.suppress(RuntimeError):  # it was done
                        load.done.release()

    @_alone
    def _keep(self, load):
        reply, oid = load.reply, load.oid
        if self.pending.may_keep(load, self._last_tid):
            end = reply.end or z64
            if (self._current.get(oid) is None if end == z64
                    else oid + end not in self._ended):
                self._put(oid, reply.serial, end, reply.data)

    # The index: positions of current revisions, by oid; of others, by oid and
    # end.

    def _end(self, tid, oids):
        found = self._take_out(tid, oids)
        for first in range(0, len(found), OIDS_TOGETHER):
            self._file.append(ENDED, z64, tid, z64, b''.join(
                found[first:first + OIDS_TOGETHER]))

    def _take_out(self, tid, oids):
        """Of the current revisions; return the oids that were there."""
        found = self._current.take_out(oids)
        if tid != z64:
            for position, oid in found:
                # (If one ends there already, this one began there.)
                self._ended.insert(oid + tid, position)
        return [oid for _, oid in found]

    def _put(self, oid, serial, end, data, told=None):
        if self._file is None or len(data) > self._file.longest:
            return
        if max(serial, end) > self._file.told:
            self._file.tell(told or self._last_tid)
        position = self._file.append(DATA, oid, serial, end, data)
        self._index(position, oid, end)

    def _index(self, position, oid, end):
        if end == z64:
            self._current[oid] = position
        else:
            self._ended.insert(oid + end, position)
        if position >= self._batch_end:
            self._end_batch(position)
        self._oids.append(oid)

    def _end_batch(self, position):
        self._batches.append((position, b''.join(self._oids)))
        self._oids = []
        self._batch_end = position + min(BATCH, self._file.ring // 16)

    def _evict(self):
        """Forget the first batch, without a look into the file."""
        if not self._batches:
            self._end_batch(self._file.end)
        limit, joined = self._batches.popleft()
        self._begin = limit
        oids = sorted(set(_split(joined)))
        found = self._current.take_out([
            oid for oid in oids if self._current.get(oid, limit) < limit])
        keys = []
        if self._ended:
            for oid in oids:
                for key, position in self._ended.items(
                        oid + z64, oid + maxtid):
                    if position >= limit:
                        # One behind it may be older in the file; it goes
                        # together with this one.
                        break
                    keys.append(key)
            for key in keys:
                del self._ended[key]
        self._evictions += len(found) + len(keys)

    def _forget_all(self):
        self._current = Positions(fsIndex())
        self._ended = OLBTree()
        #: Where each ends in the file, and its oids, joined.
        self._batches = collections.deque()
        #: Of the next one: its oids, and where it ends.
        self._oids, self._batch_end = [], self._file.end if self._file else 0
        #: Where the first batch begins.
        self._begin = self._batch_end

    # The file

    @_alone
    def _read_file(self):
        if not self._file.scan(self._forget_all, self._replay):
            self._empty()
        self._last_tid = self._file.told
        for key in [key for key in self._ended if key[OID:] > self._last_tid]:
            del self._ended[key]
        if self.path is not None:
            logger.info('the cache %s has %d revisions, as of %s', self.path,
                        len(self), self._last_tid.hex())

    def _replay(self, position, kind, oid, serial, end, body):
        """Return False if this cannot follow what was read before."""
        file = self._file
        if kind == DATA:
            if max(serial, end) > file.told or z64 != end <= serial:
                return False
            self._index(position, oid, end)
        elif kind == ENDED and not len(body) % OID:
            self._take_out(serial, _split(body))
        elif kind in (TOLD, SEGMENT) and serial >= file.told:
            file.told = serial
        else:
            return False
        return True

    def _empty(self):
        try:
            if self._file is not None:
                self._file.empty(self._last_tid)
        except ClientDisconnected:
            raise
        except Exception as error:
            self._file.close()
            self._file = None
            logger.warning(
                'nothing is cached until the client is opened again, the file'
                ' of the cache cannot be emptied: %s',
                error or type(error).__name__)
        finally:
            self._forget_all()

    def close(self):
        with self._lock:
            if self._file is not None:
                self._flush()
            if self._file is not None:
                self._file.close()
                self._file = None
                self._forget_all()


def _check_tid(tid):
    # A server may send anything.
    if not isinstance(tid, bytes) or len(tid) != TID:
        raise ValueError(f'a last tid of {len(tid)} bytes')


def _split(joined):
    return [joined[at:at + OID] for at in range(0, len(joined), OID)]
