"""What the operating system does for, and knows about, a connection to the
server."""

import contextlib
import errno
import fcntl
import socket
import sys
import termios

#: Seconds without an answer of the other machine, after which the system ends
#: a connection.  A server of ours may leave a large frame in the system for a
#: minute, until it has room for it (`server.frames`).
SECONDS = 75
#: The same where nothing large is sent.
SECONDS_OF_LITTLE = 30

# If the system has heard nothing from the other machine for 15 seconds, it
# probes it every 5 seconds; after 3 probes in vain it ends the connection.
# (With TCP_USER_TIMEOUT, Linux probes until that time is over.)
_ASKS = {'TCP_KEEPIDLE': 15, 'TCP_KEEPINTVL': 5, 'TCP_KEEPCNT': 3}

# Nothing was heard from the other machine, or the way to it is lost: the
# system of this machine has ended the connection, and the other one may not
# know.
_GIVEN_UP = {errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH,
             errno.EHOSTDOWN, errno.ENETDOWN}


def was_given_up(error):
    """Did this machine end the connection, and not the other side?"""
    return isinstance(error, OSError) and error.errno in _GIVEN_UP


def keep_alive(connection, seconds=None):
    """Let the system notice when the server's machine has gone, whether
    something is sent or not.

    On Linux it then ends the connection after `seconds` (None: `SECONDS`),
    also if the server's process takes nothing of what was sent.  A firewall
    that forgets idle connections does not forget this one.  (A server that
    hangs is not noticed in this way: the system of its machine answers.)
    """
    if connection.family == socket.AF_UNIX:
        return
    with contextlib.suppress(OSError):  # the connection has ended
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        asks = {**_ASKS, 'TCP_USER_TIMEOUT': 1000 * (seconds or SECONDS)}
        for name, value in asks.items():
            option = getattr(socket, name, None)
            if option is not None:
                connection.setsockopt(socket.IPPROTO_TCP, option, value)


def unread(connection):
    """Bytes that have arrived, and that this process has not received."""
    return _number(connection, termios.FIONREAD)


def unsent(connection):
    """Bytes that were sent, and that the other system has not acknowledged.
    (0 where this system does not tell.)"""
    return _number(connection, termios.TIOCOUTQ)


class Counted:
    """A transport that counts what is written to it.

    While much is sent over a slow line, the number of bytes left to send goes
    up and down, as they are filled up in large steps.  The number of bytes
    that the other side has taken only grows.
    """

    def __init__(self, transport):
        self._transport = transport
        self._written = self._written_before = self._taken = 0

    def __getattr__(self, name):
        return getattr(self._transport, name)

    def write(self, data):
        self._written += len(data)
        self._transport.write(data)

    def writelines(self, parts):
        self._written += sum(map(len, parts))
        self._transport.writelines(parts)

    def is_taken(self):
        """Since the last call, has the other side taken a part of what waits
        to leave?

        The other system takes the first few MB, and any small amount, even if
        its process does not read.  So bytes that left at once do not count.
        """
        connection = self._transport.get_extra_info('socket')
        waits_here = self._transport.get_write_buffer_size()
        taken = self._written - waits_here - unsent(connection)
        before, self._taken = self._taken, max(taken, self._taken)
        earlier, self._written_before = self._written_before, self._written
        return taken > before and (waits_here > 0 or taken < earlier)


def _number(connection, question):
    try:
        answer = fcntl.ioctl(connection.fileno(), question, bytes(4))
    except (OSError, ValueError):  # it is closed, or the ioctl is unknown
        return 0
    return int.from_bytes(answer, sys.byteorder)
