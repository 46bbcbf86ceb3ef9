"""Prefetches over the ZEO connection, from a server without read channels.

ZEO asks for all objects at once, without waiting, and keeps a task and a call
for each until it is answered.  A program that asks faster than its server
answers would fill the memory.  So no more than `WINDOW` objects are requested
at a time.  A thread that asks for more, or for others in between, waits until
the objects before have arrived, or their connection has ended.
"""

import contextlib
import threading

WINDOW = 1000


class PlainPrefetches:

    def __init__(self, ask):
        """`ask` is called with oids and a tid, and returns a future."""
        self._ask = ask
        # Reentrant: a finalizer in the same thread may prefetch, too.
        self._turn = threading.RLock()
        self._under_way = None  # a future

    def add(self, oids, tid):
        # A list, before anything else: iterating may load objects.  A new
        # object has no oid.
        oids = [oid for oid in oids if oid is not None]
        for first in range(0, len(oids), WINDOW):
            with self._turn:
                self._wait()
                self._under_way = self._ask(oids[first:first + WINDOW], tid)

    def _wait(self):
        before, self._under_way = self._under_way, None
        if before is not None:
            with contextlib.suppress(Exception):
                before.result()  # a load will ask again for what is missing
