"""Two network devices, and a process that hands packets from one to the other.

A packet that one device takes is given to the other after a delay.  In between
it is here: so a delay needs nothing of the kernel but TUN devices, and they
need no program to be set up.

It promises the order of the packets, and no less delay than it was told.  The
process is given a processor before all others, for busy clients do not keep a
network waiting; but it takes its time from them, and how long a round trip
takes is to be measured.
"""

import collections
import contextlib
import fcntl
import multiprocessing
import os
import select
import socket
import struct
import time

from .. import supervisor

CONTROL = '/dev/net/tun'

#: The network that the two devices make: two addresses.
_MASK = '255.255.255.252'

_NAME, _LOOPBACK = b'tunnel', b'lo'

# From Linux's if_tun.h and sockios.h.
_TUNSETIFF = 0x400454ca
_IFF_TUN, _IFF_NO_PI = 0x0001, 0x1000
_SIOCSIFFLAGS, _SIOCSIFADDR, _SIOCSIFNETMASK = 0x8914, 0x8916, 0x891c
_IFF_UP = 0x1

#: No packet is larger.
_PACKET = 1 << 16

_FORK = multiprocessing.get_context('fork')


def device(address):
    """A descriptor that reads what is sent in this network namespace.

    The device belongs to the namespace, and is gone when the descriptor is
    closed everywhere.
    """
    descriptor = os.open(CONTROL, os.O_RDWR)
    fcntl.ioctl(descriptor, _TUNSETIFF, _flags(_NAME, _IFF_TUN | _IFF_NO_PI))
    _set(_SIOCSIFADDR, _address(_NAME, address))
    _set(_SIOCSIFNETMASK, _address(_NAME, _MASK))
    _set(_SIOCSIFFLAGS, _flags(_NAME, _IFF_UP))
    return descriptor


def start_loopback():
    """A new namespace has one that is down."""
    _set(_SIOCSIFFLAGS, _flags(_LOOPBACK, _IFF_UP))


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
    process = _FORK.Process(target=_forward, args=(one, other, delay))
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
