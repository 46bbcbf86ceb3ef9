"""What the client makes of interrupts, forks, and odd callers.
Goes with `client/prefetch.py` and `client/plainprefetch.py`.
"""

import os
from unittest import mock

from ZEO.Exceptions import ClientDisconnected
from ZODB.Connection import TransactionMetaData
from ZODB.utils import maxtid
from ZODB.utils import p64

from fsyncstorage.client import plainprefetch
from fsyncstorage.client.cache import Cache
from fsyncstorage.server.session import Session

from ..support import TestCase
from ..support import Thread
from ..support import oid
from ..support import until
from .connected import ConnectedTestCase
from .connected import commit


class Interrupts(ConnectedTestCase):
    """Over the ZEO connection; test_client_commits has them on the channel."""

    records = {1: b'old'}
    commit_channel = False

    def test_of_a_begin(self):
        client = self.connect()
        for name in 'set_data', 'data':
            transaction = TransactionMetaData()
            with mock.patch.object(transaction, name,
                                   side_effect=KeyboardInterrupt):
                with self.assertRaises(KeyboardInterrupt):
                    client.tpc_begin(transaction)
            self.assertFalse(client._commit_lock.locked())
        commit(client, {2: b'two'})


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


class PrefetchingPlainly(ConnectedTestCase):
    """From a server without read channels."""

    records = {number: b'data' for number in range(1, 30)}

    def setUp(self):
        super().setUp()
        self.patch(plainprefetch, WINDOW=4)
        self.patch(Session, get_info=lambda session: {
            'name': '', 'length': 0, 'size': 0, 'supportsUndo': 1,
            'interfaces': ()})
        self.client = self.connect()

    def loads(self):
        return self.in_loop(lambda: self.server.stats['1'].loads)

    def start_prefetch(self, *numbers):
        return Thread(self.client.prefetch, map(oid, numbers), maxtid)

    def check_they_come(self, *numbers):
        until(lambda: all(oid(number) in self.client._cache.current
                          for number in numbers), 'all of them')

    def test_so_many_at_a_time(self):
        with self.loads_held_up():
            threads = [self.start_prefetch(*range(1, 10))]
            until(lambda: self.loads() >= 4, 'asked')
            threads += [self.start_prefetch(*range(first, first + 4))
                        for first in range(10, 30, 4)]
            # What is sent from now on comes behind what was sent before.
            self.client.ping()
            self.assertEqual(self.loads(), 4)
            self.assertTrue(threads[0].is_alive())
        for thread in threads:
            thread.result()
        self.check_they_come(*range(1, 30))


class CacheFile(TestCase):

    def setUp(self):
        super().setUp()
        self.cache = Cache(self.path('cache'), 100_000)
        self.addCleanup(self.cache.close)
        self.cache.setLastTid(p64(1))

    def fill(self, numbers):
        for number in numbers:
            self.cache._add(oid(number), p64(1), b'%d' % number * 50)

    def load(self, number):
        return self.cache.loadBefore(oid(number), maxtid)

    def test_a_fork_writes_nothing(self):
        self.fill([1])
        with mock.patch.object(os, 'getpid', return_value=1):
            with self.assertRaises(ClientDisconnected):
                self.load(1)
        self.fill([2])
        for number in 1, 2:
            self.assertEqual(self.load(number)[0], b'%d' % number * 50)
