"""The read channels to one server: a few, opened when they are needed.

They last as long as the ZEO connection to that server.  The free channel that
was used last is taken first.  A thread that finds none free waits for one.

When the server refuses a channel, or none can be opened, the next try comes
after `RETREAT` seconds.  Until then, if no channel is open, `Lost` is raised
at once, and the caller asks on the ZEO connection.
"""

import collections
import contextlib
import logging
import threading
import time
import weakref

from .readchannel import Lost
from .readchannel import ReadChannel

logger = logging.getLogger(__name__)

# Seconds without a try after a channel could not be opened.
RETREAT = 5
# Seconds after which a thread that waits for a channel looks again, unwoken.
LOOK_AGAIN = 1


class Channels:

    def __init__(self, name, most, *server):
        self._name = name
        self._most = most
        self._server = server
        self._free = collections.deque()
        # Guards all below.  If no thread waits, a channel is given back
        # without it: a thread counts itself as waiting, then looks once more.
        # (Always `with` the lock itself: see `blobs.arriving`.)
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        # Weak, so that a channel that an interrupted thread forgot leaves it.
        self._open = weakref.WeakSet()
        #: Channels that wait for the server's welcome, and perhaps some that
        #: never got it.
        self._begun = weakref.WeakSet()
        self._opening = 0
        self._waiting = 0
        self._not_before = 0
        self._closed = False

    @contextlib.contextmanager
    def channel(self):
        """A channel for one thread; closed if anything is raised."""
        channel = self.take()
        try:
            yield channel
        except BaseException:
            self.drop(channel)
            raise
        self.give_back(channel)

    def take(self):
        try:
            return self._free.pop()
        except IndexError:
            return self._wait_or_open()

    def give_back(self, channel):
        self._free.append(channel)
        if self._waiting:
            with self._lock:
                self._changed.notify()
        if self._closed:
            self._close_free()

    def drop(self, channel):
        with self._lock:
            self._open.discard(channel)
            # Wake all: while none can be opened, each thread must give up.
            self._changed.notify_all()
        channel.close()

    def _wait_or_open(self):
        with self._lock:
            self._waiting += 1
            try:
                while not self._may_open():
                    with contextlib.suppress(IndexError):
                        return self._free.pop()
                    self._changed.wait(LOOK_AGAIN)
                self._opening += 1
            finally:
                self._waiting -= 1
        return self._open_one()

    def _may_open(self):
        """May a channel be opened now?  Else the caller waits for one."""
        if self._closed:
            raise Lost('the connection was closed')
        if self._free:
            return False
        if time.monotonic() < self._not_before:
            if not self._open:
                raise Lost('no channel could be opened just now')
            return False
        return len(self._open) + self._opening < self._most

    def _open_one(self):
        channel = None
        try:
            channel = self._new()
        finally:
            with self._lock:
                self._opening -= 1
                if channel is not None:
                    self._begun.discard(channel)
                    self._open.add(channel)
                self._changed.notify_all()
        if self._closed:
            self.drop(channel)
            raise Lost('the connection was closed')
        return channel

    def _new(self):
        try:
            return ReadChannel(*self._server, begun=self._is_begun)
        except Lost as error:
            if not self._closed:  # else `close` has ended it
                logger.warning(
                    '%s: no read channel to %s: %s; reading without for %s s',
                    self._name, self._server[0], error, RETREAT)
                self._not_before = time.monotonic() + RETREAT
            raise

    def _is_begun(self, channel):
        with self._lock:
            self._begun.add(channel)
            if self._closed:
                raise Lost('the connection was closed')

    def close(self):
        """Threads that wait for an answer or for a channel get `Lost`."""
        with self._lock:
            self._closed = True
            channels = {*self._open, *self._begun}
            self._changed.notify_all()
        for channel in channels:
            channel.interrupt()
        self._close_free()

    def _close_free(self):
        with contextlib.suppress(IndexError):
            while True:
                self.drop(self._free.pop())
