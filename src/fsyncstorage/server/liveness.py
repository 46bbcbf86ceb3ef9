"""Ends the connection of a peer whose machine has gone without closing it.

The operating system ends a connection after `SECONDS` without an answer from
the other machine.  While nothing is sent, it probes the other machine
(keepalive).  On Linux, data that were sent must also be received within this
time.  So there a peer is also disconnected if it is alive, but takes nothing
for this time.
"""

import contextlib
import socket

SECONDS = 30
_IDLE, _INTERVAL, _PROBES = 15, 5, 3

_OPTIONS = [
    (name, value) for name, value in (
        ('TCP_KEEPIDLE', _IDLE), ('TCP_KEEPINTVL', _INTERVAL),
        ('TCP_KEEPCNT', _PROBES), ('TCP_USER_TIMEOUT', SECONDS * 1000))
    if hasattr(socket, name)]


def watch(transport):
    connection = transport.get_extra_info('socket')
    if connection.family == socket.AF_UNIX:
        return
    # The socket may be closed by now.
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _OPTIONS:
            connection.setsockopt(
                socket.IPPROTO_TCP, getattr(socket, name), value)
