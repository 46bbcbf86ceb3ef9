"""Ends the connection of a peer whose machine is gone without a word.

The operating system ends a connection after `SECONDS` without an answer of the
other machine.  When nothing is sent it asks (keepalive); on Linux it also
waits no longer than that for what was sent to be received, so that there a
peer that is alive, but takes nothing for this time, is disconnected, too.
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
