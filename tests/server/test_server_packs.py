"""Packs of a server: how far they are, cancel, forecasts; and who may ask."""

import os
import socket
import time
from unittest import mock

import ZODB
import ZODB.blob
from ZEO.ClientStorage import ClientStorage
from ZEO.Exceptions import ClientDisconnected
from ZEO.Exceptions import ServerException
from ZODB.FileStorage import FileStorage
from ZODB.POSException import ReadOnlyError
from ZODB.POSException import Unsupported
from ZODB.tests.hexstorage import HexStorage

from fsyncstorage.client.storage import FsyncClient
from fsyncstorage.pack import progress
from fsyncstorage.server import packs as server_packs
from perf import zeowire

from ..pack import phases
from ..support import PATIENCE
from ..support import Thread
from ..support import until
from .serving import ErrorReply
from .serving import Served


class PacksCase(Served):

    def setUp(self):
        super().setUp()
        self.storage = self.packable()
        self.server = self.serve(self.storage)

    def packable(self):
        return phases.fill(self.open(
            blob_dir=self.path('blobs'), pack_process=False))

    def client(self, kind=FsyncClient, **options):
        client = kind(self.server.addr, **options)
        self.addCleanup(client.close)
        return client


class WithOurClient(PacksCase):

    level = 2

    def test_how_far_it_is(self):
        client = self.client()
        self.assertEqual(client.packs.status(), {
            'pack': None, 'forecast': None, 'last': None})
        with phases.held_up(progress.COPY) as there:
            packing = Thread(lambda: client.pack(time.time()))
            self.assertTrue(there.wait(PATIENCE))
            # Another client sees it, too.
            status = self.client().packs.status()['pack']
            self.assertEqual(status['phase'], 'copy')
            self.assertGreater(status['share'], 0)
            with self.assertNoLogs(level='ERROR'), self.assertRaisesRegex(
                    ServerException, 'Already packing'):
                client.pack(time.time())
        packing.result()
        self.assertEqual(
            client.packs.status()['last']['outcome'], 'packed')

    def test_a_cancel_in_each_phase(self):
        before = self.storage.getSize()
        client = self.client()
        for phase in (progress.CHECK, progress.REFERENCES, progress.MARK,
                      progress.COPY, progress.SWAP):
            with self.subTest(phase):
                with phases.held_up(phase) as there:
                    packing = Thread(lambda: client.pack(time.time()))
                    self.assertTrue(there.wait(PATIENCE))
                    self.client().packs.cancel()
                with self.assertRaisesRegex(ServerException, 'cancelled'):
                    packing.result()
                self.assertEqual(self.storage.getSize(), before)
                for name in 'Data.fs.pack', 'Data.fs.pack.index', 'blobs/' + (
                        '.removed'):
                    self.assertFalse(os.path.exists(self.path(name)))
        client.pack(time.time())
        self.assertLess(self.storage.getSize(), before)

    def test_what_is_no_time(self):
        client = self.client()
        with mock.patch.object(server_packs.threading, 'Thread') as thread:
            for call in client.pack, client.packs.forecast:
                for wrong in float('nan'), float('inf'), 1e300:
                    with self.assertRaises(ServerException):
                        call(wrong)
        thread.assert_not_called()

    def test_one_forecast_at_a_time(self):
        """Whoever asks: each costs a thread, a process and a read."""
        with phases.held_up(progress.MARK, progress.FORECAST) as there:
            first = Thread(
                lambda: self.client().packs.forecast(time.time()))
            self.assertTrue(there.wait(PATIENCE))
            with self.assertRaisesRegex(ServerException, 'under way already'):
                self.client().packs.forecast(time.time())
        self.assertGreater(first.result()['freed'], 0)
        self.client().packs.forecast(time.time())

    def test_a_forecast_ends_with_its_client(self):
        client = self.client()
        session, = self.server.services['1'].sessions
        with phases.held_up(progress.MARK, progress.FORECAST) as there:
            asking = Thread(lambda: client.packs.forecast(time.time()))
            self.assertTrue(there.wait(PATIENCE))
            client.close()
            with self.assertRaises(ClientDisconnected):
                asking.result()
            until(lambda: not session.connected, 'the client has left')
        until(lambda: not self.server.services['1'].packs._under_way,
              'the end of the forecast')
        self.assertIsNone(self.storage.packs.status()['forecast'])
        self.client().packs.forecast(time.time())


class Who(PacksCase):

    level = 2

    def test_a_client_that_reads_only(self):
        client = self.client(read_only=True)
        self.assertIsNone(client.packs.status()['pack'])
        with self.assertRaises(ReadOnlyError):
            client.packs.cancel()
        with self.assertRaises(ReadOnlyError):
            client.packs.forecast(time.time())
        # As in stock: zeopack connects so.
        client.pack(time.time())
        self.assertEqual(client.packs.status()['last']['outcome'], 'packed')

    def test_a_stock_client(self):
        client = self.client(ClientStorage)
        before = self.storage.getSize()
        client.pack(time.time())
        self.assertLess(self.storage.getSize(), before)
        with self.assertRaisesRegex(ServerException, 'in the future'):
            client.pack(time.time(), days=-1)

    def test_one_that_has_not_registered(self):
        for call in ('pack_status',), ('pack_cancel',), ('pack_forecast', 1.):
            with self.subTest(call), socket.create_connection(
                    self.server.addr, PATIENCE) as one:
                greeting = zeowire.frame(zeowire.HANDSHAKE)
                one.sendall(greeting + zeowire.call(1, *call))
                with one.makefile('rb') as answers:
                    self.assertEqual(answers.read(), greeting)


class OtherStorages(Served):

    level = 2

    def test_one_that_is_wrapped(self):
        """It passes our methods on; a forecast would not know its records."""
        storage = HexStorage(self.open(pack_process=False))
        db = ZODB.DB(storage)
        for text in 'one', 'two':
            with db.transaction() as connection:
                connection.root()['text'] = text * 100
        client = FsyncClient(self.serve(storage).addr)
        self.addCleanup(client.close)
        with self.assertRaisesRegex(ServerException, 'wrapped'):
            client.packs.forecast(time.time())
        before = storage.getSize()
        client.pack(time.time())
        self.assertLess(storage.getSize(), before)
        self.assertEqual(client.packs.status()['last']['outcome'], 'packed')

    def test_one_that_tells_nothing(self):
        """Nothing is offered; and who asks nevertheless is told so."""
        server = self.serve(FileStorage(self.path()))
        client = FsyncClient(server.addr)
        self.addCleanup(client.close)
        self.assertFalse(client.packs.are_offered)
        with self.assertRaisesRegex(Unsupported, 'not ours'):
            client.packs.status()
        peer = self.connect(server)
        self.assertNotIn('packs', peer.call('get_info')['fsyncstorage'])
        for call in ('pack_status',), ('pack_cancel',), ('pack_forecast', 1.):
            with self.assertRaises(ErrorReply):
                peer.call(*call)
        with ZODB.DB(client).transaction() as connection:
            connection.root()['x'] = 1
        client.pack(time.time())
