"""Who gets the data file and the object map (I13, I14)."""

import contextlib
import errno
import os
import socket
import stat
import threading
import unittest
from unittest import mock

from ZODB.MappingStorage import MappingStorage

from fsyncstorage.format import objectmap as layout
from fsyncstorage.format.objectmap import MapReader
from fsyncstorage.server import handout
from fsyncstorage.server.handout import Handout
from fsyncstorage.wire import values

from ..client.talking import Talking
from ..support import PATIENCE
from ..support import TestCase
from ..support import commit
from ..support import oid

MODE = 0o600
#: Users.
SERVER, NOBODY = 500, 65534


class Client:
    """By hand: connects, and takes what comes."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(PATIENCE)
        try:
            self.socket.connect(path)
        except OSError:
            self.socket.close()
            raise

    def receive(self):
        """The message, and the descriptors that came with it."""
        message, descriptors, _, _ = socket.recv_fds(self.socket, 100, 10)
        return message, descriptors

    def gets_nothing(self):
        return self.receive() == (b'', [])

    def close(self):
        self.socket.close()


@unittest.skipUnless(layout.is_possible(), 'needs sealed memory')
class HandoutTestCase(TestCase):

    def setUp(self):
        super().setUp()
        self.storage = self.open()
        self.tid = commit(self.storage, {0: b'data', 1: b'data'})

    def hand_out(self, mode=MODE):
        made = Handout(self.storage, self.path('socket'), mode)
        closing = contextlib.ExitStack()
        closing.callback(made.close)
        self.addCleanup(closing.close)
        self.end = closing.close
        return made

    def connect(self):
        client = Client(self.path('socket'))
        self.addCleanup(client.close)
        return client

    def take(self, client):
        """The descriptors of the data file and of the map."""
        message, descriptors = client.receive()
        for each in descriptors:
            self.addCleanup(os.close, each)
        self.assertEqual(message, handout.HAND_OVER)
        self.assertEqual(len(descriptors), 2)
        return descriptors


class HandOver(HandoutTestCase):

    def test_the_connection_ends_with_it(self):
        self.hand_out()
        client = self.connect()
        self.take(client)
        self.assertTrue(client.gets_nothing())

    def test_one_after_the_other_gets_the_same_map(self):
        """Also one that talks, and one that has gone."""
        self.hand_out()
        clients = [self.connect() for _ in range(20)]
        clients[3].socket.send(b'hello')
        clients.pop(7).close()
        maps = {os.fstat(self.take(client)[1]).st_ino for client in clients}
        self.assertEqual(len(maps), 1)

    def test_a_fork_that_closes_it_leaves_the_parents(self):
        made = self.hand_out()
        child = os.fork()
        if not child:
            made.close()
            os._exit(0)
        os.waitpid(child, 0)
        self.take(self.connect())

    def test_nothing_after_a_failed_sync(self):
        disk = self.controlled_disk()
        self.hand_out()
        _, object_map = self.take(self.connect())
        disk.fail_sync(OSError('no'))
        with self.assertRaises(Exception):
            commit(self.storage, {1: b'changed'}, {1: self.tid})
        self.assertTrue(MapReader(object_map, self.storage.instance).retired)
        self.assertTrue(self.connect().gets_nothing())

    def test_it_goes_on_when_descriptors_were_short(self):
        real, failed = os.open, threading.Event()

        def open_nothing(path, *args):
            if path.startswith('/proc/self/fd/') and not failed.is_set():
                failed.set()
                raise OSError(errno.EMFILE, 'too many')
            return real(path, *args)

        self.hand_out()
        with mock.patch.object(os, 'open', open_nothing):
            self.assertTrue(self.connect().gets_nothing())
            self.take(self.connect())


class Durable(HandoutTestCase):
    """Under `none`, a backup asks its server to sync."""

    def setUp(self):
        super().setUp()
        self.storage = self.open('None.fs', durability='none')

    def is_durable(self, user):
        """After a process of this user has connected."""
        commit(self.storage, {0: b'data'})
        self.hand_out()
        with mock.patch.object(handout, 'user_of', lambda client: user), \
                mock.patch.object(os, 'geteuid', lambda: SERVER):
            client = self.connect()
            _, object_map = self.take(client)
            self.assertTrue(client.gets_nothing())
        self.end()
        published, durable, _, _ = MapReader(object_map, None).marks()
        return published == durable

    def test_for_a_process_of_the_servers_user(self):
        self.assertTrue(self.is_durable(SERVER))

    def test_for_root(self):
        self.assertTrue(self.is_durable(handout.ROOT))

    def test_not_for_others(self):
        self.assertFalse(self.is_durable(NOBODY))

    def test_who_has_connected(self):
        one, other = socket.socketpair()
        with one, other:
            self.assertEqual(handout.user_of(one), os.geteuid())


class Socket(HandoutTestCase):

    def test_its_mode_is_the_permission(self):
        for mode in 0o600, 0o660:
            self.hand_out(mode)
            status = os.stat(self.path('socket'))
            self.assertEqual(stat.S_IMODE(status.st_mode), mode)
            self.end()

    def test_nobody_connects_before_it_has_its_mode(self):
        def chmod(path, mode):
            with self.assertRaises(ConnectionRefusedError):
                Client(path)
            real(path, mode)
            tried.append(mode)

        real, tried = os.chmod, []
        with mock.patch.object(os, 'chmod', chmod):
            self.hand_out()
        self.assertEqual(tried, [MODE])

    def test_one_that_was_left_is_replaced(self):
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(self.path('socket'))
        self.hand_out()
        self.take(self.connect())

    def test_another_file_is_not_replaced(self):
        with open(self.path('socket'), 'w') as file:
            file.write('mine')
        with self.assertRaises(OSError):
            self.hand_out()
        with open(self.path('socket')) as file:
            self.assertEqual(file.read(), 'mine')


class Others(HandoutTestCase):

    def test_no_file_that_others_could_open_again_to_write(self):
        for mode, others, handed in (
                (0o644, True, True), (0o664, True, False),
                (0o666, True, False), (0o642, True, False),
                (0o666, False, True)):
            with self.subTest(f'{mode:o}', others=others):
                os.chmod(self.path(), mode)
                self.hand_out(0o660 if others else 0o600)
                client = self.connect()
                if handed:
                    self.take(client)
                else:
                    self.assertTrue(client.gets_nothing())
                self.end()


@unittest.skipUnless(os.geteuid() == 0, 'needs root, to be somebody else')
class Elsewhere(HandoutTestCase):
    """Clients of other users, and in containers."""

    def in_a_child(self, become, act):
        """What `act` returns, a small number, after `become`."""
        child = os.fork()
        if not child:
            result = 99
            try:
                become()
                result = act()
            finally:
                os._exit(result)
        _, status = os.waitpid(child, 0)
        return os.waitstatus_to_exitcode(status)

    @staticmethod
    def become_nobody():
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)

    def read(self):
        """0: it got the file and reads, and can do nothing else."""
        try:
            client = Client(self.path('socket'))
        except PermissionError:
            return 1
        with contextlib.closing(client):
            return self.read_from(client)

    def read_from(self, client):
        _, (data_file, object_map) = client.receive()
        if b'data' not in os.pread(data_file, 1000, 0):
            return 2
        if MapReader(object_map, self.storage.instance).get(oid(1)) is None:
            return 3
        for descriptor in data_file, object_map:
            with contextlib.suppress(OSError):
                os.close(os.open(f'/proc/self/fd/{descriptor}', os.O_RDWR))
                return 4
        return 0

    def hand_out(self, mode):
        super().hand_out(mode)
        os.chmod(self.directory, 0o711)
        os.chown(self.path('socket'), -1, NOBODY)

    def test_another_user_of_the_group(self):
        self.hand_out(0o660)
        self.assertEqual(self.in_a_child(self.become_nobody, self.read), 0)

    def test_another_user(self):
        self.hand_out(0o600)
        self.assertEqual(self.in_a_child(self.become_nobody, self.read), 1)


@unittest.skipUnless(layout.is_possible(), 'needs sealed memory')
class Offered(Talking):

    def about(self, storage):
        server = self.serve(storage)
        return self.offered_to(self.talk(server)), server

    def offered_to(self, talker):
        return values.decoded(talker.welcome.about)['local']

    def test_not_by_default(self):
        about, _ = self.about(self.open())
        self.assertIsNone(about)
        # It is for the processes of the server alone.
        self.assertEqual(
            stat.S_IMODE(os.stat(self.path('Data.fs.local')).st_mode), 0o600)

    def test_not_of_a_read_only_storage(self):
        self.open().close()
        self.assertIsNone(handout.offered(
            self.open(local_reads=True, read_only=True)))

    def test_not_behind_a_wrapper(self):
        class Wrapper:
            def __init__(self, base):
                self.base = base

            def __getattr__(self, name):
                return getattr(self.base, name)

        self.assertIsNone(handout.offered(
            Wrapper(self.open(local_reads=True))))

    def test_not_where_the_name_is_too_long(self):
        os.mkdir(self.path('d' * 100))
        storage = self.open('d' * 100 + '/Data.fs', local_reads=True)
        with self.assertLogs('fsyncstorage.server', 'WARNING') as logs:
            self.assertIsNone(handout.offered(storage))
        self.assertIn('for clients: the name has', logs.output[0])

    def test_not_any_more_where_oids_lie_too_far_apart(self):
        storage = self.open(local_reads=True)
        commit(storage, dict.fromkeys(range(0, 512 * 300, 512), b'data'))
        about, server = self.about(storage)
        with mock.patch.object(
                storage, 'object_map', wraps=storage.object_map) as build:
            for _ in range(2):
                client = Client(about['socket'])
                self.addCleanup(client.close)
                self.assertTrue(client.gets_nothing())
        build.assert_called_once()
        self.assertIsNone(self.offered_to(self.talk(server)))

    def test_its_descriptors_are_set_aside(self):
        _, server = self.about(self.open())
        _, without = self.about(MappingStorage())
        # (In each of them, one client is connected.)
        self.assertEqual(
            without.door._left - server.door._left,
            handout.DESCRIPTORS)
