"""Loads that wait for their answers, and which answers may be kept.

Answers and invalidations arrive on different connections, and there is no
order between the two.  What is kept in the cache as current must be current
for the cache's last tid, and every invalidation of a later tid must find it
there.  So:

- a load is here from before its request is sent until its answer is kept or
  dropped;
- an invalidation overtakes the loads of its object that are here, whether the
  object is in the cache or not;
- a verification of the cache begins a new generation: requests from before it
  may have gone to another server.

An answer is kept as current if it arrives in the generation of its load, if no
invalidation overtook the load, if the answer is true as of the cache's last
tid at the time of the request (`since`), and if its object is not newer than
the cache's last tid now (`serial`).

A second load of the same object waits for the first one's answer, and takes it
if it is true as of the cache's last tid when the *second* load began.

This module touches no file, socket, thread or clock.  The caller holds the
lock of the cache.
"""

from ZODB.utils import z64


class Load:
    """A request for one object."""

    __slots__ = ('oid', 'tid', 'since', 'generation', 'overtaken', 'ended',
                 'done', 'prefetches', 'reply')

    def __init__(self, oid, tid, since, generation):
        self.oid = oid
        self.tid = tid
        self.since = since
        self.generation = generation
        self.overtaken = False
        self.ended = False
        #: The prefetches that will read the reply; None: a thread does.
        self.prefetches = None
        #: A lock for threads that wait, each of which releases it for the
        #: next one; None as long as there are none.
        self.done = None
        #: The server's reply: a revision (frames.Found), or anything else;
        #: None if there was none.
        self.reply = None


class Pending:

    def __init__(self):
        self.generation = 0
        self._loads = {}  # oid -> [Load], of this generation

    def begin(self, oid, tid, last_tid, generation):
        load = Load(oid, tid, last_tid, generation)
        if generation == self.generation:
            self._loads.setdefault(oid, []).append(load)
        return load

    def find(self, oid, tid):
        """A load of the same object and tid that other threads may still wait
        for, or None."""
        for load in self._loads.get(oid, ()):
            if load.tid == tid and not load.overtaken:
                return load

    def end(self, load):
        load.ended = True
        if load.generation == self.generation:
            loads = self._loads[load.oid]
            loads.remove(load)
            if not loads:
                del self._loads[load.oid]

    def overtake(self, oids):
        if self._loads:  # mostly there are none
            for oid in oids:
                for load in self._loads.get(oid, ()):
                    load.overtaken = True

    def new_generation(self):
        self.generation += 1
        self._loads.clear()

    def may_keep(self, load, last_tid):
        """May its answer, a revision, be kept?"""
        reply = load.reply
        if load.generation != self.generation:
            return False
        if reply.end in (None, z64):
            return (not load.overtaken
                    and reply.as_of >= load.since
                    and reply.serial <= last_tid)
        # Only when the cache knows of the end: until then the object may be
        # in it as current.
        return reply.end <= last_tid
