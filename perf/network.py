"""Server and clients as on two machines, some time apart.

The process that takes a sample goes into a network namespace of the server's,
starts the server there, and goes on to one for the clients.  Each has a device
that hands what is sent to a process of ours (see `tunnel`), which lets it wait
before it arrives in the other one.

Nothing has a name outside of these processes: namespaces and devices vanish
with them, however they end.
"""

import contextlib
import ctypes
import os
import socket
import time

from .. import statistics
from .. import supervisor
from . import tunnel

#: Set aside for examples: nobody's machines have them.
SERVER, CLIENTS = '192.0.2.1', '192.0.2.2'

#: Nobody listens there.
_CLOSED_PORT = 1
_ROUND_TRIPS = 9

_NEW_NETWORK = 0x40000000  # CLONE_NEWNET


class Here:
    """Server and clients are where this process is."""

    def enter_server(self):
        pass

    enter_clients = enter_server


class Apart:
    """The process that enters a namespace starts others in there."""

    def __init__(self):
        self._server, self.server_device = _new_namespace(SERVER)
        self._clients, self.clients_device = _new_namespace(CLIENTS)

    def enter_server(self):
        _enter(self._server)

    def enter_clients(self):
        _enter(self._clients)


def host(delay):
    """Where a server has to listen."""
    return '127.0.0.1' if delay is None else SERVER


@contextlib.contextmanager
def network(delay):
    """Where to start the server and the clients of a sample.

    What one sends to the other arrives so many seconds later; None: both are
    here.  This process does not come back.
    """
    if delay is None:
        yield Here()
        return
    apart = Apart()
    with tunnel.forwarding(
            apart.server_device, apart.clients_device, delay):
        yield apart


def obstacle():
    """Why they cannot be apart, or None."""
    if not os.path.exists(tunnel.CONTROL):
        return f'this system has no {tunnel.CONTROL}'
    if os.geteuid():
        return 'it makes network devices: only root may'
    return None


def round_trip(delay):
    """Seconds from a client to the server and back, measured now."""
    try:
        return supervisor.run(_round_trip, delay)
    except supervisor.Failed as error:
        raise OSError(f'two networks cannot be made here: {error}') from error


def _round_trip(delay):
    with network(delay) as apart:
        apart.enter_clients()
        return statistics.median(
            [_refusal() for _ in range(_ROUND_TRIPS)])


def _refusal():
    """How long it takes to be told that nobody listens."""
    began = time.perf_counter()
    with socket.socket() as client, contextlib.suppress(
            ConnectionRefusedError):
        client.connect((SERVER, _CLOSED_PORT))
    return time.perf_counter() - began


def _new_namespace(address):
    """A descriptor of one, and that of its device; this process is in it."""
    _call('unshare', _NEW_NETWORK)
    tunnel.start_loopback()
    return (os.open('/proc/thread-self/ns/net', os.O_RDONLY),
            tunnel.device(address))


def _enter(namespace):
    _call('setns', namespace, _NEW_NETWORK)


def _call(name, *arguments):
    """The function of the C library; os has them from Python 3.12 on."""
    library = ctypes.CDLL(None, use_errno=True)
    if getattr(library, name)(*arguments):
        error = ctypes.get_errno()
        raise OSError(error, f'{name}: {os.strerror(error)}')
