"""Local reads beside commits in one trip, and while the answer to one is open.

What is told as committed is found locally at once, and all of it.  What was
not told yet is not seen, although the file and the map have it.
"""

import contextlib
import threading
from unittest import mock

import ZODB
from transaction import TransactionManager
from ZEO.Exceptions import ClientDisconnected

from fsyncstorage.client.storage import FsyncClient
from fsyncstorage.server import oursession
from fsyncstorage.server.oursession import OurSession
from fsyncstorage.wire import frames

from ..support import PATIENCE
from ..support import Thread
from ..support import until
from .test_client_outcome import Lost
from .test_local import TwoObjectsTestCase
from .test_local import after
from .trips import Trips


class InOneTrip(TwoObjectsTestCase):

    def setUp(self):
        super().setUp()
        self.client = self.connect()
        self.db = ZODB.DB(self.client)
        self.addCleanup(self.db.close)
        self.trips = Trips(self)
        self.manager = TransactionManager()
        self.connection = self.db.open(self.manager)
        self.addCleanup(self.connection.close)
        self.addCleanup(self.manager.abort)

    def commit(self):
        """By another connection of the client; return the tid."""
        with self.db.transaction() as connection:
            for name in 'xy':
                connection.root()[name].value += 1
        return self.client.lastTransaction()

    def look(self):
        """What a transaction finds that begins now."""
        self.manager.begin()
        self.connection.cacheMinimize()
        return [self.connection.root()[name].value for name in 'xy']

    def test_it_is_found_at_once(self):
        self.assertEqual(self.look(), [0, 0])
        x = self.connection.root()['x']
        for number in range(1, 20):
            tid = self.commit()
            with self.asked(0):
                self.assertEqual(self.look(), [number, number])
            self.assertEqual(x._p_serial, tid)
            self.assertEqual(
                self.source(self.client).load_before(x._p_oid, after(tid))[1],
                tid)
        self.assertEqual((self.trips.one, self.trips.two), (19, 0))

    @contextlib.contextmanager
    def cut_off(self):
        """When the connection has ended, there is none in the `with`."""
        go_on, meet = threading.Event(), FsyncClient.meet

        def later(client, opened):
            go_on.wait(PATIENCE)
            return meet(client, opened)

        with mock.patch.object(FsyncClient, 'meet', later):
            try:
                yield
            finally:
                go_on.set()

    def check_while_it_is_open(self):
        """Return the thread that commits, when the client is connected."""
        x = self.connection.root()['x']
        last = self.client.lastTransaction()
        with self.cut_off():
            committing = Thread(self.commit)
            until(lambda: not self.client.is_connected(), 'cut off')
            self.assertEqual(self.look(), [0, 0])
            self.assertEqual(self.client.lastTransaction(), last)
            # Of what was not told, the map knows.
            self.assertEqual(self.source(self.client).load_before(
                x._p_oid, after(last))[1], last)
        until(self.client.is_connected, 'connected')
        return committing

    def done_is_lost(self):
        self.patch(OurSession, _finished=Lost(
            OurSession._finished, goes_on=True))

    def test_it_was_kept(self):
        self.done_is_lost()
        self.check_while_it_is_open().result()
        self.assertEqual(self.look(), [1, 1])
        self.assertEqual(self.trips.one, 1)

    def test_it_was_not_kept(self):
        trip = frames.Trip
        with mock.patch.dict(oursession._METHODS, {trip: Lost(
                oursession._METHODS[trip], goes_on=False)}):
            with self.assertRaises(ClientDisconnected):
                self.check_while_it_is_open().result()
        self.assertEqual(self.look(), [0, 0])
        self.commit()
        self.assertEqual(self.look(), [1, 1])
