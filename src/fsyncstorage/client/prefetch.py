"""Prefetches: asked for in one write, read by whoever wants the first of them.

A prefetch only sends.  The server answers while its caller does something
else, and the answers wait in the socket.  A thread that wants one of the
objects reads them, keeping all that come before its own; so it costs no
thread, and no switch between threads.  Nobody may want them: then some answers
stay where they are until the next prefetch or the end of the connection, at
most `WINDOW`; who asks for more reads some first.

There is one channel for it, opened by the first prefetch.  `_turn` is held by
the thread that reads or writes there, and by one that registers loads for it;
it is taken before the lock of the cache.  A finaliser can call in the middle
of that, in the same thread: the channel is `_in_use` then, and left alone.
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
        self._turn = threading.RLock()
        self._in_use = False   # by the thread that has the turn
        self._waiting = {}  # number of a request -> Load

    def add(self, oids, tid, generation):
        """Ask for those that are not in the cache."""
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
        """Read up to the reply to this load, or until there will be none.

        Return False if this thread cannot: it is reading there, further up.
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
        """If it ends badly, these are given up, with all that wait."""
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
                if not self._in_use:
                    self._give_up([])
            finally:
                self._turn.release()
