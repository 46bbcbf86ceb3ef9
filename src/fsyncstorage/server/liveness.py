"""A peer whose machine is gone does not say so: the system finds out.

After `SECONDS` without an answer of the other machine the connection ends: the
system asks when nothing is sent (keepalive), and where it can (Linux), it
does not wait longer for the receipt of what was sent.  On Linux that also goes
for a peer that is alive and takes nothing for so long.
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
    # It may be closed by now.
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _OPTIONS:
            connection.setsockopt(
                socket.IPPROTO_TCP, getattr(socket, name), value)
