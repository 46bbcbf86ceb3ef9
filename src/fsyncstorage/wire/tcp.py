"""The options of every connection over TCP, at both of its ends."""

import contextlib
import socket

_OPTIONS = {
    # A message that is sent in two parts, such as a blob's size and its
    # content, would wait 40 ms for the acknowledgement of the first one.
    'TCP_NODELAY': 1,
    # If the system has heard nothing from the other machine for 15 seconds, it
    # probes it every 5 seconds; after 3 probes in vain it ends the connection.
    # (With TCP_USER_TIMEOUT, Linux probes until that time is over.)
    'TCP_KEEPIDLE': 15, 'TCP_KEEPINTVL': 5, 'TCP_KEEPCNT': 3}


def set_options(connection: socket.socket, seconds: int) -> None:
    """Send without delay; and let the system end it after so many seconds
    without an answer of the other machine, whether something is sent or not.

    On Linux it is then ended also if the other process takes nothing of what
    was sent.  A firewall that forgets idle connections does not forget this
    one.  (A process that hangs is not noticed in this way: the system of its
    machine answers.)
    """
    if connection.family == socket.AF_UNIX:
        return
    options = {**_OPTIONS, 'TCP_USER_TIMEOUT': 1000 * seconds}
    with contextlib.suppress(OSError):  # the connection has ended
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in options.items():
            option = getattr(socket, name, None)
            if option is not None:
                connection.setsockopt(socket.IPPROTO_TCP, option, value)
