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

import contextlib
import logging
import random
import socket
import threading
import time
from typing import Any
from typing import NamedTuple

from ZEO.Exceptions import ClientDisconnected

from ..wire import frames
from ..wire.tcp import set_options
from .tlsconnection import TLSConnection

logger = logging.getLogger(__name__)

# Seconds: for a connection, and for the greeting, in the first round, and at
# most.
FIRST_TRY, LONGEST_TRY = 1, 10
# Seconds for each of TLS, the greeting and the welcome; a cache may be looked
# up.
WELCOME_WITHIN = 30
# Seconds without an answer of the other machine, after which the system ends a
# connection.  A server of ours may leave a large frame in the system until it
# has room for it (`server.incoming`).
MACHINE_GONE = 75
# Seconds after the first round in vain, and at most.
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 0.5
# Seconds from one look for a server where this client may write to the next.
LOOK_FOR_BETTER = 30
# Seconds that a close waits for the thread.
END_WITHIN = 9
# Seconds after which it is said once more why an address does not do.
SAY_AGAIN = 60

STOCK = ('it is a stock server, and this client was opened for one of'
         ' fsyncstorage. When this process is started again, its client takes'
         ' a stock server, unless the key server-kind says "ours"')


class NoServer(Exception):
    """This address does not do; its text says why."""


class Opened(NamedTuple):
    """A connection on which the server has taken this client."""
    address: Any
    connection: Any  # a socket, or a TLSConnection
    inbox: frames.Inbox
    welcome: frames.Welcome


def greeting(address, ssl, hostname, within):
    """What the server at this address says first; or NoServer."""
    connection, _, said = _greeted(
        address, ssl, hostname, within, _ignore, WELCOME_WITHIN)
    connection.close()
    return said


def _ignore(connection):
    """Nobody ends it while it is being opened."""


def _greeted(address, ssl, hostname, within, begun, greets_within,
             preface=b''):
    """The connection, its inbox, and what the server has said."""
    try:
        connection = _connected(
            address, ssl, hostname, within, begun, preface)
    except (OSError, UnicodeError) as error:  # of the host's name, too
        raise NoServer(str(error)) from error
    try:
        inbox = frames.Inbox()
        said = _next(connection, inbox, greets_within)
        if not frames.is_greeting(said):
            raise NoServer(f'no ZEO server: it says {said[:20]!r}')
        return connection, inbox, said
    except (OSError, frames.PeerError) as error:
        connection.close()
        raise NoServer(str(error)) from error
    except BaseException:
        connection.close()
        raise


def opened(address, ssl, hostname, hello, within, begun=_ignore):
    """Connect, and say hello; NoServer if the server does not take it.

    `begun(connection)` is called as soon as the machine has answered: another
    thread may then end the connection by `shutdown`.
    """
    reads = hello.__class__ is frames.HelloOfAReader
    # A server that hangs must not keep the client from the next address.
    connection, inbox, said = _greeted(
        address, ssl, hostname, within, begun, within,
        frames.PREFACE if reads else b'')
    try:
        connection.sendall(frames.frame(hello))
        inbox.longest = frames.LONGEST
        message = frames.taken(_next(connection, inbox, WELCOME_WITHIN))
        if message.__class__ is frames.Refused:
            raise NoServer(message.text.decode('utf-8', 'replace')[:1000])
        if message.__class__ is not frames.Welcome:
            raise NoServer(f'it answers a hello by {message!r:.100}')
        connection.settimeout(None)
        if ssl is not None:
            connection = TLSConnection(connection)
        return Opened(address, connection, inbox, message)
    except frames.CallerError as error:
        connection.close()
        raise NoServer(str(error)) from error
    except (OSError, frames.PeerError) as error:
        connection.close()
        raise NoServer(str(error) if said.endswith(frames.SUFFIX)
                       else f'{STOCK} ({error})') from error
    except BaseException:
        connection.close()
        raise


def _next(connection, inbox, within):
    """The next frame, without its length, if all of it comes in time."""
    ends = time.monotonic() + within
    while (body := inbox.next_body()) is None:
        left = ends - time.monotonic()
        if left <= 0:
            raise TimeoutError(f'it said too little within {within} s')
        connection.settimeout(left)
        data = connection.recv(1 << 16)
        if not data:
            raise ConnectionError('it has closed the connection')
        inbox.add(data)
    return body


def _connected(address, ssl, hostname, within, begun, preface):
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
            connection.sendall(preface)
            begun(connection)
            return connection
        set_options(connection, MACHINE_GONE)
        connection.sendall(preface)
        if ssl is not None:
            connection.settimeout(WELCOME_WITHIN)
            connection = ssl.wrap_socket(
                connection, server_hostname=hostname or host,
                do_handshake_on_connect=False)
        begun(connection)
        if ssl is not None:
            connection.do_handshake()
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
        #: Connections that are being opened.
        self._opening = set()
        self._is_closed = False
        self._said = {}  # address -> why it did not do, when that was said
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

    def move(self, addresses):
        """Leave the server, and look for one at these addresses."""
        self._addresses = list(addresses)
        self._said.clear()
        stream = self._stream
        if stream is not None:
            stream.end('this client goes to another address')

    @property
    def trouble(self):
        """Why there is no server, in words."""
        return '; '.join(f'{address}: {why}'
                         for address, (why, _) in self._said.copy().items())

    def close(self):
        with self._changed:
            self._is_closed = True
            stream = self._stream
            for connection in self._opening:
                with contextlib.suppress(OSError):  # it has ended
                    socket.socket.shutdown(connection, socket.SHUT_RDWR)
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
            except BaseException:
                # Somebody has interrupted this thread: it must go on.
                logger.exception('%s: what arrives could not be read',
                                 self._name)
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
            except Exception as error:
                # This thread must go on, whatever a server says.
                self._say(found.address, error)
            else:
                self._said.clear()
                return stream
        return None

    def _openings(self, hellos, within):
        """Yield each server that takes this client."""
        for hello in hellos:
            for address in self._addresses:
                if self._is_closed:
                    return
                try:
                    yield self._opened(address, hello(), within)
                except Exception as error:  # it may be no address at all
                    self._say(address, error)

    def _opened(self, address, hello, within):
        begun = []

        def note(connection):
            with self._changed:
                if self._is_closed:
                    raise NoServer('this storage is closed')
                begun.append(connection)
                self._opening.add(connection)

        try:
            return opened(address, self._ssl, self._hostname, hello, within,
                          note)
        finally:
            with self._changed:
                self._opening.difference_update(begun)

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
                # What is announced on the lesser stream goes on meanwhile: so
                # it has to end before the better one opens.
                found.connection.close()
                lesser.end('there is a server where this client may write')
                return

    def _say(self, address, error):
        """Log it, unless it is what was said of this address a moment ago."""
        is_expected = isinstance(error, NoServer)
        why, now = str(error) if is_expected else repr(error), time.monotonic()
        earlier, when = self._said.get(address, (None, now))
        if why != earlier or now - when >= SAY_AGAIN:
            self._said[address] = why, now
            logger.warning('%s: no stream to %s: %s', self._name, address, why,
                           exc_info=None if is_expected else error)
