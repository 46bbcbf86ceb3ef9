"""The listening sockets, and newcomers until they say something.

A newcomer is only a socket.  The server sends it the greeting, and makes
it a connection when its first bytes arrive (with TLS, after the handshake).
So connections that send nothing cost the server little, and the queue of
connections to be accepted is emptied quickly.

Connections are accepted here, not by the event loop's own server.  So when the
server closes, it knows every connection.

Left to others: how many newcomers there may be, and which of them has to leave
(door); what a connection may say (connection).
"""

import asyncio
import contextlib
import fcntl
import resource
import socket
import traceback

from ZEO.asyncio import server as stock

from ..wire import frames
from . import quiet
from .connection import greeting
from .connection import shut
from .door import Full

logger = quiet.get_logger(__name__)

# Connections that may wait to be accepted.  A full queue slows down a flood:
# with a queue four times as long, honest clients waited ten times as long, and
# were then closed to make room for newer connections.
BACKLOG = 1024
# Connections that are accepted in one callback of the loop.
AT_ONCE = 32
# Seconds until the next try, when the system has no descriptor left.
PAUSE = 0.1
# Seconds until it is looked again what a newcomer has sent, of whom a few
# bytes have come.  Hardly anybody waits so long; and 1,000 connections that
# send one byte would take a third of a processor, if it was a tenth of that.
A_MOMENT = 0.5
# What a reader is told that no process takes.
REFUSED = frames.frame(frames.Refused(
    0, frames.TOO_MANY, b'no process can read for it now'))
# Seconds in which a peer must register.
REGISTER_WITHIN = 10
# The least number of a listening socket's descriptor, if the process may have
# so many; else it is among the last ones.
A_HIGH_NUMBER, LAST_ONES = 1 << 14, 64

# The first byte that each protocol begins with.  In ZEO's, it belongs to the
# length of a frame, and is zero because a newcomer's frame is short.
ZEO, TLS = (b'\0', 'ZEO'), (b'\x16', 'TLS')


class Listener:
    """Takes the arguments of ZEO's Acceptor, and replaces it."""

    def __init__(self, server, addr, ssl, msgpack, as_stock=False):
        """With `as_stock`, the greeting is that of a stock server."""
        self.server = server
        self.ssl_context = ssl
        self.first_byte, self.protocol = TLS if ssl else ZEO
        self.msgpack = msgpack
        self.greeting = greeting(msgpack, as_stock)
        self.newcomers = set()
        self._refuses = False
        # Looked up each time, as timing and tests replace it.
        self.event_loop = stock.new_event_loop()
        self._bound, self.sockets = None, []
        try:
            self._open(addr)
        except BaseException:
            self.close_loop()
            raise
        self.addr = self._reachable(addr)
        self._listen()
        logger.info('listening on %s', self.addr)

    def _open(self, addr):
        self._bound = self.event_loop.run_until_complete(self._bind(addr))
        self.sockets = [_closed_first(each) for each in self._bound.sockets]
        for each in self.sockets:
            each.setblocking(False)
            each.listen(BACKLOG)

    def _bind(self, addr):
        """Return a coroutine: asyncio binds every socket of an address."""
        create, arguments = (
            # As in stock, an IPv6 address may have two more parts.
            (self.event_loop.create_server, addr[:2])
            if isinstance(addr, tuple)
            else (self.event_loop.create_unix_server, (addr,)))
        # It accepts no connection, and makes no protocol.
        return create(asyncio.Protocol, *arguments, start_serving=False)

    def _reachable(self, addr):
        """The address, with the port that the system has chosen."""
        if not isinstance(addr, tuple) or addr[1]:
            return addr
        names = [each.getsockname() for each in self.sockets]
        alike = [name for name in names if len(name) == len(addr)]
        return alike[0] if alike else names[0][:len(addr)]

    # Accepting

    def _listen(self):
        if not self._refuses:
            for each in self.sockets:
                self.event_loop.add_reader(each, self._accept, each)

    def _listen_no_more(self):
        for each in self.sockets:
            self.event_loop.remove_reader(each)

    def refuse(self):
        """Close the port until `go_on`, and end all newcomers.  Called in any
        thread, whatever the loop is doing.

        (A client that is accepted, and sent away before it has registered, is
        worse off than one that is refused: see `_closed_first`.)
        """
        self._refuses = True
        for each in self.sockets:
            # A socket of the unix kind could not listen again: there, those
            # that come wait in the queue of the system.
            if each.family != socket.AF_UNIX:
                shut(each)
        for newcomer in list(self.newcomers):
            newcomer.shut()

    def go_on(self):
        """Open the port again, at the same address."""
        self._refuses = False
        for each in self.sockets:
            each.listen(BACKLOG)
        self._listen()

    def _accept(self, listening):
        if self._refuses:
            self._listen_no_more()
            return
        for _ in range(AT_ONCE):
            try:
                own, address = listening.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:
                logger.error('no connection can be accepted: %s', error)
                self._pause()
                return
            self._let_in(own, address)

    def _pause(self):
        """Accept nothing for a moment; else the loop would call `_accept`
        again at once."""
        self._listen_no_more()
        self.event_loop.call_later(PAUSE, self._listen)

    def _let_in(self, own, address):
        # '' for a unix socket.
        host = address[0] if isinstance(address, tuple) else ''
        newcomer = Newcomer(self, own, host)
        try:
            self.server.door.come(newcomer, host)
        except Full:
            logger.error('a connection is refused: no descriptors are left')
            newcomer.abort()
        else:
            newcomer.wait()

    # The end

    def loop(self, timeout=None):
        """Serve until the loop is stopped."""
        self.event_loop.run_forever()
        if self.server.said_farewell:
            self.close_loop()

    def stop_listening(self):
        """May be called repeatedly."""
        listening, self.sockets = self.sockets, []
        for each in listening:
            self.event_loop.remove_reader(each)
            each.close()
        if self._bound is not None:
            self._bound.close()
        for newcomer in list(self.newcomers):
            newcomer.abort()

    def close_loop(self):
        self.stop_listening()
        self.event_loop.close()


def _closed_first(bound):
    """The same socket, under a high number.

    Linux closes what a killed process had from the highest number down.  A
    stock client that loses its connection connects again at once.  If that
    still succeeds, its new connection ends before it has registered; and then,
    if it has another address that refuses it, it never tries this one again.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        limit = 2 * A_HIGH_NUMBER
    return socket.socket(fileno=fcntl.fcntl(
        bound.fileno(), fcntl.F_DUPFD_CLOEXEC,
        max(0, min(A_HIGH_NUMBER, limit - LAST_ONES))))


class Newcomer:
    """A peer that has not sent anything, or is in its TLS handshake."""

    #: It is to be closed; a connection made from it then closes itself.
    leaves = False
    _task = None
    #: A timer, when only a few bytes have come.
    _look_again = None

    def __init__(self, listener, own, host):
        self._listener = listener
        self._host = host
        self._loop = listener.event_loop
        #: None when it belongs to a transport.
        self._socket = own
        #: The greeting was sent.
        self.greeted = listener.ssl_context is None
        self.deadline = self._loop.time() + REGISTER_WITHIN
        self._patience = self._loop.call_at(self.deadline, self.abort)
        listener.newcomers.add(self)

    def wait(self):
        """Wait for its first byte.  Without TLS, send the greeting."""
        self._socket.setblocking(False)
        self._wait()
        if self.greeted:
            try:
                self._socket.send(self._listener.greeting)
            except OSError:  # it is gone already
                self.abort()

    def _wait(self):
        self._loop.add_reader(self._socket, self._speaks)

    def _speaks(self):
        try:
            first = self._socket.recv(frames.KNOWN_BY, socket.MSG_PEEK)
        except BlockingIOError:  # a false alarm of the system
            return
        except OSError:
            first = b''
        if frames.is_preface(first):
            self._begin_to_read()
        elif first[:1] == ZEO[0] and len(first) < frames.KNOWN_BY:
            # It may be a preface.  (The loop would call this again at once.)
            self._loop.remove_reader(self._socket)
            self._look_again = self._loop.call_later(A_MOMENT, self._wait)
        elif first[:1] == self._listener.first_byte:
            self._loop.remove_reader(self._socket)
            self._listener.server.door.speaks(self)
            self._task = self._loop.create_task(self._become_connection())
            self._task.add_done_callback(self._forget)
        else:
            if first:
                logger.error('disconnected: its first byte is %r, which is not'
                             ' %s', first, self._listener.protocol)
            self.abort()

    def _begin_to_read(self):
        """It is a reader of a client of ours.  Nothing was read of it."""
        taken = self._listener.server.readers.take(self._socket, self._host)
        if not taken and self.greeted:
            with contextlib.suppress(OSError):
                self._socket.send(REFUSED)
        self._forget()

    async def _become_connection(self):
        if self.leaves:
            return
        try:
            await self._loop.connect_accepted_socket(
                self._connection, self._socket,
                ssl=self._listener.ssl_context)
        except (OSError, asyncio.CancelledError) as error:
            if isinstance(error, OSError):
                logger.info('a connection that was lost at once: %s', error)
            # Else asyncio's buffers, 256 KB with TLS, stay in memory until the
            # next collection of cycles.
            traceback.clear_frames(error.__traceback__)

    def _connection(self):
        own, self._socket = self._socket, None
        return self._listener.server.new_connection(self._listener, self, own)

    def shut(self):
        """End it.  Called in any thread."""
        if (own := self._socket) is not None:
            shut(own)

    def abort(self):
        """Close it, whatever it is doing."""
        self.leaves = True
        if self._task is None:
            self._forget()
        elif self._listener.ssl_context is not None:
            self._task.cancel()
        # Without TLS, becoming a connection takes no time, so there is nothing
        # to cancel; and uvloop would not tell the connection of its end.

    def _forget(self, task=None):
        """May be called repeatedly."""
        self._patience.cancel()
        if self._look_again is not None:
            self._look_again.cancel()
        if self._socket is not None:
            self._loop.remove_reader(self._socket)
            self._socket.close()
            self._socket = None
        self._listener.newcomers.discard(self)
        self._listener.server.forget(self)
