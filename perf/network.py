"""Server and clients as on two machines, some time apart.

The process that takes a sample goes into a network namespace of the server's,
starts the server there, and goes on to one for the clients.  Each has a TUN
device; a process of ours takes the packets of one, lets them wait, and gives
them to the other.  So a delay needs nothing else of the kernel, and no program
to be set up.

It promises the order of the packets, and no less delay than it was told.  The
process is given a processor before all others, for busy clients do not keep a
network waiting; but it takes its time from them, and how long a round trip
takes is to be measured.

Nothing has a name outside of these processes: namespaces and devices vanish
with them, however they end.
"""

import collections
import contextlib
import ctypes
import fcntl
import os
import select
import socket
import struct
import time

from fsyncstorage.timing import statistics
from fsyncstorage.timing import supervisor

CONTROL = '/dev/net/tun'

#: Set aside for examples: nobody's machines have them.
SERVER, CLIENTS = '192.0.2.1', '192.0.2.2'

#: The network that the two devices make: two addresses.
_MASK = '255.255.255.252'

_NAME, _LOOPBACK = b'tunnel', b'lo'

#: Nobody listens there.
_CLOSED_PORT = 1
_ROUND_TRIPS = 9

# From Linux's sched.h, if_tun.h and sockios.h.
_NEW_NETWORK = 0x40000000
_TUNSETIFF = 0x400454ca
_IFF_TUN, _IFF_NO_PI = 0x0001, 0x1000
_SIOCSIFFLAGS, _SIOCSIFADDR, _SIOCSIFNETMASK = 0x8914, 0x8916, 0x891c
_IFF_UP = 0x1

#: No packet is larger.
_PACKET = 1 << 16


class Apart:
    """The process that enters a namespace starts others in there."""

    def __init__(self):
        self._server, self.server_device = _new_namespace(SERVER)
        self._clients, self.clients_device = _new_namespace(CLIENTS)

    def enter_server(self):
        _call('setns', self._server, _NEW_NETWORK)

    def enter_clients(self):
        _call('setns', self._clients, _NEW_NETWORK)


@contextlib.contextmanager
def network(delay):
    """Where to start the server and the clients of a sample.

    What one sends to the other arrives so many seconds later.  This process
    does not come back.
    """
    apart = Apart()
    with forwarding(apart.server_device, apart.clients_device, delay):
        yield apart


def obstacle():
    """Why they cannot be apart, or None."""
    if not os.path.exists(CONTROL):
        return f'this system has no {CONTROL}'
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
    # A new one has a loopback device that is down.
    _set(_SIOCSIFFLAGS, _flags(_LOOPBACK, _IFF_UP))
    return os.open('/proc/thread-self/ns/net', os.O_RDONLY), _device(address)


def _device(address):
    """A descriptor that reads what is sent in this namespace.

    The device belongs to the namespace, and is gone when the descriptor is
    closed everywhere.
    """
    descriptor = os.open(CONTROL, os.O_RDWR)
    fcntl.ioctl(descriptor, _TUNSETIFF, _flags(_NAME, _IFF_TUN | _IFF_NO_PI))
    _set(_SIOCSIFADDR, _address(_NAME, address))
    _set(_SIOCSIFNETMASK, _address(_NAME, _MASK))
    _set(_SIOCSIFFLAGS, _flags(_NAME, _IFF_UP))
    return descriptor


def _call(name, *arguments):
    """The function of the C library; os has them from Python 3.12 on."""
    library = ctypes.CDLL(None, use_errno=True)
    if getattr(library, name)(*arguments):
        error = ctypes.get_errno()
        raise OSError(error, f'{name}: {os.strerror(error)}')


def _set(request, argument):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, request, argument)


def _flags(name, flags):
    return struct.pack('16sH22x', name, flags)


def _address(name, address):
    return struct.pack(
        '16sHxx4s16x', name, socket.AF_INET, socket.inet_aton(address))


@contextlib.contextmanager
def forwarding(one, other, delay):
    """Takes over both descriptors."""
    process = supervisor.FORK.Process(
        target=_forward, args=(one, other, delay))
    process.start()
    for descriptor in one, other:
        os.close(descriptor)
    try:
        yield
    finally:
        process.kill()
        process.join()


def _forward(one, other, delay):
    supervisor.follow()
    with contextlib.suppress(PermissionError):  # a container may not
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    opposite = {one: other, other: one}
    waiting = collections.deque()  # in the order in which they are due
    while True:
        patience = (
            max(0, waiting[0][0] - time.monotonic()) if waiting else None)
        ready, _, _ = select.select([one, other], [], [], patience)
        now = time.monotonic()
        for descriptor in ready:
            packet = os.read(descriptor, _PACKET)
            waiting.append((now + delay, opposite[descriptor], packet))
        while waiting and waiting[0][0] <= now:
            _, descriptor, packet = waiting.popleft()
            os.write(descriptor, packet)
