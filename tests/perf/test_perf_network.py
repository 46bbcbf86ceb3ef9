"""Server and clients in two networks, some time apart.

That what is added is there; how fast anything was is nowhere asserted.
"""

import os
import signal
import socket
import tempfile
import time
import unittest
from unittest import mock

from fsyncstorage.timing.running import supervisor
from fsyncstorage.timing.servers.zeosites import CONTESTANTS
from fsyncstorage.timing.zeo import light
from perf import network
from perf import zeo_2009

from ..support import PATIENCE
from ..timing.test_timing import Scratch
from ..timing.test_timing_zeo import SETTINGS

DELAY = 0.02

NO_NETWORKS = network.obstacle()


def namespace():
    return os.readlink('/proc/thread-self/ns/net')


class ForwardingTests(unittest.TestCase):
    """Packets, without a network: sockets stand in for the devices."""

    level = 2

    def pair(self):
        ours, theirs = socket.socketpair(
            socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.settimeout(PATIENCE)
        return ours, theirs.detach()

    def work(self):
        """Send numbers both ways; return what came, and after how long."""
        (one, one_device), (other, other_device) = self.pair(), self.pair()
        with one, other, network.forwarding(one_device, other_device, DELAY):
            began = time.monotonic()
            for number in range(50):
                one.send(bytes([number]))
                other.send(bytes([100 + number]))
            first = other.recv(10)
            took = time.monotonic() - began
            return (
                [first, *(other.recv(10) for _ in range(49))],
                [one.recv(10) for _ in range(50)], took)

    def test_packets_arrive_in_order_and_late(self):
        there, back, took = supervisor.run(self.work)
        self.assertEqual(there, [bytes([number]) for number in range(50)])
        self.assertEqual(back, [bytes([100 + number]) for number in range(50)])
        self.assertGreaterEqual(took, DELAY)


@unittest.skipIf(NO_NETWORKS, NO_NETWORKS)
class NetworkTests(Scratch):

    level = 2

    def test_a_round_trip_has_the_delay_twice(self):
        self.assertGreaterEqual(network.round_trip(DELAY), 2 * DELAY)

    def test_what_is_sent_arrives(self):
        sent = os.urandom(1 << 20)

        def work():
            with network.network(0.001) as apart:
                apart.enter_server()
                with socket.create_server((network.SERVER, 0)) as listener:
                    apart.enter_clients()
                    client = socket.create_connection(
                        listener.getsockname(), PATIENCE)
                    server, (address, _) = listener.accept()
                with client, server, server.makefile('rb') as file:
                    if os.fork() == 0:
                        client.sendall(sent)
                        os._exit(0)
                    return address, file.read(len(sent))

        self.assertEqual(supervisor.run(work), (network.CLIENTS, sent))

    def test_three_namespaces(self):
        def work():
            with network.network(0) as apart:
                apart.enter_server()
                server = namespace()
                apart.enter_clients()
                return server, namespace()

        here, devices = namespace(), socket.if_nameindex()
        self.assertEqual(len({here, *supervisor.run(work)}), 3)
        self.assertEqual((namespace(), socket.if_nameindex()), (here, devices))

    def test_nothing_is_left_when_the_sample_is_killed(self):
        own, theirs = socket.socketpair()
        self.addCleanup(own.close)
        own.settimeout(PATIENCE)

        def work():
            own.close()
            with network.network(DELAY):
                os.kill(os.getpid(), signal.SIGKILL)

        with self.assertRaisesRegex(supervisor.Failed, 'exit code -9'):
            supervisor.run(work)
        theirs.close()
        # The process between the networks held the other end, too.
        self.assertEqual(own.recv(1), b'')

    def test_commits(self):
        for name in 'zeo', 'fsync-zeo':
            site = zeo_2009.RemoteSite(CONTESTANTS[name])
            with tempfile.TemporaryDirectory(dir=self.scratch) as directory:
                figures = supervisor.run(lambda: light.measure(
                    site, directory, connections=2, seconds=0,
                    network_delay=DELAY, **SETTINGS))
            # A vote and a finish go there and back.
            self.assertGreaterEqual(figures['p50_seconds'], 4 * DELAY, name)

    def test_what_was_added_is_told(self):
        [told] = zeo_2009.added([])
        self.assertRegex(
            told, r'two networks, 500 us added each way: a round trip takes'
            r' .* ms [(]measured[)]')


class ObstacleTests(unittest.TestCase):

    level = 2

    def test_only_root_may(self):
        with mock.patch.object(network, 'CONTROL', os.devnull), \
                mock.patch.object(os, 'geteuid', lambda: 1000):
            self.assertIn('only root may', network.obstacle())

    def test_a_system_without_such_devices(self):
        with mock.patch.object(network, 'CONTROL', '/no/such/device'):
            self.assertEqual(
                network.obstacle(), 'this system has no /no/such/device')

    def test_networks_that_cannot_be_made(self):
        with mock.patch.object(
                network, '_call', side_effect=PermissionError('unshare')), \
                self.assertRaisesRegex(
                    OSError, 'two networks cannot be made here:'
                    ' PermissionError: unshare'):
            network.round_trip(DELAY)
