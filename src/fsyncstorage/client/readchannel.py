"""One read channel: the thread that wants an object sends and receives itself.

A channel belongs to one thread at a time.  Any error between a request and its
reply ends the channel, because a later request could take the reply for its
own: the channel raises `Lost`, and the caller closes it.
"""

import contextlib
import os
import socket
import time

from ZEO.Exceptions import ServerException
from ZODB.POSException import POSKeyError

from .. import wire
from .sockets import keep_alive

# Seconds for connecting and for the server's welcome.
CONNECT_WITHIN = 10

# Bytes that are received at once, and bytes of a blob.
RECEIVED_AT_ONCE, BLOB_RECEIVED_AT_ONCE = 1 << 16, 1 << 18

# Seconds for which a thread polls the socket before blocking: a server on the
# same machine answers sooner than a thread falls asleep and is woken.
LOOK = 300e-6
# After polling in vain, a thread blocks at once for the next few replies; each
# time in a row for twice as many, up to the maximum.
FEWEST_SLEEPS, MOST_SLEEPS = 4, 256

CLOSED = 'the server has closed a read channel'


class Lost(Exception):
    """There is no answer, and this channel will not give any more."""


class ChannelRefused(Lost):
    """The server does not open a channel.  Arguments: reason and text."""

    def __str__(self):
        return self.args[1]


def failure(reply, oid):
    """The exception for a reply that is not what was asked for."""
    if reply.__class__ is wire.Missing:
        return POSKeyError(oid)
    return ServerException(reply.type, reply.text)


class ReadChannel:

    # For pieces of blobs; made when it is first needed.
    _buffer = None

    def __init__(self, address, instance, storage, ssl, hostname,
                 mark=wire.NO_MARK, begun=lambda channel: None):
        """`begun(self)` is called before it waits for the server's welcome:
        from then on it may be interrupted."""
        self._frames = wire.Client(instance, storage, mark)
        self._socket = connect(address, ssl, hostname)
        self._looks = ssl is None  # a TLS socket cannot be polled in this way
        self._sleeps = 0
        self._next_sleeps = FEWEST_SLEEPS
        self._send = self._socket.sendall
        try:
            begun(self)
            self._say(self._frames.hello)
            event = self.next()
            if event.__class__ is wire.Refused:
                raise ChannelRefused(*event)
            self._socket.settimeout(None)
        except BaseException:
            self.close()
            raise

    def next(self):
        """The next message of the server."""
        frames = self._frames
        try:
            while (event := frames.next()) is None:
                data = self._receive()
                if not data:
                    raise Lost(CLOSED)
                frames.add(data)
        except (OSError, wire.PeerError) as error:
            raise Lost(str(error)) from error
        return event

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
        return self._socket.recv(RECEIVED_AT_ONCE)

    def _look(self):
        """Poll for `LOOK` seconds; return what has arrived, or None."""
        end = time.perf_counter() + LOOK
        while time.perf_counter() < end:
            try:
                return self._socket.recv(RECEIVED_AT_ONCE, socket.MSG_DONTWAIT)
            except BlockingIOError:
                os.sched_yield()  # let others run

    def _say(self, data):
        try:
            self._send(data)
        except OSError as error:
            raise Lost(str(error)) from error

    def load(self, oid, tid):
        """The reply to a load of this object before that tid."""
        _, request = self._frames.load(oid, tid)
        self._say(request)
        return self.next()

    def ask(self, loads):
        """Ask for all of these at once; return {request number: load}."""
        numbers, requests = {}, []
        for load in loads:
            number, request = self._frames.load(load.oid, load.tid)
            numbers[number] = load
            requests.append(request)
        self._say(b''.join(requests))
        return numbers

    def blob(self, oid, serial, offset, most=wire.LONGEST_BLOB):
        """Yield the server's replies about this blob, from `offset` on; if
        that is more than `most` bytes, the server sends only a beginning.

        The data of a Chunk is valid until the next reply is asked for.
        """
        _, request = self._frames.blob(oid, serial, offset, most)
        self._say(request)
        while True:
            event = self._piece_of_blob() or self.next()
            yield event
            if event.__class__ not in (wire.Size, wire.Chunk):
                return

    def _piece_of_blob(self):
        """A piece of the current chunk; None if no chunk is under way."""
        coming = self._frames.coming
        if not coming:
            return None
        if self._buffer is None:
            self._buffer = memoryview(bytearray(BLOB_RECEIVED_AT_ONCE))
        buffer = self._buffer[:coming]
        try:
            count = self._socket.recv_into(buffer)
        except OSError as error:
            raise Lost(str(error)) from error
        if not count:
            raise Lost(CLOSED)
        return self._frames.came(buffer[:count])

    def interrupt(self):
        """Wake a thread that waits for a reply.  Any thread may call it."""
        with contextlib.suppress(OSError):  # the socket is closed already
            # Not SSLSocket.shutdown, which only its own thread may call.
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def close(self):
        self._socket.close()


def connect(address, ssl=None, hostname=None):
    """A socket with a timeout, or `Lost`."""
    try:
        if isinstance(address, str):
            return _connect_unix(address)
        return _connect_tcp(*address, ssl, hostname)
    except OSError as error:
        raise Lost(str(error)) from error


def _connect_unix(path):
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(CONNECT_WITHIN)
        connection.connect(path)
    except BaseException:
        connection.close()
        raise
    return connection


def _connect_tcp(host, port, ssl, hostname):
    connection = socket.create_connection((host, port), CONNECT_WITHIN)
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        keep_alive(connection)
        if ssl is not None:
            connection = ssl.wrap_socket(
                connection, server_hostname=hostname)
    except BaseException:
        connection.close()
        raise
    return connection
