"""`fsync-time zeo` with a slow network between, or a cold disk below.

That what is added is there; how fast anything was is nowhere asserted.
"""

import contextlib
import io
import os
import signal
import socket
import tempfile
import time
import unittest
from unittest import mock

import ZODB
from rich.console import Console
from ZODB.FileStorage import FileStorage
from ZODB.utils import maxtid
from ZODB.utils import z64

from fsyncstorage import FsyncStorage
from fsyncstorage import datafile
from fsyncstorage.reading import CachedView
from fsyncstorage.reading import View
from fsyncstorage.timing import document as documents
from fsyncstorage.timing import latency
from fsyncstorage.timing import machine
from fsyncstorage.timing import pagecache
from fsyncstorage.timing import supervisor
from fsyncstorage.timing.servers import remote
from fsyncstorage.timing.servers import tunnel
from fsyncstorage.timing.zeo import light
from fsyncstorage.timing.zeo import reading
from fsyncstorage.timing.zeo import sites
from fsyncstorage.timing.zeo import table2009
from fsyncstorage.timing.zeo import writing

from . import pages
from .support import PATIENCE
from .test_timing import Command
from .test_timing import Scratch
from .test_timing_zeo import SETTINGS
from .test_timing_zeo import STOCK

DELAY = 0.02

NO_NETWORKS = remote.obstacle()


def namespace():
    return os.readlink('/proc/thread-self/ns/net')


class ForwardingTests(unittest.TestCase):
    """Packets, without a network: sockets stand in for the devices."""

    def pair(self):
        ours, theirs = socket.socketpair(
            socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.settimeout(PATIENCE)
        return ours, theirs.detach()

    def work(self):
        """Send numbers both ways; what came, and how long after."""
        (one, one_device), (other, other_device) = self.pair(), self.pair()
        with one, other, tunnel.forwarding(one_device, other_device, DELAY):
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

    def test_a_round_trip_has_the_delay_twice(self):
        self.assertGreaterEqual(remote.round_trip(DELAY), 2 * DELAY)

    def test_what_is_sent_arrives(self):
        sent = os.urandom(1 << 20)

        def work():
            with remote.network(0.001) as network:
                network.enter_server()
                with socket.create_server((remote.SERVER, 0)) as listener:
                    network.enter_clients()
                    client = socket.create_connection(
                        listener.getsockname(), PATIENCE)
                    server, (address, _) = listener.accept()
                with client, server, server.makefile('rb') as file:
                    if os.fork() == 0:
                        client.sendall(sent)
                        os._exit(0)
                    return address, file.read(len(sent))

        self.assertEqual(supervisor.run(work), (remote.CLIENTS, sent))

    def test_three_namespaces(self):
        def work():
            with remote.network(0) as network:
                network.enter_server()
                server = namespace()
                network.enter_clients()
                return server, namespace()

        here, devices = namespace(), socket.if_nameindex()
        self.assertEqual(len({here, *supervisor.run(work)}), 3)
        self.assertEqual((namespace(), socket.if_nameindex()), (here, devices))

    def test_without_a_delay_all_is_here(self):
        def work():
            with remote.network(None) as network:
                network.enter_server()
                network.enter_clients()
                return namespace()

        self.assertEqual(supervisor.run(work), namespace())

    def test_nothing_is_left_when_the_sample_is_killed(self):
        own, theirs = socket.socketpair()
        self.addCleanup(own.close)
        own.settimeout(PATIENCE)

        def work():
            own.close()
            with remote.network(DELAY):
                os.kill(os.getpid(), signal.SIGKILL)

        with self.assertRaisesRegex(supervisor.Failed, 'exit code -9'):
            supervisor.run(work)
        theirs.close()
        # The process between the networks held the other end, too.
        self.assertEqual(own.recv(1), b'')

    def test_commits(self):
        for name in 'zeo', 'fsync-zeo':
            with tempfile.TemporaryDirectory(dir=self.scratch) as directory:
                figures = supervisor.run(lambda: light.measure(
                    sites.CONTESTANTS[name], directory, connections=2,
                    seconds=0, network_delay=DELAY, **SETTINGS))
            # A vote and a finish go there and back.
            self.assertGreaterEqual(figures['p50_seconds'], 4 * DELAY, name)


class StorageTests(Scratch):
    """What a load costs that finds nothing in the page cache."""

    def setUp(self):
        super().setUp()
        # Whether something is there does not depend on how fast the disk is.
        self.enterContext(
            mock.patch.object(pagecache, 'is_cached', pages.is_cached))
        self.enterContext(
            mock.patch.object(latency, 'pread_cached', pages.pread_cached))
        if obstacle := pagecache.obstacle(self.scratch):
            self.skipTest(obstacle)
        self.path = os.path.join(self.scratch, 'Data.fs')
        self.slept = []

    def cold(self):
        return latency.cold_reads(0.008, self.slept.append)

    def test_dropped(self):
        with open(self.path, 'w+b', buffering=0) as file:
            file.write(b'x' * 5000)
            self.assertTrue(pagecache.is_cached(file.fileno(), 5000, 0))
            pagecache.drop(self.path)
            self.assertFalse(pagecache.is_cached(file.fileno(), 5000, 0))
            os.pread(file.fileno(), 5000, 0)
            self.assertTrue(pagecache.is_cached(file.fileno(), 5000, 0))

    def sleeps_of(self, make, load):
        """In the first load after the cache was emptied, and in a second."""
        with self.cold() as misses:
            storage = make(self.path)
            with contextlib.closing(storage):
                ZODB.DB(storage)  # makes the root
                pagecache.drop(self.path)
                self.slept.clear()
                misses.clear()
                load(storage)
                first = list(self.slept)
                load(storage)
                self.assertEqual(len(misses), len(self.slept))
                return first, self.slept[len(first):]

    def test_stock(self):
        self.assertEqual(
            self.sleeps_of(
                FileStorage, lambda storage: storage.loadBefore(z64, maxtid)),
            ([0.008], []))

    def test_ours(self):
        self.assertEqual(
            self.sleeps_of(
                FsyncStorage, lambda storage: storage.loadBefore(z64, maxtid)),
            ([0.008], []))

    def test_ours_as_the_server_loads(self):
        def load(storage):
            try:
                storage.load_before_cached(z64, maxtid)
            except BlockingIOError:
                # By now the disk has done what it was asked for.
                with open(self.path, 'rb') as file:
                    file.read()
                storage.loadBefore(z64, maxtid)

        self.assertEqual(self.sleeps_of(FsyncStorage, load), ([0.008], []))

    def test_all_is_put_back(self):
        def seams():
            return (
                vars(latency._stock).get('open'), vars(View)['pread'],
                vars(CachedView)['pread'], vars(datafile.disk).get('open'))

        before = seams()
        with self.assertRaises(ZeroDivisionError):
            with self.cold():
                for seam, found in zip(before, seams()):
                    self.assertIsNot(seam, found)
                1 / 0
        self.assertEqual(seams(), before)

    def test_reads(self):
        for name in 'zeo', 'fsync-client':
            with self.subTest(name), \
                    mock.patch.object(reading, 'COLD_OBJECTS', 8), \
                    tempfile.TemporaryDirectory(
                        dir=self.scratch) as directory:
                figures = supervisor.run(lambda: reading.measure(
                    sites.CONTESTANTS[name], directory, clients=2, objects=2,
                    access='ghosts', read_latency=DELAY, **SETTINGS))
                # Each object is on pages of its own; of all that is dropped
                # the system may keep a few pages.
                for how in 'cold', 'prefetch':
                    self.assertGreater(figures[f'{how}_misses'], 0.7, how)
                self.assertGreaterEqual(figures['cold_p50_seconds'], DELAY)
                self.assertLess(figures['hot_p50_seconds'], DELAY)


class CommandTests(Command):

    command = 'zeo'

    def refused(self, *arguments):
        code, out, err = self.run_main(*arguments)
        self.assertEqual((code, out), (2, ''))
        return err.splitlines()

    def test_only_root_may(self):
        with mock.patch.object(os, 'geteuid', lambda: 1000):
            self.assertRegex(
                self.refused('--remote', '1ms')[0],
                '--remote: (.*only root may|this system has no)')

    def test_a_system_without_such_devices(self):
        with mock.patch.object(tunnel, 'CONTROL', '/no/such/device'):
            self.assertIn(
                '--remote: this system has no /no/such/device',
                self.refused('--remote', '1ms')[0])

    def test_networks_that_cannot_be_made(self):
        with mock.patch.object(remote, 'obstacle', lambda: None), \
                mock.patch.object(
                    remote, '_call', side_effect=PermissionError('unshare')):
            code, out, err = self.run_main('zeo', '--remote', '1ms')
        self.assertEqual((code, len(err.splitlines())), (1, 1))
        self.assertIn(
            'two networks cannot be made here: PermissionError: unshare', err)
        self.assertEqual(os.listdir(self.scratch), [])

    def test_a_file_system_in_memory(self):
        with mock.patch.object(pagecache, 'drop', lambda path: None):
            self.assertRegex(
                self.refused('--cold-disk')[0],
                '--cold-disk: this (file )?system')

    def test_bad_input_is_one_line(self):
        for arguments, expected in [
                (['--remote', 'far'], 'us, ms, s'),
                (['--remote', '2s'], 'at most 1s'),
                (['--remote', '1ms', '--socket'], 'not allowed with'),
                (['--read-latency', '8ms'], 'needs --cold-disk'),
                (['--cold-disk', '--workload', 'write'], 'workload read'),
        ]:
            with self.subTest(arguments):
                [line] = self.refused(*arguments)
                self.assertIn(expected, line)

    def test_who_cannot_take_part_is_named(self):
        with mock.patch.object(remote, 'obstacle', lambda: None), \
                mock.patch.object(pagecache, 'obstacle', lambda path: None):
            for arguments, expected in [
                    (['--remote', '1ms', 'relstorage:sqlite'], 'no server'),
                    (['--cold-disk', 'relstorage:postgresql'], 'dropped')]:
                with self.subTest(arguments):
                    named, last = self.refused(*arguments)
                    self.assertIn(f'{arguments[-1]} is left out', named)
                    self.assertIn(expected, named)
                    self.assertIn('nothing is left', last)

    def report(self, *arguments):
        """The document of a short run, and what was shown."""
        directory = self.enterContext(tempfile.TemporaryDirectory())
        path = os.path.join(directory, 'result.json')
        with mock.patch.object(reading, 'COLD_OBJECTS', 2):
            code, out, err = self.run_main(
                'zeo', '--rounds', '1', '--seconds', '1ms', '--clients', '1',
                '--objects', '1', '--loop', 'asyncio', '--json', path,
                *arguments)
        self.assertEqual((code, err), (0, ''))
        return documents.load(path), ' '.join(out.split())

    @unittest.skipIf(NO_NETWORKS, NO_NETWORKS)
    def test_a_report_says_what_the_network_is(self):
        document, shown = self.report('--workload', 'write', '--remote', '1ms')
        self.assertRegex(
            document['added'],
            r'two networks, 1 ms added each way: a round trip takes .* ms')
        self.assertIn(document['added'], shown)
        self.assertIn('over TCP with 1 ms each way', shown)

    def test_a_report_says_that_the_disk_was_cold(self):
        if obstacle := pagecache.obstacle(self.scratch):
            self.skipTest(obstacle)
        document, shown = self.report(
            '--workload', 'read', '--cold-disk', '--read-latency', '1ms')
        self.assertIn('1 ms added to each read of one', document['added'])
        for expected in ('from a cold disk with 1 ms added',
                         'disk reads an object'):
            self.assertIn(expected, shown)


class TableTests(unittest.TestCase):
    """What stands beside the table of 2009."""

    def shown(self, **more):
        """The table of what was not measured yet."""
        settings = {'clients': 1, 'objects': 4, **SETTINGS}
        network = {
            name: value for name, value in more.items()
            if name == 'network_delay'}
        document = documents.new(
            'zeo', [
                writing.race(seconds=1, **settings, **network),
                reading.race(access='get', **settings, **more)],
            [STOCK], 1, 'zeo', machine.describe(tempfile.gettempdir()))
        console = Console(file=io.StringIO(), width=120)
        table2009.show(document, console)
        return ' '.join(console.file.getvalue().split())

    def test_what_was_measured_under_such_settings(self):
        for more, expected in [
                ({}, '0.013520 0.005740 0.000620 0.000170'),
                ({'network_delay': 0.001},
                 '0.018090 0.006830 0.000340 0.000070')]:
            self.assertIn(expected, self.shown(**more))
        self.assertNotIn('2009', self.shown(read_latency=0.008))
