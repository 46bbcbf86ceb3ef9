"""Loads that wait for their answers, and which answers may be kept.

Answers come on read channels, invalidations on the ZEO connection, and
nothing orders the one and the other.  What is kept in the cache as current
must be current for the cache's last tid, and must be found there by every
invalidation of a later one.  So:

- a load is here from before it is asked until its answer was kept or not;
- an invalidation overtakes the loads of its object that are here, whether the
  object is in the cache or not;
- a verification of the cache begins a new generation: what was asked before it
  was perhaps asked of another server.

An answer is kept as current if nothing overtook it, in its own generation, if
it knows all that the cache knew when it was asked (`since`), and nothing that
the cache has not yet heard of (`serial`).

A second load of the same object waits for the first one's answer, and takes it
if that knows all that the cache knew when the *second* was asked.

Touches no file, socket, thread or clock.  Whoever calls holds the lock of the
cache.
"""


class Load:
    """One object that is asked for."""

    __slots__ = ('oid', 'tid', 'since', 'generation', 'overtaken', 'ended',
                 'done', 'prefetches', 'reply')

    def __init__(self, oid, tid, since, generation):
        self.oid = oid
        self.tid = tid
        self.since = since
        self.generation = generation
        self.overtaken = False
        self.ended = False
        #: Who reads the reply, if it is nobody's own load.
        self.prefetches = None
        #: An event that others wait for; None as long as nobody does.
        self.done = None
        #: What the server said; None if it was not heard.
        self.reply = None


class Pending:

    def __init__(self):
        self.generation = 0
        self._loads = {}  # oid -> [Load], of this generation

    def __len__(self):
        return sum(map(len, self._loads.values()))

    def begin(self, oid, tid, last_tid, generation):
        load = Load(oid, tid, last_tid, generation)
        if generation == self.generation:
            self._loads.setdefault(oid, []).append(load)
        return load

    def find(self, oid, tid):
        """A load of the same that may still be joined, or None."""
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

    def overtake(self, oid):
        for load in self._loads.get(oid, ()):
            load.overtaken = True

    def new_generation(self):
        self.generation += 1
        self._loads.clear()

    def may_keep(self, load):
        """Anything of its answer at all."""
        return load.generation == self.generation

    def may_keep_as_current(self, load, last_tid):
        reply = load.reply
        return (self.may_keep(load)
                and not load.overtaken
                and reply.as_of >= load.since
                and reply.serial <= last_tid)
