"""Prefetches: asked for in one write, read by whoever wants the first of them.

A prefetch only sends.  The server answers while its caller does something
else, and the answers wait in the socket.  A thread that wants one of the
objects reads them, keeping all that come before its own; so it costs no
thread, and no switch between threads.  Nobody may want them: then some answers
stay where they are until the next prefetch or the end of the connection, at
most `WINDOW`; who asks for more reads some first.

There is one channel for it, opened by the first prefetch.  `_turn` is held by
the thread that reads or writes there, and by whoever registers loads for it;
it is taken before the lock of the cache.
"""

import contextlib
import logging
import threading

from .readchannel import Lost

logger = logging.getLogger(__name__)

# Requests that may be without an answer: in the buffers of the connection
# there is room for so many, whether the server reads them or not.
WINDOW = 1000


class Prefetches:

    def __init__(self, cache, channels):
        self._cache = cache
        self._channels = channels
        self._channel = None
        self._turn = threading.Lock()
        self._holder = None    # the thread that has it
        self._waiting = {}  # number of a request -> Load

    def add(self, oids, tid, generation):
        """Ask for those that are not in the cache."""
        if self.is_mine():
            return  # a prefetch within a prefetch (of a finalizer, say)
        loads = []
        with self._my_turn(loads):
            self._cache.ask_for_missing(oids, tid, generation, self, loads)
            while loads:
                room = WINDOW - len(self._waiting)
                if room < min(len(loads), WINDOW // 2):
                    self._take_reply()
                else:
                    self._send(loads[:room])
                    del loads[:room]

    def wait_for(self, load):
        """Read up to the reply to this load, or until there will be none."""
        with self._my_turn([load]):
            while not load.ended:
                self._take_reply()

    def is_mine(self):
        """Is it this thread that reads, further up?"""
        return self._holder == threading.get_ident()

    @contextlib.contextmanager
    def _my_turn(self, loads):
        """If it ends badly, these are given up, with all that wait."""
        with self._turn:
            self._holder = threading.get_ident()
            try:
                yield
            except Lost as error:
                self._give_up(loads)
                logger.info('a prefetch ended: %s', error)
            except BaseException:
                self._give_up(loads)
                raise
            finally:
                self._holder = None

    def _send(self, loads):
        if self._channel is None:
            self._channel = self._channels.take()
        self._waiting.update(self._channel.ask(loads))

    def _take_reply(self):
        if not self._waiting:
            raise Lost('nothing is on its way')
        reply = self._channel.next()
        load = self._waiting[reply.number]
        load.reply = reply
        self._cache.answered(load)
        del self._waiting[reply.number]

    def _give_up(self, loads):
        """Whoever wants one of them has to ask for it."""
        waiting, self._waiting = self._waiting, {}
        for load in [*waiting.values(), *loads]:
            if not load.ended:
                self._cache.answered(load)
        channel, self._channel = self._channel, None
        if channel is not None:
            self._channels.drop(channel)

    def close(self):
        """A thread that reads there gets `Lost`, and cleans up."""
        self._channels.close()
        if self._turn.acquire(blocking=False):
            try:
                self._give_up([])
            finally:
                self._turn.release()
