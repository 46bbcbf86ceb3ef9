"""What tests of a pack in a process of its own have in common."""

import os
import sys
import time
import unittest
from unittest import mock

import ZODB
import ZODB.blob
from ZODB.serialize import referencesf

from fsyncstorage.pack import bulk
from fsyncstorage.pack import process
from fsyncstorage.pack import progress

from ..processes.started import StartedTestCase

PHASES = [progress.CHECK, progress.REFERENCES, progress.MARK, progress.COPY,
          progress.SWAP]

# They look into /proc, write to /dev/full, wait for any process.
on_linux = unittest.skipUnless(sys.platform == 'linux', 'not on Linux')


class ProcessTestCase(StartedTestCase):

    def setUp(self):
        super().setUp()
        #: The processes that were started.
        self.started = started = []

        class Process(process.Process):

            def __init__(self, *args):
                super().__init__(*args)
                started.append(self.pid)

        patch = mock.patch.object(bulk, 'Process', Process)
        patch.start()
        self.addCleanup(patch.stop)

    def fill(self, storage):
        """A pack frees some of it, and a blob."""
        db = ZODB.DB(storage)
        for number in range(20):
            with db.transaction() as connection:
                root = connection.root()
                root['text'] = 'x' * number * 100
                if storage.blob_dir:
                    root['blob'] = ZODB.blob.Blob(b'%d' % number)
        return db

    def packable(self, **options):
        storage = self.open(blob_dir=self.path('blobs'), **options)
        self.fill(storage)
        return storage

    def content(self, name='Data.fs'):
        with open(self.path(name), 'rb') as file:
            return file.read()

    def pack(self, storage, told=lambda phase: None):
        """`told(phase)` is called wherever the process reports."""
        tell = progress.Watch.tell

        def tell_us(watch, phase, done, total):
            told(phase)
            tell(watch, phase, done, total)

        with mock.patch.object(progress.Watch, 'tell', tell_us):
            storage.pack(time.time() + 1, referencesf)

    def check_nothing_happened(self, storage, before):
        """It packs as if there had been no pack before."""
        self.assertEqual(self.content(), before)
        self.check_nothing_is_left()
        self.assertIsNone(storage.pack_watch)
        self.assertFalse(storage.is_packing)
        self.assertIsNone(storage.restorable)
        self.pack(storage)
        self.assertLess(len(self.content()), len(before))

    def check_nothing_is_left(self):
        for name in 'Data.fs.pack', 'Data.fs.pack.index', 'blobs/.removed':
            self.assertFalse(os.path.exists(self.path(name)), name)

    def blobs(self):
        return [name for _, _, names in os.walk(self.path('blobs'))
                for name in names if name.endswith('.blob')]
