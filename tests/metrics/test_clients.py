"""Figures of clients: a known number of loads gives exactly these."""

import unittest

import ZODB
import ZODB.blob
from prometheus_client import CollectorRegistry
from ZODB.utils import maxtid
from ZODB.utils import p64
from ZODB.utils import u64

from fsyncstorage.client.localcounts import EACH
from fsyncstorage.client.storage import FsyncClient
from fsyncstorage.format import objectmap
from fsyncstorage.metrics.clients import ClientCollector

from ..server.serving import Served
from ..support import PATIENCE
from ..support import commit
from ..support import oid
from ..support import until


class ClientsTestCase(Served):

    def connect_to(self, storage, **options):
        self.server = self.serve(storage)
        self.client = FsyncClient(
            self.server.addr, wait_timeout=PATIENCE, wait=True, **options)
        self.addCleanup(self.client.close)
        self.registry = CollectorRegistry(auto_describe=True)
        self.registry.register(ClientCollector({'main': self.client}))

    def load(self, *numbers):
        for number in numbers:
            self.client.loadBefore(oid(number), maxtid)

    def check(self, **expected):
        self.assertEqual(
            {name: self.registry.get_sample_value(
                f'fsyncclient_{name}', {'storage': 'main'})
             for name in expected}, expected)

    def by_source(self):
        return {source: self.registry.get_sample_value(
            'fsyncclient_load_duration_seconds_count',
            {'storage': 'main', 'source': source})
            for source in ('local', 'server')}


class Clients(ClientsTestCase):

    def setUp(self):
        super().setUp()
        storage = self.open()
        commit(storage, {1: b'x', 2: b'y', 3: b'z'})
        self.connect_to(storage)

    def test_hits_and_misses(self):
        self.check(connected=1, cache_hits_total=0, cache_misses_total=0)
        self.load(1, 2)
        self.check(cache_hits_total=0, cache_misses_total=2)
        self.load(1, 2, 1)
        self.check(cache_hits_total=3, cache_misses_total=2,
                   cache_evictions_total=0)
        self.assertEqual(self.by_source(), {'local': 0, 'server': 2})
        self.check(reads_locally=0, blob_cache_bytes=None)

    @unittest.skipUnless(objectmap.is_possible(), 'needs sealed memory')
    def test_what_is_read_from_the_file(self):
        """It is no hit, and no miss."""
        storage = self.open('local.fs', local_reads=True)
        tid = commit(storage, {1: b'x', 2: b'y'})
        self.connect_to(storage)
        until(lambda: self.client.stats()['reads_locally'], 'reads locally')
        after = p64(u64(tid) + 1)
        for number in 1, 2, 1:
            self.client.loadBefore(oid(number), after)
        self.check(reads_locally=1, local_reads_total=3, cache_hits_total=0,
                   cache_misses_total=0)
        # What only the server knows is not counted as read there.
        self.load(1)
        self.check(cache_misses_total=1, local_reads_total=3)
        timed = self.by_source()
        self.assertEqual(timed['server'], 1)
        # The first is timed, and about one in 16.
        self.assertIn(timed['local'], (1, 2))
        for _ in range(10 * EACH):
            self.client.loadBefore(oid(1), after)
        self.check(local_reads_total=3 + 10 * EACH)
        self.assertIn(self.by_source()['local'], range(10, 13))


class BlobCaches(ClientsTestCase):

    def setUp(self):
        super().setUp()
        self.connect_to(
            self.open(blob_dir=self.path('blobs')),
            blob_dir=self.path('cache'), blob_cache_size=1000)

    def test_bytes_and_evictions(self):
        self.check(blob_cache_bytes=0, blob_cache_evictions_total=0)
        database = ZODB.DB(self.client)
        for number, (size, total, evictions) in enumerate([
                (600, 600, 0), (300, 900, 0), (500, 800, 1), (900, 900, 3)]):
            with database.transaction() as connection:
                connection.root()[number] = ZODB.blob.Blob(b'x' * size)
            self.check(blob_cache_bytes=total,
                       blob_cache_evictions_total=evictions)
        database.close()
