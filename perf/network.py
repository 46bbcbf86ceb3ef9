"""Server and clients as on two machines, with a delay between them.

The process that takes a sample enters a network namespace for the server,
starts the server there, and goes on to another one for the clients.  Each has
a TUN device; a process of ours reads the packets of one, keeps them for the
delay, and writes them to the other.  The kernel needs no other feature for it.

It promises that the packets keep their order, and that no delay is shorter
than requested.  The process has priority over all others, because busy clients
would not delay a real network.  But it uses processor time, so a campaign
measures how long a round trip takes.

Namespaces and devices have no name outside of these processes: they vanish
with the last process, also if it is killed.
"""

import collections
import contextlib
import ctypes
import fcntl
import os
import select
import shutil
import socket
import struct
import subprocess
import time
import typing
from statistics import median

from fsyncstorage.timing.running import supervisor

CONTROL = '/dev/net/tun'

#: Reserved for examples: no machine has them.
SERVER, CLIENTS = '192.0.2.1', '192.0.2.2'

#: The name of a device.
_NAME = 'tunnel'

#: No server listens there.
_CLOSED_PORT = 1
_ROUND_TRIPS = 9

# From Linux's sched.h and if_tun.h.
_NEW_NETWORK = 0x40000000
_TUNSETIFF = 0x400454ca
_IFF_TUN, _IFF_NO_PI = 0x0001, 0x1000

#: No packet is larger.
_PACKET = 1 << 16


class Apart(typing.NamedTuple):
    """Two namespaces; a process that enters one starts its children there."""

    server: int
    clients: int

    def enter_server(self):
        _call('setns', self.server, _NEW_NETWORK)

    def enter_clients(self):
        _call('setns', self.clients, _NEW_NETWORK)


@contextlib.contextmanager
def network(delay):
    """Yields where to start the server and the clients of a sample.

    What one sends to the other arrives `delay` seconds later.  This process
    cannot return to its own network.
    """
    namespaces, devices = zip(*map(_new_namespace, (SERVER, CLIENTS)))
    with forwarding(*devices, delay):
        yield Apart(*namespaces)


def obstacle():
    """Why there cannot be two networks here, or None."""
    if not os.path.exists(CONTROL):
        return f'this system has no {CONTROL}'
    if shutil.which('ip') is None:
        return 'ip is not installed, which sets up network devices'
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
        return median(
            [_refusal() for _ in range(_ROUND_TRIPS)])


def _refusal():
    """How long it takes to be refused by a port without a server."""
    began = time.perf_counter()
    with socket.socket() as client, contextlib.suppress(
            ConnectionRefusedError):
        client.connect((SERVER, _CLOSED_PORT))
    return time.perf_counter() - began


def _new_namespace(address):
    """Make one and enter it; return its descriptor and that of its device.

    Reading from the second descriptor gives the packets that are sent in this
    namespace.  The device vanishes when no process has that descriptor any
    more.
    """
    _call('unshare', _NEW_NETWORK)
    device = os.open(CONTROL, os.O_RDWR)
    fcntl.ioctl(device, _TUNSETIFF, struct.pack(
        '16sH22x', _NAME.encode(), _IFF_TUN | _IFF_NO_PI))
    # The network that the two devices make has two addresses.
    for command in (f'address add {address}/30 dev {_NAME}',
                    f'link set {_NAME} up', 'link set lo up'):
        subprocess.run(['ip', *command.split()], check=True)
    return os.open('/proc/thread-self/ns/net', os.O_RDONLY), device


def _call(name, *arguments):
    """Call a function of the C library; from Python 3.12 on, os has it."""
    library = ctypes.CDLL(None, use_errno=True)
    if getattr(library, name)(*arguments):
        error = ctypes.get_errno()
        raise OSError(error, f'{name}: {os.strerror(error)}')


@contextlib.contextmanager
def forwarding(one, other, delay):
    """Inside the `with`, a process passes on packets; it owns both ends."""
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
