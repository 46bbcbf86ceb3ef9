"""Connections of a client for reading alone: a few, opened when needed.

The thread that wants an object writes the request and reads the answer itself.
A reader belongs to one thread at a time.  Any error between a request and its
answer ends the reader, because a later request could take the answer for its
own; then `Lost` is raised, and the stream may give the answer.

Readers last as long as the stream to the same server.  The free one that was
used last is taken first; a thread that finds none free waits for one.  When
none can be opened, the next try comes after `RETREAT` seconds.
"""

import contextlib
import logging
import os
import socket
import threading
import time

from ..wire import frames
from ..wire.order import Order
from .failover import LONGEST_TRY
from .failover import NoServer

logger = logging.getLogger(__name__)

# Seconds without a try after a reader could not be opened.
RETREAT = 5

RECEIVED_AT_ONCE = 1 << 16

# Seconds for which a thread polls the socket before blocking: a server on the
# same machine answers sooner than a thread falls asleep and is woken.
LOOK = 300e-6
# After polling in vain, a thread blocks at once for the next few replies; each
# time in a row for twice as many, up to the maximum.
FEWEST_SLEEPS, MOST_SLEEPS = 4, 256


class Lost(Exception):
    """There is no answer, and this reader will not give any more."""


class Reader:

    def __init__(self, opened, is_plain):
        """`is_plain`: without TLS, so that it can be polled."""
        self._connection = opened.connection
        self._inbox = opened.inbox
        self._order = Order(frames.NO_TID)
        self._looks = is_plain
        self._sleeps = 0
        self._next_sleeps = FEWEST_SLEEPS

    def ask(self, message):
        self.send([message])
        return self.next()

    def send(self, messages):
        """Return them with their numbers."""
        asked = [self._order.asks(message) for message in messages]
        try:
            self._connection.sendall(b''.join(map(frames.frame, asked)))
        except OSError as error:
            raise Lost(str(error)) from error
        return asked

    def next(self):
        try:
            while (message := self._inbox.next()) is None:
                data = self._receive()
                if not data:
                    raise Lost('the server has closed it')
                self._inbox.add(data)
            if not message.number:
                raise Lost(f'{message!r:.100} to a reader')
            return self._order.take(message)
        except (OSError, frames.PeerError) as error:
            raise Lost(str(error)) from error

    def is_missing(self, number):
        """Are there chunks of this blob to come?"""
        return self._order.state(number) is not None

    def _receive(self):
        if self._sleeps:
            self._sleeps -= 1
        elif self._looks:
            data = self._look()
            if data is not None:
                self._next_sleeps = FEWEST_SLEEPS
                return data
            self._sleeps = self._next_sleeps
            self._next_sleeps = min(2 * self._next_sleeps, MOST_SLEEPS)
        return self._connection.recv(RECEIVED_AT_ONCE)

    def _look(self):
        """Poll for `LOOK` seconds; return what has arrived, or None."""
        end = time.perf_counter() + LOOK
        while time.perf_counter() < end:
            try:
                return self._connection.recv(
                    RECEIVED_AT_ONCE, socket.MSG_DONTWAIT)
            except BlockingIOError:
                os.sched_yield()  # let others run

    def interrupt(self):
        """Wake a thread that waits for an answer.  Any thread may call it."""
        with contextlib.suppress(OSError):  # it is closed already
            self._connection.shutdown(socket.SHUT_RDWR)

    def close(self):
        self._connection.close()


class Readers:

    def __init__(self, name, most, open_one):
        """`open_one(seconds)` returns a Reader, or raises NoServer."""
        self._name = name
        self._most = most
        self._open_one = open_one
        self._free = []
        #: Those that are open, and free or used by a thread.
        self._open = set()
        self._opening = 0
        self._changed = threading.Condition()
        self._not_before = 0
        self._is_closed = False

    @contextlib.contextmanager
    def reader(self):
        """One for this thread; it is closed if anything is raised."""
        reader = self.take()
        try:
            yield reader
        except BaseException:
            self.drop(reader)
            raise
        self.give_back(reader)

    def take(self):
        with self._changed:
            while not self._may_open():
                if self._free:
                    return self._free.pop()
                self._changed.wait()
            self._opening += 1
        reader = None
        try:
            reader = self._new()
        finally:
            with self._changed:
                self._opening -= 1
                if reader is not None:
                    self._open.add(reader)
                # All: while none can be opened, each thread must give up.
                self._changed.notify_all()
        if self._is_closed:
            self.drop(reader)
            raise Lost('the stream has ended')
        return reader

    def _may_open(self):
        """May one be opened now?  Else the caller takes one, or waits."""
        if self._is_closed:
            raise Lost('the stream has ended')
        if self._free:
            return False
        if time.monotonic() < self._not_before:
            if not self._open:
                raise Lost('no reader could be opened just now')
            return False
        return len(self._open) + self._opening < self._most

    def _new(self):
        try:
            return self._open_one(LONGEST_TRY)
        except NoServer as error:
            if not self._is_closed:
                logger.warning(
                    '%s: no reader: %s; reading over the stream for %s s',
                    self._name, error, RETREAT)
                self._not_before = time.monotonic() + RETREAT
            raise Lost(str(error)) from error

    def give_back(self, reader):
        with self._changed:
            if not self._is_closed:
                self._free.append(reader)
                self._changed.notify()
                return
        self.drop(reader)

    def drop(self, reader):
        with self._changed:
            self._open.discard(reader)
            self._changed.notify_all()
        reader.close()

    def close(self):
        """Threads that wait for an answer or for a reader get `Lost`."""
        with self._changed:
            self._is_closed = True
            free, self._free = self._free, []
            for reader in self._open:
                reader.interrupt()
            self._changed.notify_all()
        for reader in free:
            self.drop(reader)
