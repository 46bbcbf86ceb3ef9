"""A server that lost what clients have seen, and one that only lags behind."""

from ZODB.utils import maxtid

from ..support import oid
from ..support import until
from .connected import ConnectedTestCase
from .connected import commit

LOGGER = 'fsyncstorage.client'


class LostTail(ConnectedTestCase):

    records = {1: b'old'}

    def setUp(self):
        super().setUp()
        # What a power cut leaves of the file.
        storage = self.open('lost')
        storage.copyTransactionsFrom(self.storage)
        storage.close()

    def mark(self):
        with open(self.path('lost.unsynced'), 'w'):
            pass

    def commit(self, data):
        """By another client."""
        other = self.connect()
        tid = commit(other, {1: data}, self.tid)
        other.close()
        return tid

    def see_new(self, client):
        new = self.commit(b'new')
        until(lambda: client.lastTransaction() == new, 'the invalidation')
        self.assertEqual(client.loadBefore(oid(1), maxtid)[0], b'new')
        return new

    def lose(self, client):
        """The client has seen what the server that comes has not."""
        new = self.see_new(client)
        self.serve_again('lost')
        return new

    def check_the_cache_is_dropped(self, **cache):
        self.mark()
        client = self.connect(**cache)
        with self.assertLogs(LOGGER, 'WARNING') as logs:
            self.lose(client)
            until(client.is_connected, 'connected')
        self.assertIn('The cache is dropped', str(logs.output))
        self.assertEqual(client.loadBefore(oid(1), maxtid)[0], b'old')
        self.assertEqual(client.lastTransaction(), self.tid)
        newer = self.commit(b'newer')
        until(lambda: client.lastTransaction() == newer, 'the invalidation')
        self.assertEqual(client.loadBefore(oid(1), maxtid)[0], b'newer')

    def test_the_cache_is_dropped(self):
        self.check_the_cache_is_dropped()

    def test_a_persistent_cache_is_dropped(self):
        self.check_the_cache_is_dropped(client='test', var=self.directory)

    def test_a_persistent_cache_of_an_earlier_process(self):
        self.mark()
        cache = {'client': 'test', 'var': self.directory}
        client = self.connect(**cache)
        self.see_new(client)
        client.close()
        self.serve_again('lost')
        with self.assertLogs(LOGGER, 'WARNING'):
            client = self.connect(**cache)
        self.assertEqual(client.loadBefore(oid(1), maxtid)[0], b'old')

    def test_who_lags_behind_is_not_followed(self):
        """A secondary, say: nothing is lost, and nothing is dropped."""
        client = self.connect()
        with self.assertLogs('ZEO', 'ERROR') as logs:
            new = self.lose(client)
            until(lambda: 'Server behind client' in str(logs.output),
                  'refused')
        self.assertFalse(client.is_connected())
        self.assertEqual(client.lastTransaction(), new)
        self.assertEqual(client.loadBefore(oid(1), maxtid)[0], b'new')
