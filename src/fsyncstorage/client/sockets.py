"""What the system does for a connection to the server, and knows of it."""

import contextlib
import fcntl
import socket
import sys
import termios

# The system asks a machine of which it has heard nothing for 15 seconds, every
# 5 seconds; it ends the connection when that was in vain 3 times.
_ASKS = {'TCP_KEEPIDLE': 15, 'TCP_KEEPINTVL': 5, 'TCP_KEEPCNT': 3}


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


def _number(connection, question):
    try:
        answer = fcntl.ioctl(connection.fileno(), question, bytes(4))
    except (OSError, ValueError):  # it is closed, or no such question
        return 0
    return int.from_bytes(answer, sys.byteorder)
