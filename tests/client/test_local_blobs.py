"""Blobs of a server on the same machine, without a copy and a cache."""

import os
import shutil
import unittest
from unittest import mock

from ZODB.blob import Blob
from ZODB.blob import BlobFile
from ZODB.POSException import POSKeyError
from ZODB.utils import z64

from fsyncstorage.datafile import Descriptor
from fsyncstorage.format import objectmap as layout
from fsyncstorage.local.blobs import LocalBlobs
from fsyncstorage.local.blobs import NotHere

from ..support import TestCase
from ..support import begin
from ..support import oid
from .test_local import LocalTestCase

CONTENT = b'the content of a blob'


class LocalBlobsTestCase(LocalTestCase):

    def open(self, name='Data.fs', **options):
        return super().open(
            name, **{'blob_dir': self.path('blobs'), **options})

    def setUp(self):
        super().setUp()
        self.serial = self.commit_blob()
        self.file = self.storage.loadBlob(oid(7), self.serial)

    def commit_blob(self):
        with open(self.path('given'), 'wb') as file:
            file.write(CONTENT)
        transaction = begin(self.storage)
        self.storage.storeBlob(oid(7), z64, b'record', self.path('given'), '',
                               transaction)
        self.storage.tpc_vote(transaction)
        return self.storage.tpc_finish(transaction)

    def connect(self, **options):
        return super().connect(
            blob_dir=self.path('cache'), **options)

    def cached(self, client):
        return client.leaseBlob(oid(7), self.serial)

    def check_local(self, client, path=None):
        path = path or self.file
        self.assertEqual(client.loadBlob(oid(7), self.serial), path)
        for file in (client.openCommittedBlobFile(oid(7), self.serial),
                     client.openCommittedBlobFile(
                         oid(7), self.serial, Blob()),
                     client.openArriving(oid(7), self.serial)):
            with file:
                self.assertEqual(file.name, path)
                self.assertEqual(file.read(), CONTENT)
        self.assertIsNone(self.cached(client))

    def check_cached(self, client):
        path = client.loadBlob(oid(7), self.serial)
        self.assertEqual(path, self.cached(client))
        self.assertTrue(path.startswith(self.path('cache')))
        with open(path, 'rb') as file:
            self.assertEqual(file.read(), CONTENT)


class Blobs(LocalBlobsTestCase):

    def test_where_the_server_keeps_it(self):
        client = self.connect()
        self.check_local(client)
        with client.openCommittedBlobFile(
                oid(7), self.serial, Blob()) as file:
            self.assertIsInstance(file, BlobFile)

    def test_under_another_name(self):
        os.symlink(self.path('blobs'), self.path('mounted'))
        client = self.connect(local_blob_dir=self.path('mounted'))
        self.check_local(
            client, self.file.replace(
                self.path('blobs'), self.path('mounted')))

    def test_another_directory_of_that_name(self):
        shutil.copytree(self.path('blobs'), self.path('another'))
        client = self.connect(local_blob_dir=self.path('another'))
        self.check_cached(client)

    def test_a_directory_that_is_replaced(self):
        """As by a mount."""
        client = self.connect()
        os.rename(self.path('blobs'), self.path('before'))
        shutil.copytree(self.path('before'), self.path('blobs'))
        self.check_cached(client)

    def test_no_such_blob(self):
        client = self.connect()
        with self.assertRaises(POSKeyError):
            client.loadBlob(oid(7), self.tid)

    def test_one_that_cannot_be_read(self):
        """It is no file, or another user's."""
        client = self.connect()
        for trouble in ({'access': lambda *args: False},
                        {'stat': mock.Mock(side_effect=PermissionError)}):
            with mock.patch.multiple(os, **trouble):
                self.assertIsNone(
                    client._local.blob_path(oid(7), self.serial))
        os.mkdir(self.storage.fshelper.getBlobFilename(oid(7), self.tid))
        self.assertIsNone(client._local.blob_path(oid(7), self.tid))

    def test_one_that_a_pack_removes_before_it_is_opened(self):
        client = self.connect()
        gone = self.path('gone')
        with mock.patch.object(
                client._local, 'blob_path', lambda *args: gone):
            with client.openCommittedBlobFile(
                    oid(7), self.serial) as file:
                self.assertEqual(file.read(), CONTENT)

    def test_a_marker_that_others_may_write_to_is_not_handed_out(self):
        os.chmod(self.path('blobs/.layout'), 0o660)
        made = self.server.services['1'].handout
        made._others_may_connect = True
        client = self.connect()
        self.check_cached(client)


@unittest.skipUnless(layout.is_possible(), 'needs sealed memory')
class HandedOver(TestCase):
    """A server may say anything."""

    def setUp(self):
        super().setUp()
        os.mkdir(self.path('blobs'))
        self.marker = self.path('blobs/.layout')
        with open(self.marker, 'w') as file:
            file.write('bushy')

    def blobs(self, directory, path=None):
        return LocalBlobs(directory, Descriptor(
            os.open(path or self.marker, os.O_RDONLY)))

    def test_what_is_right(self):
        self.assertIsNone(
            self.blobs(self.path('blobs')).path(oid(1), oid(2)))

    def test_no_directory(self):
        for directory in (None, b'/', 'blobs', self.path('blobs') + '\0',
                          self.path('nowhere'), '/\ud800', 7):
            with self.subTest(directory), self.assertRaises(NotHere):
                self.blobs(directory)

    def test_no_marker(self):
        with self.assertRaises(NotHere):
            self.blobs(self.path('blobs'), self.path('blobs'))

    def test_a_link(self):
        """It could lead anywhere later."""
        os.rename(self.marker, self.path('marker'))
        os.symlink(self.path('marker'), self.marker)
        with self.assertRaises(NotHere):
            self.blobs(self.path('blobs'), self.path('marker'))

    def test_a_layout(self):
        for said in b'', b'x' * 100, b'\xff\xff':
            with open(self.marker, 'wb') as file:
                file.write(said)
            with self.subTest(said), self.assertRaises(NotHere):
                self.blobs(self.path('blobs'))
