"""Loads and prefetches on the read channels of one server.

The thread that wants an object writes the request and reads the reply itself.
If another thread has already requested the object, it waits for that answer.
`Lost` is raised when there is no answer: then the ZEO connection may get one.
"""

from .. import wire
from .prefetch import Prefetches
from .readchannel import Lost
from .readchannel import failure

# Seconds to wait for another thread's load of the same object; after that, the
# thread loads it itself.
SHARED_LOAD_WITHIN = 10


class Reader:

    def __init__(self, cache, channels, blob_channels, prefetch_channels):
        self._cache = cache
        self._channels = channels
        #: Separate, so that a large blob does not delay loads of objects.
        self.blob_channels = blob_channels
        self._generation = cache.pending.generation
        self._prefetches = Prefetches(cache, prefetch_channels)

    def load_before(self, oid, tid):
        """Return what loadBefore returns."""
        while True:
            load, last_tid = self._cache.ask(oid, tid, self._generation)
            if last_tid is None:
                return _content(self._answer(load), oid)
            self._wait_for(load)
            reply = load.reply
            if reply is not None and reply.as_of >= last_tid:
                return _content(reply, oid)

    def _wait_for(self, load):
        """Wait until another thread's load has ended, or give up waiting."""
        if load.prefetches is None:
            if load.done.acquire(timeout=SHARED_LOAD_WITHIN):
                load.done.release()
            else:
                # A thread may have been interrupted before it released it.
                self._cache.forsake(load)
        elif not load.prefetches.wait_for(load):
            self._cache.forsake(load)  # this thread would wait for itself

    def _answer(self, load):
        try:
            channel = self._channels.take()
            try:
                load.reply = reply = channel.load(load.oid, load.tid)
            except BaseException:
                self._channels.drop(channel)
                raise
            self._channels.give_back(channel)
            if reply.as_of < load.since:
                load.reply = None
                raise Lost('the server is behind what this client has seen')
            return reply
        finally:
            self._cache.answered(load)

    def prefetch(self, oids, tid):
        """Ask for the objects that are not in the cache; do not wait."""
        # A list, before anything else: iterating may load objects.  A new
        # object has no oid.
        oids = [oid for oid in oids if oid is not None]
        self._prefetches.add(oids, tid, self._generation)

    def close(self):
        self._channels.close()
        self.blob_channels.close()
        self._prefetches.close()


def _content(reply, oid):
    kind = reply.__class__
    if kind is wire.Found:
        return reply.data, reply.serial, reply.end
    if kind is wire.Nothing:
        return None
    raise failure(reply, oid)
