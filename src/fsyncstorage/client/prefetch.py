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
        self._waiting = {}  # number of a request -> Load

    def add(self, oids, tid, generation):
        """Ask for those that are not in the cache."""
        with self._turn:
            loads = self._cache.ask_for_missing(oids, tid, generation, self)
            try:
                while loads:
                    room = WINDOW - len(self._waiting)
                    if room < min(len(loads), WINDOW // 2):
                        self._take_reply()
                    else:
                        self._send(loads[:room])
                        loads = loads[room:]
            except BaseException as error:
                self._give_up(loads)
                if not isinstance(error, Lost):
                    raise
                logger.info('a prefetch ended: %s', error)

    def wait_for(self, load):
        """Read up to the reply to this load, or until there will be none."""
        with self._turn:
            try:
                while not load.ended:
                    self._take_reply()
            except BaseException as error:
                self._give_up([])
                if not isinstance(error, Lost):
                    raise

    def _send(self, loads):
        if self._channel is None:
            self._channel = self._channels.take()
        self._waiting.update(self._channel.ask(loads))

    def _take_reply(self):
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
        """A thread that reads there gets `Lost`."""
        self._channels.close()
