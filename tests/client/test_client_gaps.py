"""A server that cannot tell its clients everything ends them.

When they come back, their caches are right: they have heard of nothing that
came behind what they have missed.
"""

from ZEO.ClientStorage import ClientStorage

from ..support import commit as commit_to
from ..support import oid
from ..support import until
from .connected import ConnectedTestCase


class Gaps(ConnectedTestCase):

    records = {1: b'old', 2: b'old'}

    def setUp(self):
        super().setUp()
        self.clients = [self.connect(), self.connect(make=ClientStorage)]
        for client in self.clients:
            for number in self.records:
                self.assertEqual(self.load(client, number)[0], b'old')
        # Nobody is told of what the process of the server commits itself.
        self.missed = commit_to(self.storage, {1: b'new'}, {1: self.tid})
        self.last = commit_to(self.storage, {2: b'new'}, {2: self.tid})

    def check(self, happens):
        ours, stock = self.clients
        generation = stock._connection_generation
        with self.another_stream(ours):
            self.in_loop(happens)
        until(lambda: stock._connection_generation >= generation + 2
              and stock.is_connected(), 'connected again')
        for client in self.clients:
            with self.subTest(type(client).__name__):
                self.assertEqual(client.lastTransaction(), self.last)
                self.assertEqual(
                    self.load(client, 1)[:2], (b'new', self.missed))
                self.assertEqual(
                    self.load(client, 2)[:2], (b'new', self.last))

    def test_all_have_to_connect_again(self):
        """As when a storage has lost its own server, and come back."""
        self.check(self.all_come_again)

    def all_come_again(self):
        self.server._invalidateCache('1')
        self.server.invalidate(None, '1', self.last, [oid(2)])

    def test_an_announcement_that_fails(self):
        """The next one must reach nobody who has not heard of the first."""
        with self.assertLogs('fsyncstorage.server', 'ERROR'):
            self.check(self.one_fails)

    def one_fails(self):
        service = self.server.services['1']
        size_info, service.size_info = service.size_info, None
        self.server.invalidate(None, '1', self.missed, [oid(1)])
        self.server.mailbox.deliver()
        service.size_info = size_info
        service.changed_elsewhere(self.last, [oid(2)])
