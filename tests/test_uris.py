"""Storages by the URIs of zodburi: fsync:// and fsync-zeo://."""

import contextlib
import os
import unittest

import ZODB
import zodburi

from fsyncstorage import FsyncStorage
from fsyncstorage.client.storage import FsyncClient

from .server.serving import Served
from .support import TestCase


class FileTests(TestCase):

    def open(self, uri):
        open_storage, options = zodburi.resolve_uri(uri)
        db = ZODB.DB(open_storage(), **options)
        self.addCleanup(db.close)
        return db

    def test_a_path(self):
        storage = self.open(f'fsync://{self.path()}').storage
        self.assertIsInstance(storage, FsyncStorage)
        self.assertEqual(storage.getName(), self.path())
        self.assertEqual(
            repr(storage), f'<FsyncStorage {self.path()!r} group-commit>')

    def test_keys_of_the_section(self):
        storage = self.open(
            f'fsync://{self.path()}?durability=interval&sync-interval=200ms'
            f'&blob_dir={self.path("blobs")}&pack-gc=off').storage
        self.assertEqual(storage.durability.policy.name, 'interval')
        self.assertEqual(storage.durability.sync_interval, 0.2)
        self.assertEqual(storage.blob_dir, self.path('blobs'))

    def test_options_of_the_database(self):
        db = self.open(f'fsync://{self.path()}?connection_cache_size=1234'
                       f'&database-name=main')
        self.assertEqual(db.getCacheSize(), 1234)
        self.assertEqual(db.database_name, 'main')

    def test_a_path_with_signs(self):
        directory = self.path('a b$(c)?')
        os.mkdir(directory)
        storage = self.open(
            f'fsync://{self.path("a%20b$(c)%3f")}/Data.fs').storage
        self.assertEqual(storage.getName(), os.path.join(directory, 'Data.fs'))

    def test_nothing_is_made_before_it_is_opened(self):
        zodburi.resolve_uri(f'fsync://{self.path()}')
        self.assertEqual(os.listdir(self.directory), [])

    def test_errors_name_the_uri(self):
        for end, said in (
                ('?durabilty=none', "'durability'"),
                ('?durability=fsync', 'none, interval, group-commit'),
                ('?quota=much', 'much'),
                ('?pack-gc=on&create=1', ": create: not a valid boolean"),
                ('?path=/tmp/x', 'path'),
                ('?blob-dir=/x%0Acreate%20true', 'no key with a value'),
                ('?<metrics>=', 'no key with a value'),
                ('?%define%20x=y', 'no key with a value'),
                ('?durability', 'durability')):
            uri = f'fsync://{self.path()}{end}'
            with self.subTest(end), self.assertRaises(ValueError) as caught:
                zodburi.resolve_uri(uri)
            self.assertIn(said, str(caught.exception))
        with self.assertRaisesRegex(ValueError, 'no path'):
            zodburi.resolve_uri('fsync://?create=on')


class ClientTests(Served):

    def assert_client(self, uri):
        open_storage, options = zodburi.resolve_uri(uri)
        with contextlib.closing(ZODB.DB(open_storage(), **options)) as db:
            self.assertIsInstance(db.storage, FsyncClient)
            self.assertRegex(
                repr(db.storage), r"<FsyncClient \[.*\] storage '1'>")
            with db.transaction() as connection:
                connection.root()['here'] = True

    def test_a_port(self):
        self.assert_client('fsync-zeo://%s:%d?wait-timeout=20' %
                           self.serve().addr)

    def test_a_socket(self):
        path = self.path('zeo.sock')
        self.serve(address=path)
        self.assert_client(f'fsync-zeo://{path}?cache_size=1MB')

    def test_several_servers(self):
        """The first one is not there."""
        self.assert_client('fsync-zeo://127.0.0.1:1?server=%s:%d' %
                           self.serve().addr)

    def test_no_address(self):
        for address in 'zeo.example.com', '', ':8100x':
            with self.subTest(address), self.assertRaisesRegex(
                    ValueError, 'no address of a server'):
                zodburi.resolve_uri(f'fsync-zeo://{address}')


if __name__ == '__main__':
    unittest.main()
