"""Connections of a client for reading alone: a few, opened when needed.

The thread that wants an object writes the request and reads the answer itself.
A reader belongs to one thread at a time.  Any error between a request and its
answer ends the reader, because a later request could take the answer for its
own; then `Lost` is raised, and the stream may give the answer.

Readers last as long as the stream to the same server.  The free one that was
used last is taken first; a thread that finds none free waits for one, but not
for ever.  When none can be opened, the next try comes after `RETREAT` seconds,
and each further one after twice as many.
"""

import _socket
import contextlib
import logging
import socket
import threading
import time

from .. import core
from ..wire import frames
from ..wire.order import Order
from .failover import LONGEST_TRY
from .failover import NoServer

logger = logging.getLogger(__name__)

# Seconds without a try after a reader could not be opened; twice as many after
# each further time, and at most.  (A proxy may let streams through and no
# readers: then each try keeps a thread for LONGEST_TRY.)
RETREAT, LONGEST_RETREAT = 5, 600
# Seconds that a thread waits for a reader of another one; then the stream
# serves it.  (Others may download large blobs, and exceptions of signal
# handlers may have torn all readers away.)
LONGEST_WAIT = 10

RECEIVED_AT_ONCE = 1 << 16


class Lost(Exception):
    """There is no answer, and this reader will not give any more."""


class Reader:

    def __init__(self, opened):
        self._connection = opened.connection
        self._inbox = opened.inbox
        self._order = Order(frames.NO_TID)
        #: For a load by the core; sockets that others have replaced, as gevent
        #: does, have threads of their own.
        self.descriptor = (
            self._connection.fileno()
            if isinstance(self._connection, _socket.socket)
            else core.NO_DESCRIPTOR)

    def load(self, oid, tid):
        """The reply, when nothing else is asked for here."""
        self.send([frames.Load(0, oid, tid)])
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
                data = self._connection.recv(RECEIVED_AT_ONCE)
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

    def interrupt(self):
        """Wake a thread that waits for an answer.  Any thread may call it."""
        with contextlib.suppress(OSError):  # it is closed already
            self._connection.shutdown(socket.SHUT_RDWR)

    def close(self):
        self.descriptor = core.NO_DESCRIPTOR
        self._connection.close()


class Readers:

    def __init__(self, name, most, open_one):
        """`open_one(seconds)` returns a Reader, or raises NoServer."""
        self._name = name
        self._most = most
        self._open_one = open_one
        #: Threads take from it, and give back to it, without the lock.
        self._free = []
        #: Those that are open, and free or used by a thread.
        self._open = set()
        self._opening = 0
        #: Threads that wait for one.
        self._waiting = 0
        self._changed = threading.Condition()
        self._not_before = 0
        self._retreat = RETREAT
        self._is_closed = False

    def load(self, oid, tid):
        """The reply that one of them gets; it is closed if anything is raised.
        """
        reader = self.take()
        try:
            reply = reader.load(oid, tid)
        except BaseException:
            self.drop(reader)
            raise
        self.give_back(reader)
        return reply

    def take(self):
        try:
            return self._free.pop()
        except IndexError:
            return self._waited_for()

    def _waited_for(self):
        ends = time.monotonic() + LONGEST_WAIT
        with self._changed:
            self._waiting += 1
            try:
                while not self._may_open():
                    with contextlib.suppress(IndexError):
                        return self._free.pop()
                    self._wait(ends)
                self._opening += 1
            finally:
                self._waiting -= 1
        return self._opened()

    def _opened(self):
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

    def _wait(self, ends):
        try:
            in_time = self._changed.wait(ends - time.monotonic())
        except BaseException:
            self._changed.notify()  # another thread may have this reader
            raise
        if not in_time and not self._free:
            raise Lost('no reader became free')

    def _may_open(self):
        """May one be opened now?  Else the caller takes one, or waits."""
        if self._is_closed:
            raise Lost('the stream has ended')
        if not self._most:
            raise Lost('the server has none')
        if self._free:
            return False
        if time.monotonic() < self._not_before:
            if not self._open:
                raise Lost('no reader could be opened just now')
            return False
        return len(self._open) + self._opening < self._most

    def _new(self):
        try:
            reader = self._open_one(LONGEST_TRY)
        except NoServer as error:
            self._retreat_for(error)
            raise Lost(str(error)) from error
        self._retreat = RETREAT
        return reader

    def _retreat_for(self, error):
        with self._changed:
            now, retreat = time.monotonic(), self._retreat
            if self._is_closed or now < self._not_before:
                return  # another thread has failed at the same time
            self._not_before = now + retreat
            self._retreat = min(2 * retreat, LONGEST_RETREAT)
        logger.log(
            logging.WARNING if retreat == RETREAT else logging.INFO,
            '%s: no reader: %s; reading over the stream for %s s', self._name,
            error, retreat)

    def give_back(self, reader):
        self._free.append(reader)
        # Whoever begins to wait from here on finds it there; and so does a
        # close.
        if self._waiting:
            with self._changed:
                self._changed.notify()
        if self._is_closed:
            self._drop_the_free()

    def _drop_the_free(self):
        with contextlib.suppress(IndexError):
            while True:
                self.drop(self._free.pop())

    def drop(self, reader):
        with self._changed:
            self._open.discard(reader)
            self._changed.notify_all()
        reader.close()

    def close(self):
        """Threads that wait for an answer or for a reader get `Lost`."""
        with self._changed:
            self._is_closed = True
            for reader in self._open:
                reader.interrupt()
            self._changed.notify_all()
        self._drop_the_free()
