"""What the system does for a connection to the server, and knows of it."""

import contextlib
import errno
import fcntl
import socket
import sys
import termios

# The system asks a machine of which it has heard nothing for 15 seconds, every
# 5 seconds; it ends the connection when that was in vain 3 times.
_ASKS = {'TCP_KEEPIDLE': 15, 'TCP_KEEPINTVL': 5, 'TCP_KEEPCNT': 3}


# Nothing was heard from the other machine, or the way to it is lost: the
# system of this one has ended the connection, and the other one may not know.
_GIVEN_UP = {errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH,
             errno.EHOSTDOWN, errno.ENETDOWN}


def was_given_up(error):
    """Did this machine end the connection, and not the other side?"""
    return isinstance(error, OSError) and error.errno in _GIVEN_UP


def keep_alive(connection):
    """Have the system notice when the server's machine is gone, though nobody
    says anything.

    A firewall that forgets connections on which nothing is said does not
    forget this one.  (A server that hangs is not noticed so: the system of its
    machine answers.)
    """
    if connection.family == socket.AF_UNIX:
        return
    with contextlib.suppress(OSError):  # it has ended, and nothing is asked
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _ASKS.items():
            option = getattr(socket, name, None)
            if option is not None:
                connection.setsockopt(socket.IPPROTO_TCP, option, value)


def unread(connection):
    """Bytes that have come, and that nobody here has received."""
    return _number(connection, termios.FIONREAD)


def unsent(connection):
    """Bytes that were sent, and of which the other system has not said that it
    has them.  (Where the system does not tell: 0.)"""
    return _number(connection, termios.TIOCOUTQ)


class Counted:
    """A transport that counts what is written to it.

    While much is sent over a slow line, what is left to send goes up and down,
    as it is filled up in large steps.  What the other side has taken of it
    only grows.
    """

    def __init__(self, transport):
        self._transport = transport
        self._written = self._written_before = self._taken = 0

    def __getattr__(self, name):
        return getattr(self._transport, name)

    def writelines(self, parts):
        self._written += sum(map(len, parts))
        self._transport.writelines(parts)

    def is_taken(self):
        """Since this was asked last, has the other side taken a part of what
        waits to leave?

        A system takes the first few MB, though its process does not read; and
        whatever is little.  So what left at once does not count.
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
    except (OSError, ValueError):  # it is closed, or no such question
        return 0
    return int.from_bytes(answer, sys.byteorder)
