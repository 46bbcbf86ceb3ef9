"""A client of ours that is the storage of another server.

Its clients, ours and stock's, hear of what is committed at the first server
and at theirs.
"""

from ZEO.ClientStorage import ClientStorage

from fsyncstorage.client.storage import FsyncClient
from fsyncstorage.server.server import Server

from ..support import Thread
from ..support import oid
from ..support import until
from .connected import ConnectedTestCase
from .connected import commit


class FanOut(ConnectedTestCase):

    records = {1: b'one'}

    def setUp(self):
        super().setUp()
        between = Server(('127.0.0.1', 0), {'1': self.connect()})
        thread = Thread(between.loop)
        self.addCleanup(thread.result)
        self.addCleanup(between.close)
        self.clients = [self.connect(), *(
            self.connect(between.addr, make=make)
            for make in (FsyncClient, ClientStorage))]

    def test_all_hear_of_each_commit(self):
        tid = self.tid
        for number, client in enumerate(self.clients):
            with self.subTest(number):
                data = b'%d' % number
                tid = commit(client, {1: data}, tid)
                for each in self.clients:
                    until(lambda: each.lastTransaction() == tid, 'told')
                    self.assertEqual(self.load(each, 1), (data, tid, None))
                self.assertEqual(self.storage.load(oid(1)), (data, tid))
