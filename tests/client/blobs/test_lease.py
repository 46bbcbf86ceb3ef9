"""Leased blobs: they leave the cache when nothing else is left."""

import os
import time
from unittest import mock

from fsyncstorage.client.blobs import directory
from fsyncstorage.client.blobs.directory import LONGEST_LEASE
from fsyncstorage.client.stock import StockClient
from fsyncstorage.client.storage import FsyncClient

from ...support import oid
from ..connected import ConnectedTestCase
from .caches import SERIAL
from .caches import BlobCacheTest


class LeaseTest(BlobCacheTest):
    """There is room for three blobs."""

    def setUp(self):
        super().setUp()
        for number in range(1, 8):
            self.server.put(number, 3000)

    def lease(self, cache, number, seconds=60):
        cache.load(oid(number), SERIAL)
        path = cache.lease(oid(number), SERIAL, seconds)
        with open(path, 'rb') as file:
            self.assertEqual(file.read(), self.server.blobs[number])


class Leases(LeaseTest):

    def test_what_is_not_leased_goes_first(self):
        cache = self.cache()
        self.lease(cache, 1)
        for number in 2, 3, 4, 5:
            self.load(cache, number)
        self.assertEqual(self.check(), self.names(1, 4, 5))

    def test_a_file_of_another_user(self):
        """It can be read; when it was used, nobody learns."""
        cache = self.cache()
        self.load(cache, 1)
        with mock.patch.object(os, 'utime', side_effect=PermissionError):
            self.lease(cache, 1)
            self.load(cache, 1)

    def test_the_limit_comes_first(self):
        cache = self.cache()
        for number, seconds in (1, 90), (2, 60), (3, 120):
            self.lease(cache, number, seconds)
        self.load(cache, 4)
        self.assertEqual(self.check(), self.names(1, 3, 4))
        self.load(cache, 5)
        self.assertEqual(self.check(), self.names(1, 3, 5))

    def test_it_ends(self):
        cache = self.cache()
        before = mock.Mock(time_ns=lambda: time.time_ns() - 61 * 10**9)
        with mock.patch.object(directory, 'time', before):
            self.lease(cache, 1)
        for number in 2, 3, 4:
            self.load(cache, number)
        self.assertEqual(self.check(), self.names(2, 3, 4))

    def test_one_that_is_larger_than_the_cache(self):
        """It is nowhere where another program could open it."""
        self.server.put(8, 20000)
        cache = self.cache()
        cache.load(oid(8), SERIAL)
        self.assertIsNone(cache.lease(oid(8), SERIAL, 60))


class WrongClocks(LeaseTest):
    """What was used in years to come is as good as any other blob."""

    def check_last_use(self, path):
        self.assertLessEqual(
            os.stat(path).st_atime_ns, time.time_ns() + LONGEST_LEASE)

    def test_a_day_is_the_longest_lease(self):
        cache = self.cache()
        self.lease(cache, 1, 10**9)
        self.check_last_use(cache.load(oid(1), SERIAL))
        for number in 2, 3, 4:
            self.load(cache, number)
        self.assertEqual(self.check(), self.names(1, 3, 4))


    def test_a_use_in_years_to_come(self):
        cache = self.cache()
        for number in 1, 2, 3:
            self.load(cache, number)
        for number in 1, 2:
            os.utime(cache.load(oid(number), SERIAL), (1 << 33, 1))
        self.check_last_use(cache.load(oid(1), SERIAL))
        self.load(cache, 4)
        self.assertEqual(self.check(), self.names(1, 3, 4))


class Client(ConnectedTestCase):

    def setUp(self):
        super().setUp()
        self.serial = self.store_blob(1, b'content')

    def check_path(self, path):
        with open(path, 'rb') as file:
            self.assertEqual(file.read(), b'content')

    def test_a_minute_or_more(self):
        client = self.connect(blob_dir=self.path('cache'))
        client.loadBlob(oid(1), self.serial)
        for options, seconds in ((), 60), ((100,), 100):
            before = time.time()
            path = client.leaseBlob(oid(1), self.serial, *options)
            self.check_path(path)
            self.assertGreaterEqual(os.stat(path).st_atime, before + seconds)

    def test_a_shared_directory(self):
        clients = [
            self.connect(make=make, blob_dir=self.path('blobs'),
                         shared_blob_dir=True)
            for make in (FsyncClient, StockClient)]
        for client in clients:
            path = client.leaseBlob(oid(1), self.serial)
            self.check_path(path)
            self.assertTrue(path.startswith(self.path('blobs')))
        os.remove(path)
        for client in clients:
            self.assertIsNone(client.leaseBlob(oid(1), self.serial))
