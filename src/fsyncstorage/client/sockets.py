"""What the operating system does for a connection to the server."""

import contextlib
import socket

#: Seconds without an answer of the other machine, after which the system ends
#: a connection.  A server of ours may leave a large frame in the system for a
#: minute, until it has room for it (`server.incoming`).
SECONDS = 75

# If the system has heard nothing from the other machine for 15 seconds, it
# probes it every 5 seconds; after 3 probes in vain it ends the connection.
# (With TCP_USER_TIMEOUT, Linux probes until that time is over.)
_OPTIONS = {'TCP_KEEPIDLE': 15, 'TCP_KEEPINTVL': 5, 'TCP_KEEPCNT': 3,
            'TCP_USER_TIMEOUT': 1000 * SECONDS}


def keep_alive(connection):
    """Let the system notice when the server's machine has gone, whether
    something is sent or not.

    On Linux it then ends the connection, also if the server's process takes
    nothing of what was sent.  A firewall that forgets idle connections does
    not forget this one.  (A server that hangs is not noticed in this way: the
    system of its machine answers.)
    """
    with contextlib.suppress(OSError):  # the connection has ended
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _OPTIONS.items():
            option = getattr(socket, name, None)
            if option is not None:
                connection.setsockopt(socket.IPPROTO_TCP, option, value)
