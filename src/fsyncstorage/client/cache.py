"""The client's cache of objects: ZEO's, which also knows what is asked for.

The file is ZEO's `.zec`, and a stock client takes it over as it is.  Added are
the loads that wait for an answer from a read channel (`pending`), under the
lock of the cache: an invalidation meets either the load or what was kept of
its answer, never neither.
"""

import threading

from ZEO.cache import ClientCache

from .. import wire
from .pending import Pending


class Cache(ClientCache):

    def __init__(self, path=None, size=200 << 20):
        self.pending = Pending()
        super().__init__(path, size)

    # What ZEO's client calls when something changes

    def invalidate(self, oid, tid):
        with self._lock:
            self.pending.overtake(oid)
            super().invalidate(oid, tid)

    def new_generation(self):
        """What is asked for now was asked of another server."""
        with self._lock:
            self.pending.new_generation()

    # Loads on read channels

    def ask(self, oid, tid, generation):
        """(load, None): do it; or (load, last tid): somebody does it.

        In the latter case wait until it has ended (for `load.done`, if it is
        not one of `load.prefetches`).  Its reply will do if it is true as of
        that tid.
        """
        with self._lock:
            load = self.pending.find(oid, tid)
            if load is None:
                return self.pending.begin(
                    oid, tid, self.tid, generation), None
            if load.done is None:
                load.done = threading.Event()
            return load, self.tid

    def ask_for_missing(self, oids, tid, generation, prefetches):
        """New loads of what is neither here nor asked for."""
        loads = []
        with self._lock:
            for oid in oids:
                if (oid not in self.current
                        and self.pending.find(oid, tid) is None):
                    load = self.pending.begin(
                        oid, tid, self.tid, generation)
                    load.prefetches = prefetches
                    loads.append(load)
        return loads

    def answered(self, load):
        """Keep what may be kept of its reply, if there was one."""
        with self._lock:
            self.pending.end(load)
            if load.reply.__class__ is wire.Found:
                self._keep(load)
            done = load.done
        if done is not None:
            done.set()

    def _keep(self, load):
        reply = load.reply
        if reply.end is None:
            keep = (load.oid not in self.current
                    and self.pending.may_keep_as_current(load, self.tid))
        else:
            keep = self.pending.may_keep(load)
        if keep:
            self.store(load.oid, reply.serial, reply.end, reply.data)
