"""What a client beside its server reads itself, and when it asks (I14).
"""

import contextlib
import gc
import os
import socket
import threading
import time
import unittest
from unittest import mock

import ZODB
from transaction import TransactionManager
from ZODB.serialize import referencesf
from ZODB.tests.MinPO import MinPO
from ZODB.utils import maxtid
from ZODB.utils import p64
from ZODB.utils import u64
from ZODB.utils import z64

from fsyncstorage.client import local
from fsyncstorage.client.storage import FsyncClient
from fsyncstorage.format import UNCERTAIN
from fsyncstorage.format import NotAMap
from fsyncstorage.format import objectmap as layout
from fsyncstorage.format import source
from fsyncstorage.format.source import Source
from fsyncstorage.format.view import BLOCK
from fsyncstorage.local import handedover
from fsyncstorage.server.service import Service

from ..server.serving import open_files
from ..support import PATIENCE
from ..support import TestCase
from ..support import Thread
from ..support import commit as commit_to
from ..support import oid
from ..support import until
from .connected import ConnectedTestCase
from .connected import commit
from .trips import Trips


def after(tid):
    """The tid with which a transaction that began after this one loads."""
    return p64(u64(tid) + 1)


@unittest.skipUnless(layout.is_possible(), 'needs sealed memory')
class LocalTestCase(ConnectedTestCase):

    records = {0: b'root', 1: b'old'}

    def setUp(self):
        super().setUp()
        self.addCleanup(self.wait_for_threads)  # when all clients are closed

    def wait_for_threads(self):
        """A client does not wait for the end of its own."""
        for thread in threading.enumerate():
            if thread.name.endswith(' local reads'):
                thread.join(PATIENCE)

    def open(self, name='Data.fs', **options):
        return super().open(name, **{
            'local_reads': True, 'pack_process': False, **options})

    def connect(self, *args, **options):
        """A client, as soon as it reads locally."""
        client = super().connect(*args, **options)
        self.until_local(client)
        return client

    def connect_without(self, **options):
        return super().connect(local_reads='off', **options)

    def until_local(self, client):
        until(lambda: client.stats()['reads_locally'], 'reads locally')

    def source(self, client):
        return client._local.source

    def read(self, client, number):
        """As a transaction that begins now."""
        return client.loadBefore(oid(number), after(client.lastTransaction()))

    @contextlib.contextmanager
    def asked(self, times):
        """The server is asked so often, and nothing is cached."""
        loads = self.server.stats['1']
        before = loads.loads
        yield
        self.assertEqual(loads.loads - before, times)

    def change(self, number, data, serial=z64):
        """By another client."""
        with contextlib.closing(self.connect_without()) as other:
            return commit(other, {number: data}, serial)

    def until_told(self, client, tid):
        until(lambda: client.lastTransaction() == tid, 'told')


class Loads(LocalTestCase):

    def test_each_is_counted(self):
        """Also if the cache has the object."""
        client = self.connect()
        client.loadBefore(oid(1), maxtid)  # by the server, and kept
        for _ in range(50):
            self.read(client, 1)
        self.assertEqual(client.stats()['local_reads'], 50)

    def test_from_the_file(self):
        client = self.connect()
        with self.asked(0):
            self.assertEqual(
                self.read(client, 1), (b'old', self.tid, None))
        self.assertEqual(len(client._cache), 0)

    def test_what_it_was_not_told_of(self):
        """It may be in the map already."""
        client = self.connect()
        began = after(client.lastTransaction())
        new = self.change(1, b'new', self.tid)
        with self.asked(0):
            self.assertEqual(client.loadBefore(oid(1), began)[0], b'old')
        self.until_told(client, new)
        with self.asked(0):
            self.assertEqual(client.loadBefore(oid(1), began),
                             (b'old', self.tid, new))

    def test_whoever_asks_for_the_future_asks_the_server(self):
        client = self.connect()
        with self.asked(1):
            self.assertEqual(client.load(oid(1)), (b'old', self.tid))

    def test_a_socket_at_another_place(self):
        os.rename(self.path('Data.fs.local'), self.path('elsewhere'))
        client = self.connect(local_reads_socket=self.path('elsewhere'))
        with self.asked(0):
            self.assertEqual(self.read(client, 1), (b'old', self.tid, None))

    def test_off(self):
        client = self.connect_without()
        self.assertIsNone(client._local)
        self.assertFalse(client.stats()['reads_locally'])
        with self.assertRaisesRegex(ValueError, 'auto or off'):
            self.connect(local_reads='on')

    def test_a_fork_falls_back(self):
        client = self.connect()
        child = os.fork()
        if not child:
            answer = client._local.load_before(
                oid(1), after(self.tid))
            os._exit(answer is not UNCERTAIN)
        _, status = os.waitpid(child, 0)
        self.assertEqual(status, 0)


class OverTLS(LocalTestCase):

    tls = True
    test_from_the_file = Loads.test_from_the_file


class Doubts(LocalTestCase):
    """Whatever is wrong with the file or the map: the server is asked."""

    def setUp(self):
        super().setUp()
        self.patch(handedover, Source=Source)

    def check_asked(self, client):
        with self.asked(1):
            self.assertEqual(self.read(client, 1), (b'old', self.tid, None))

    def test_a_position_that_is_wrong(self):
        for position in 4, 5, 60, 100, (1 << 64) - 1, 1 << 62:
            with self.subTest(position):
                client = self.connect()
                known = self.source(client)._map
                with mock.patch.object(
                        known.__class__, 'get', lambda *args: position), \
                        mock.patch.object(
                            known.__class__, 'marks',
                            lambda *args: (1 << 63, 1 << 63, 0, 0)):
                    self.check_asked(client)
                client.close()

    def test_an_error_of_the_file(self):
        client = self.connect()
        with mock.patch.object(
                Source, '_record', mock.Mock(side_effect=OSError)):
            self.check_asked(client)

    def test_a_record_that_would_take_all_memory(self):
        client = self.connect()
        commit(client, {1: b'x' * BLOCK}, self.tid)
        load = client._local.load_before
        tid = after(client.lastTransaction())
        self.assertEqual(load(oid(1), tid)[0], b'x' * BLOCK)
        with mock.patch.object(source, 'LONGEST', BLOCK - 1):
            self.assertIs(load(oid(1), tid), UNCERTAIN)


class Packs(LocalTestCase):

    level = 2

    def pack(self):
        self.storage.pack(time.time(), referencesf, gc=False)

    def test_it_goes_on_with_the_new_file(self):
        client = self.connect()
        old = self.source(client)
        new = self.change(1, b'new', self.tid)
        self.until_told(client, new)
        self.pack()
        newer = self.change(1, b'newer', new)
        self.until_told(client, newer)
        self.assertEqual(self.read(client, 1), (b'newer', newer, None))
        until(lambda: self.source(client) not in (None, old), 'a new map')
        client._cache.begin_anew(client.lastTransaction())
        with self.asked(0):
            self.assertEqual(self.read(client, 1), (b'newer', newer, None))

    def test_one_that_is_refused_asks_again_later(self):
        """Also if loads notice late that the map is retired."""
        client = self.connect()
        reads, asked = client._local, threading.Semaphore(0)
        ask = reads._ask

        def count():
            asked.release()
            reads._woken.set()  # by such a load
            return ask()

        self.patch(reads, _ask=count)
        self.patch(self.storage, object_map=mock.Mock(side_effect=OSError))
        self.storage.retire_map()
        self.read(client, 1)
        self.assertTrue(asked.acquire(timeout=PATIENCE))
        self.assertFalse(asked.acquire(timeout=.3))

    def test_one_that_is_refused_again_and_again(self):
        """It is said once."""
        self.patch(handedover, RETREAT=0.01)
        self.patch(self.storage, object_map=mock.Mock(side_effect=OSError))
        with self.assertLogs(handedover.__name__, 'INFO') as logged:
            ConnectedTestCase.connect(self)
            until(lambda: self.storage.object_map.call_count > 3, 'asked')
        self.assertEqual(
            sum('not locally' in line for line in logged.output), 1)

    def test_an_idle_client_lets_go_of_the_old_file(self):
        self.patch(handedover, LOOK_EACH=0.01)
        client = self.connect()
        old = os.stat(self.path())
        self.change(1, b'new', self.tid)
        self.pack()
        os.remove(self.path('Data.fs.old'))

        def is_open():
            for number in os.listdir('/proc/self/fd'):
                with contextlib.suppress(OSError):
                    if os.path.samestat(os.fstat(int(number)), old):
                        return True

        until(lambda: not is_open(), 'closed')
        self.until_local(client)


class Away(LocalTestCase):
    """A server that is gone: only what is durable is read."""

    def open(self, name='Data.fs', **options):
        return super().open(name, **{
            'durability': 'interval', 'sync_interval': '1h', **options})

    def setUp(self):
        super().setUp()
        self.storage._sequencer.sync_to(self.storage.getSize())

    def stop(self, client):
        """As if it was killed, for the client."""
        self.address = self.server.acceptor.addr
        self.server.close()
        self.thread.join()
        until(lambda: not client.is_connected(), 'disconnected')

    def test_what_is_durable_is_read(self):
        client = self.connect()
        self.stop(client)
        self.assertEqual(self.read(client, 1), (b'old', self.tid, None))
        self.assertEqual(len(client._cache), 0)

    def test_what_is_not_durable_waits(self):
        client = self.connect()
        source = self.source(client)
        new = self.change(1, b'new', self.tid)
        self.until_told(client, new)
        self.assertIs(source.load_before(oid(1), after(new)), UNCERTAIN)
        self.assertEqual(self.read(client, 1), (b'new', new, None))
        self.storage._sequencer.sync_to(self.storage.getSize())
        self.assertEqual(source.load_before(oid(1), after(new)),
                         (b'new', new, None))


class Moves(LocalTestCase):

    def test_to_a_server_without_and_back(self):
        client = self.connect()
        self.assertEqual(self.read(client, 1)[0], b'old')
        for data, offers in ((b'away', False), (b'back', True)):
            self.offers = offers
            self.serve_again()
            until(client.is_connected, 'connected')
            tid = self.change(
                1, data, self.storage.load(oid(1))[1])
            self.until_told(client, tid)
            if offers:
                self.until_local(client)
            self.assertEqual(client._local is not None, offers)
            with self.asked(0 if offers else 1):
                self.assertEqual(self.read(client, 1), (data, tid, None))
            self.assertEqual(len(client._cache), 1)

    offers = True

    def open(self, *args, **options):
        return super().open(*args, local_reads=self.offers, **options)


class TwoObjectsTestCase(LocalTestCase):
    """Of ZODB, with the same value: x and y in the root."""

    records = {}

    def setUp(self):
        super().setUp()
        with contextlib.closing(ZODB.DB(self.connect_without())) as db:
            with db.transaction() as connection:
                for name in 'xy':
                    connection.root()[name] = MinPO(0)


class Verified(TwoObjectsTestCase):
    """Connections of ZODB have objects that the cache has not.

    A transaction that begins while a connection is verified sees one state.
    """

    def change_both(self):
        with contextlib.closing(ZODB.DB(self.connect_without())) as db:
            with db.transaction() as connection:
                for name in 'xy':
                    connection.root()[name].value += 1

    def check_begin(self, name, is_behind=True):
        """x is in memory, and y is not.  The stream ends, both are changed,
        and a transaction begins before or behind this method of the client,
        which is called while the next stream is opened.  What it sees."""
        client = self.connect()
        db = ZODB.DB(client)
        self.addCleanup(db.close)
        manager = TransactionManager()
        connection = db.open(manager)
        self.addCleanup(connection.close)
        self.addCleanup(manager.abort)
        x, y = (connection.root()[name] for name in 'xy')
        self.assertEqual(x.value, 0)
        manager.abort()
        y._p_deactivate()
        self.assertEqual(len(client._cache), 0)
        method, begun = getattr(client, name), []

        def call(*args):
            if is_behind:
                result = method(*args)
            if not begun:
                manager.begin()
                begun.append(name)
            return result if is_behind else method(*args)

        with mock.patch.object(client, name, call):
            with self.another_stream(client):
                with mock.patch.object(client, 'hellos', lambda: ()):
                    client._failover.stream.end('of a test')
                    until(lambda: not client.is_connected(), 'disconnected')
                    self.change_both()
        self.assertTrue(begun)
        seen = x.value, y.value
        manager.begin()
        self.assertEqual((x.value, y.value), (1, 1))
        return seen

    def test_when_the_last_tid_is_known(self):
        self.assertEqual(self.check_begin('meet'), (1, 1))

    def test_before(self):
        self.assertEqual(self.check_begin('meet', is_behind=False), (0, 0))

    def test_when_what_has_changed_is_told(self):
        self.assertEqual(self.check_begin('invalidateTransaction'), (1, 1))

    def test_when_the_server_does_not_know_what_has_changed(self):
        with mock.patch.object(
                Service, 'invalidations_since', lambda *args: None):
            self.assertEqual(self.check_begin('invalidateCache'), (0, 0))


class OneTrip(TwoObjectsTestCase):

    def test_a_commit_is_found_at_once(self):
        """What is told as committed is found locally, and all of it."""
        client, trips = self.connect(), Trips(self)
        db = ZODB.DB(client)
        self.addCleanup(db.close)
        for number in range(1, 20):
            with db.transaction() as connection:
                for name in 'xy':
                    connection.root()[name].value += 1
            with self.asked(0), db.transaction() as connection:
                connection.cacheMinimize()
                self.assertEqual(
                    [connection.root()[name].value for name in 'xy'],
                    [number, number])
        self.assertEqual((trips.one, trips.two), (19, 0))


class Ends(LocalTestCase):

    def test_nothing_is_left(self):
        """When nobody refers to it."""
        self.come_and_go()
        before = open_files()
        for _ in range(5):
            self.come_and_go()
        until(lambda: gc.collect() is not None and open_files() <= before,
              'closed')

    def come_and_go(self):
        with contextlib.closing(FsyncClient(self.server.addr)) as client:
            self.until_local(client)

    def test_a_name_that_does_not_answer_holds_nobody_up(self):
        """A path on a dead mount, say."""
        asked, go_on = threading.Event(), threading.Event()

        class Hanging(socket.socket):
            def connect(self, path):
                asked.set()
                go_on.wait(PATIENCE)
                super().connect(path)

        client = self.connect()
        about = self.server.services['1'].handout.about
        with mock.patch.object(socket, 'socket', Hanging):
            reads = local.begin('name', client._cache, about)
            self.assertTrue(asked.wait(PATIENCE))
        closing = Thread(reads.close)
        closing.result()
        go_on.set()
        reads._thread.join(PATIENCE)
        self.assertFalse(reads._thread.is_alive())
        self.assertIsNone(reads.source)


@unittest.skipUnless(layout.is_possible(), 'needs sealed memory')
class HandedOver(TestCase):
    """What comes over the socket may be anything."""

    def setUp(self):
        super().setUp()
        self.storage = self.open()
        self.tid = commit_to(self.storage, {0: b'data'})
        with open(self.path('other'), 'wb') as other:
            other.write(b'another file')
        self.instance = self.storage.instance
        self.good = self.storage.object_map().open()
        for each in self.good:
            self.addCleanup(os.close, each)
        self.connect()

    def connect(self):
        self.server, self.client = socket.socketpair()
        self.addCleanup(self.server.close)
        self.addCleanup(self.client.close)
        self.sent = {*map(os.fstat, self.good), os.fstat(self.server.fileno())}

    def descriptors(self):
        """How many there are of what is sent.  (Of other files, those of tests
        before may go at any time.)"""
        found = []
        for each in os.listdir('/dev/fd'):
            with contextlib.suppress(OSError):  # that of the directory
                found.append(os.fstat(int(each)))
        return sum(os.path.samestat(one, another)
                   for one in found for another in self.sent)

    def receive(self, message, *descriptors, instance=None):
        if message:
            socket.send_fds(self.server, [message], descriptors)
        else:
            self.server.close()
        return handedover.received(
            self.client, instance or self.instance)

    def test_what_is_right(self):
        source, _ = self.receive(b'\1', *self.good)
        self.assertEqual(source.load_before(oid(0), maxtid),
                         (b'data', self.tid, None))

    def test_what_is_wrong(self):
        """No descriptors, too few, too many, another message, in the wrong
        order, no files, another file, another instance; nothing is left."""
        file, of_map = self.good
        with open(self.path('other'), 'rb') as other:
            for message, descriptors, instance in (
                    (b'\1', [], self.instance),
                    (b'\1', [file], self.instance),
                    (b'\1', 2 * [file, of_map], self.instance),
                    (b'\2', [file, of_map], self.instance),
                    (b'\1', [of_map, file], self.instance),
                    (b'\1', [self.server.fileno(), of_map], self.instance),
                    (b'\1', [other.fileno(), of_map], self.instance),
                    (b'\1', [file, of_map], bytes(16))):
                with self.subTest(message, descriptors=descriptors):
                    self.connect()
                    before = self.descriptors()
                    with self.assertRaises(NotAMap):
                        self.receive(message, *descriptors, instance=instance)
                    self.assertEqual(self.descriptors(), before)
        with self.assertRaises(handedover.Refused):  # not now
            self.receive(b'')

    def test_what_get_info_says(self):
        for about in (
                None, [], 'text', {}, {'socket': '/x.local'},
                {'socket': b'/x.local', 'instance': bytes(16)},
                # It may be hostile, and this the socket of another program.
                {'socket': '/run/x.sock', 'instance': bytes(16)},
                {'socket': 'x.local', 'instance': bytes(16)},
                {'socket': '\0x.local', 'instance': bytes(16)},
                {'socket': '/x\0.local', 'instance': bytes(16)},
                {'socket': '/' + 'x' * 101 + '.local', 'instance': bytes(16)},
                {'socket': '/x.local', 'instance': bytes(15)},
                {'socket': '/x.local', 'instance': 'x' * 16}):
            with self.subTest(about):
                self.assertIsNone(local.begin('name', None, about))
