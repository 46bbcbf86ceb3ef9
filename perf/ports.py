"""Ports for servers that are started later, or that cannot report theirs."""

import contextlib
import random
import socket

#: None of those that the system gives to connections meanwhile (on Linux, from
#: 32768 on).
_PORTS = range(20000, 32000)

#: Those that this process has for a server that may not listen yet.
_given = set()


def free_port(host='127.0.0.1'):
    while True:
        port = random.SystemRandom().choice(_PORTS)
        if port not in _given:
            with contextlib.suppress(OSError), \
                    socket.create_server((host, port)):
                _given.add(port)
                return port


def free_address():
    return '127.0.0.1', free_port()
