"""Finds a server among the addresses, and keeps a stream to it.

One thread does it for as long as the client is open.  It tries the addresses
one after the other, opens a stream to the first server that takes this client,
lets the storage verify its cache, and then is the background reader of that
stream until it is over.  Then it begins again.

An address that nobody answers at is tried for a short time, which grows from
round to round: behind a machine that is away there may be one that leads.
After a stream that was of use, all addresses are tried at once; after each
round in vain there is a pause, which grows, too.  The pauses vary at random,
so that the clients of a server do not all come back at the same moment.

A client that writes and may be given a server where nobody can (read-only
fallback) looks for a better one meanwhile, in a second thread.

Locks: `_changed` guards which stream there is.
"""

import logging
import random
import socket
import threading
import time
from typing import NamedTuple

from ZEO.Exceptions import ClientDisconnected

from ..client.sockets import keep_alive
from ..client.tlsconnection import TLSConnection
from . import frames

logger = logging.getLogger(__name__)

# Seconds: for a connection in the first round, and at most.
FIRST_TRY, LONGEST_TRY = 1, 10
# Seconds for each of TLS, the greeting and the welcome; a cache may be looked
# up.
WELCOME_WITHIN = 30
# Seconds after the first round in vain, and at most.
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 0.5
# Seconds from one look for a server where this client may write to the next.
LOOK_FOR_BETTER = 30
# Seconds that a close waits for the thread.
END_WITHIN = 9


class NoServer(Exception):
    """This address does not do; its text says why."""


class Opened(NamedTuple):
    """A connection on which the server has taken this client."""
    address: object
    connection: object
    inbox: frames.Inbox
    welcome: frames.Welcome


def greeting(address, ssl, hostname, within):
    """What the server at this address says first; or NoServer."""
    connection, _, said = _greeted(address, ssl, hostname, within)
    connection.close()
    return said


def _greeted(address, ssl, hostname, within):
    """The connection, its inbox, and what the server has said."""
    try:
        connection = _connected(address, ssl, hostname, within)
    except (OSError, UnicodeError) as error:  # of the host's name, too
        raise NoServer(str(error)) from error
    try:
        inbox = frames.Inbox()
        said = _next(connection, inbox)
        if not frames.is_greeting(said):
            raise NoServer(f'no ZEO server: it says {said[:20]!r}')
        return connection, inbox, said
    except (OSError, frames.PeerError) as error:
        connection.close()
        raise NoServer(str(error)) from error
    except BaseException:
        connection.close()
        raise


def opened(address, ssl, hostname, hello, within):
    """Connect, and say hello; NoServer if the server does not take it."""
    connection, inbox, _ = _greeted(address, ssl, hostname, within)
    try:
        connection.sendall(frames.frame(hello))
        inbox.longest = frames.LONGEST
        message = frames.taken(_next(connection, inbox))
        if message.__class__ is frames.Refused:
            raise NoServer(message.text.decode('utf-8', 'replace')[:1000])
        if message.__class__ is not frames.Welcome:
            raise NoServer(f'it answers a hello by {message!r:.100}')
        connection.settimeout(None)
        if ssl is not None:
            connection = TLSConnection(connection)
        return Opened(address, connection, inbox, message)
    except (OSError, frames.PeerError, frames.CallerError) as error:
        connection.close()
        raise NoServer(str(error)) from error
    except BaseException:
        connection.close()
        raise


def _next(connection, inbox):
    """The next frame, without its length, if all of it comes in time."""
    ends = time.monotonic() + WELCOME_WITHIN
    while (body := inbox.next_body()) is None:
        left = ends - time.monotonic()
        if left <= 0:
            raise NoServer(f'it said too little within {WELCOME_WITHIN} s')
        connection.settimeout(left)
        data = connection.recv(1 << 16)
        if not data:
            raise NoServer('it has closed the connection')
        inbox.add(data)
    return body


def _connected(address, ssl, hostname, within):
    if isinstance(address, str):
        connection = socket.socket(socket.AF_UNIX)
    else:
        host, port = address
        connection = socket.create_connection(
            (host or '127.0.0.1', port), within)
    try:
        connection.settimeout(within)
        if isinstance(address, str):
            connection.connect(address)
            return connection
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        keep_alive(connection)
        if ssl is not None:
            connection.settimeout(WELCOME_WITHIN)
            connection = ssl.wrap_socket(
                connection, server_hostname=hostname or host)
        return connection
    except BaseException:
        connection.close()
        raise


class Failover:

    def __init__(self, name, addresses, ssl, hostname, storage):
        """`storage` has these, called in the thread that is made here:

        hellos()         functions that make a hello, the best first
        meet(opened)     verify the cache; return the Stream, or raise NoServer
        leave(stream)    this stream is over
        wants_better     a server would do better that takes the first hello
        """
        self._name = name
        self._addresses = list(addresses)
        self._ssl = ssl
        self._hostname = hostname
        self._storage = storage
        self._changed = threading.Condition()
        self._stream = None
        #: One that was found while a stream to a lesser server was used.
        self._better = None
        self._is_closed = False
        self._said = {}  # address -> why it did not do
        self._thread = threading.Thread(
            target=self._run, daemon=True, name=f'{name} stream')
        self._thread.start()

    # Any thread

    @property
    def stream(self):
        """The stream; None: there is no server."""
        stream = self._stream
        return stream if stream and stream.end_reason is None else None

    def wait(self, seconds, beyond=None):
        """A stream, and another one than `beyond`.  ClientDisconnected if
        there is none after so many seconds; None: wait for ever."""
        ends = None if seconds is None else time.monotonic() + seconds
        with self._changed:
            while True:
                stream = self.stream
                if stream is not None and stream is not beyond:
                    return stream
                if self._is_closed:
                    raise ClientDisconnected('this storage is closed')
                left = None if ends is None else ends - time.monotonic()
                if left is not None and left <= 0:
                    raise ClientDisconnected(
                        f'no server after {seconds:g} s: {self.trouble}')
                self._changed.wait(left)

    @property
    def trouble(self):
        """Why there is no server, in words."""
        return '; '.join(f'{address}: {why}'
                         for address, why in self._said.copy().items())

    def close(self):
        with self._changed:
            self._is_closed = True
            stream = self._stream
            self._changed.notify_all()
        if stream is not None:
            stream.end('this storage is closed')
        if threading.current_thread() is not self._thread:
            self._thread.join(END_WITHIN)

    # Its thread

    def _run(self):
        rounds = 0
        while not self._is_closed:
            stream = self._found(min(FIRST_TRY + rounds, LONGEST_TRY))
            if stream is None:
                self._pause(rounds)
                rounds += 1
                continue
            self._set(stream)
            if self._storage.wants_better:
                threading.Thread(
                    target=self._look_for_better, args=(stream,), daemon=True,
                    name=f'{self._name} looks for a better server').start()
            begun = time.monotonic()
            try:
                stream.read_in_background()
            finally:
                self._set(None)
                self._storage.leave(stream)
            logger.info('%s: the stream has ended: %s', self._name,
                        stream.end_reason)
            if time.monotonic() - begun > LONGEST_PAUSE:
                rounds = 0
            else:  # it was of no use
                self._pause(rounds)
                rounds += 1
        if self._better is not None:
            self._better.connection.close()

    def _set(self, stream):
        with self._changed:
            self._stream = stream
            if self._is_closed and stream is not None:
                stream.end('this storage is closed')
            self._changed.notify_all()

    def _pause(self, rounds):
        longest = min(FIRST_PAUSE * 2 ** min(rounds, 20), LONGEST_PAUSE)
        with self._changed:
            if not self._is_closed:
                self._changed.wait(longest * random.uniform(0.5, 1))

    def _found(self, within):
        """A stream to the first server that does; None: there is none."""
        for found in self._openings(self._storage.hellos(), within):
            try:
                stream = self._storage.meet(found)
            except NoServer as error:
                self._say(found.address, str(error))
            except Exception as error:
                # This thread must go on, whatever a server says.
                logger.exception('%s: %s cannot be used', self._name,
                                 found.address)
                self._say(found.address, repr(error))
            else:
                self._said.clear()
                return stream
        return None

    def _openings(self, hellos, within):
        """Yield each server that takes this client."""
        better, self._better = self._better, None
        if better is not None:
            yield better
        for hello in hellos:
            for address in self._addresses:
                if self._is_closed:
                    return
                try:
                    yield opened(address, self._ssl, self._hostname, hello(),
                                 within)
                except NoServer as error:
                    self._say(address, str(error))

    def _look_for_better(self, lesser):
        """Until there is one; then the lesser stream ends."""
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._stream is not lesser, LOOK_FOR_BETTER)
                if self._stream is not lesser:
                    return
            best = next(iter(self._storage.hellos()))
            for found in self._openings([best], FIRST_TRY):
                with self._changed:
                    self._better = found
                lesser.end('there is a server where this client may write')
                return

    def _say(self, address, why):
        """Log it, if that was not the last that was said of this address."""
        if self._said.get(address) != why:
            self._said[address] = why
            logger.info('%s: no stream to %s: %s', self._name, address, why)
