"""What the client makes of odd callers of its prefetches."""

from unittest import mock

from ZODB.utils import maxtid

from ..support import Thread
from ..support import oid
from .connected import ConnectedTestCase


class Prefetching(ConnectedTestCase):

    records = {number: b'data' for number in range(1, 5)}

    def prefetch(self, client, *numbers):
        client.prefetch(map(oid, numbers), maxtid)

    def test_a_new_object(self):
        client = self.connect()
        client.prefetch([oid(1), None, oid(2)], maxtid)
        for number in 1, 2:
            self.assertEqual(self.load(client, number)[0], b'data')

    def test_a_load_within_a_load(self):
        """Of a finalizer, while answers are read."""
        client = self.connect()
        self.prefetch(client, 1, 2, 3)
        answered, found = client._cache.answered, []

        def answered_and_collected(load):
            if not found:
                found.append(None)
                found.append(self.load(client, 3)[0])
                self.prefetch(client, 4)
            answered(load)

        with mock.patch.object(
                client._cache, 'answered', answered_and_collected):
            data = Thread(self.load, client, 2).result()[0]
        self.assertEqual([data, found[1]], [b'data', b'data'])
