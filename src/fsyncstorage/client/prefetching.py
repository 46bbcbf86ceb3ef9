"""Prefetches: requests in one write, replies read when an object is wanted.

A prefetch only sends, and the answers wait in the socket.  The first thread
that wants one of the objects reads the answers up to its own, and keeps them
all in the cache.  So a prefetch needs no thread, and no switch between
threads.  At most `WINDOW` answers wait; a thread that asks for more objects
reads some answers first.

All prefetches use one reader, opened by the first of them.  The thread that
reads or writes there, or registers loads for it, holds `_turn`, which is taken
before the lock of the cache.  A finaliser may load or prefetch in the middle
of that, in the same thread: then it finds the reader `_in_use`, and leaves it
alone.
"""

import contextlib
import logging
import threading

from ..wire import frames
from .readers import Lost

logger = logging.getLogger(__name__)

# Requests that may be unanswered: the buffers of the connection have room for
# this many, even if the server does not read them.
WINDOW = 1000


class Prefetches:

    def __init__(self, cache, readers):
        self._cache = cache
        self._readers = readers
        self._reader = None
        self._turn = threading.RLock()
        self._in_use = False   # by the thread that has the turn
        self._waiting = {}  # number of a request -> Load

    def add(self, oids, tid, generation):
        """Ask for the objects that are not in the cache."""
        loads = []
        with self._turn:
            if not self._in_use:
                with self._used_for(loads):
                    self._cache.ask_for_missing(
                        oids, tid, generation, self, loads)
                    self._ask(loads)

    def _ask(self, loads):
        while loads:
            room = WINDOW - len(self._waiting)
            if room < min(len(loads), WINDOW // 2):
                self._take_reply()
            else:
                self._send(loads[:room])
                del loads[:room]

    def wait_for(self, load):
        """Read up to the reply to this load, or until none can come.

        Return False if this thread is already reading there, further
        up its stack.
        """
        with self._turn:
            if self._in_use:
                return False
            with self._used_for([load]):
                while not load.ended:
                    self._take_reply()
            return True

    @contextlib.contextmanager
    def _used_for(self, loads):
        """If the block raises, give up these loads, and all that wait for a
        reply."""
        try:
            self._in_use = True
            yield
        except Lost as error:
            self._give_up(loads)
            logger.info('a prefetch ended: %s', error)
        except BaseException:
            self._give_up(loads)
            raise
        finally:
            self._in_use = False

    def _send(self, loads):
        if self._reader is None:
            self._reader = self._readers.take()
        asked = self._reader.send(
            [frames.Load(0, load.oid, load.tid) for load in loads])
        self._waiting.update(
            (message.number, load) for message, load in zip(asked, loads))

    def _take_reply(self):
        if not self._waiting:
            raise Lost('no prefetch is unanswered')
        reply = self._reader.next()
        load = self._waiting[reply.number]
        if reply.__class__ not in (frames.Error, frames.Elsewhere):
            load.reply = reply
        self._cache.answered(load)
        del self._waiting[reply.number]

    def _give_up(self, loads):
        """End these loads, and all that wait for a reply, without one."""
        waiting, self._waiting = self._waiting, {}
        for load in [*waiting.values(), *loads]:
            if not load.ended:
                self._cache.answered(load)
        reader, self._reader = self._reader, None
        if reader is not None:
            self._readers.drop(reader)

    def close(self):
        """A thread that reads there gets `Lost`, and cleans up."""
        self._readers.close()
        if self._turn.acquire(blocking=False):
            try:
                if not self._in_use:
                    self._give_up([])
            finally:
                self._turn.release()
