"""Sockets that the service manager has opened, and passes to the server.

This is systemd's "socket activation": LISTEN_FDS is the number of descriptors,
of which the first is 3, and LISTEN_PID says for which process they are.  The
sockets also listen while the server is being restarted.  So a client waits in
their queue, and is not refused.

The variables are taken out of the environment, as no child process has these
descriptors.
"""

import os
import socket
from collections.abc import MutableMapping

FIRST = 3
#: More addresses than any server has.
MOST = 64

_FAMILIES = socket.AF_INET, socket.AF_INET6, socket.AF_UNIX


def passed(environment: MutableMapping[str, str]) -> list[socket.socket]:
    """The sockets; an empty list if there are none for this process.

    Raises ValueError for a descriptor that is no listening stream socket.
    """
    process, number, _ = (environment.pop(variable, '') for variable in (
        'LISTEN_PID', 'LISTEN_FDS', 'LISTEN_FDNAMES'))
    if process != str(os.getpid()):
        return []
    if not (number.isdecimal() and int(number) <= MOST):
        raise ValueError(f'LISTEN_FDS is {number!r}, not a number of sockets')
    return [_listening(FIRST + index) for index in range(int(number))]


def _listening(descriptor: int) -> socket.socket:
    try:
        found = socket.socket(fileno=descriptor)
        listens = found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    except OSError as error:
        raise ValueError(
            f'descriptor {descriptor}, which was passed to listen on, is no'
            f' socket: {error.strerror}') from None
    if (found.family not in _FAMILIES or found.type != socket.SOCK_STREAM
            or not listens):
        found.detach()
        raise ValueError(
            f'descriptor {descriptor}, which was passed to listen on, is no'
            ' listening stream socket')
    found.set_inheritable(False)
    return found
