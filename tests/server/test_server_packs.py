"""Packs of a server: forecasts, and who may ask.

`tests/fsyncpack` has what a client of ours is told of them.
"""

import socket
import time
from unittest import mock

import ZODB
import ZODB.blob
from ZEO.ClientStorage import ClientStorage
from ZEO.Exceptions import ClientDisconnected
from ZEO.Exceptions import ServerException
from ZODB.POSException import ReadOnlyError
from ZODB.POSException import Unsupported
from ZODB.tests.hexstorage import HexStorage

from fsyncstorage.client.storage import FsyncClient
from fsyncstorage.pack import progress
from fsyncstorage.server.connection import greeting
from fsyncstorage.server.threads import Threads

from ..pack import phases
from ..support import PATIENCE
from ..support import Thread
from ..support import until
from . import zeowire
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

    def test_what_is_no_time(self):
        client = self.client()
        with mock.patch.object(Threads, 'do') as do:
            for call in client.pack, client.packs.forecast:
                for wrong in float('nan'), float('inf'), 1e300:
                    with self.assertRaises((ValueError, OverflowError)):
                        call(wrong)
        do.assert_not_called()

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
                one.sendall(zeowire.frame(zeowire.HANDSHAKE)
                            + zeowire.call(1, *call))
                with one.makefile('rb') as answers:
                    self.assertEqual(answers.read(), greeting(False, False))


class OtherStorages(Served):

    def test_one_that_is_wrapped(self):
        """It passes our methods on; a forecast would not know its records."""
        storage = HexStorage(self.open(pack_process=False))
        db = ZODB.DB(storage)
        for text in 'one', 'two':
            with db.transaction() as connection:
                connection.root()['text'] = text * 100
        client = FsyncClient(self.serve(storage).addr)
        self.addCleanup(client.close)
        with self.assertRaisesRegex(Unsupported, 'wrapped'):
            client.packs.forecast(time.time())
        before = storage.getSize()
        client.pack(time.time())
        self.assertLess(storage.getSize(), before)
        self.assertEqual(client.packs.status()['last']['outcome'], 'packed')
