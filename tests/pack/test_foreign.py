"""Packs by a packer of the user's own, beside commits.

I8 and "what is acknowledged is kept": such a packer copies up to the end of
the file, where a transaction may be whose final status is not written yet.
"""

import os
import threading
import time

from ZODB.FileStorage import fspack
from ZODB.POSException import POSKeyError
from ZODB.serialize import referencesf
from ZODB.utils import z64

from fsyncstorage.errors import OutcomeUnknown
from fsyncstorage.errors import WritingStopped
from fsyncstorage.pack.progress import Cancelled

from ..support import PATIENCE
from ..support import TestCase
from ..support import Thread
from ..support import begin
from ..support import commit
from ..support import oid
from ..support import vote

EIO = OSError(5, 'Input/output error')


class Foreign(TestCase):

    def setUp(self):
        super().setUp()
        self.disk = self.controlled_disk()
        #: The packer has begun, and waits.
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.addCleanup(self.go_on.set)

    def packer(self, storage, referencesf, stop, gc):
        """Stock's."""
        self.begun.set()
        assert self.go_on.wait(PATIENCE)
        packer = fspack.FileStoragePacker(storage, referencesf, stop, gc)
        try:
            end = packer.pack()
            return None if end is None else (end, packer.index)
        finally:
            packer.close()

    def filled(self, packer, **options):
        self.storage = storage = self.open(
            packer=packer, pack_gc=False, blob_dir=self.path('blobs'),
            **options)
        first = commit(storage, {1: b'old'})
        commit(storage, {1: b'new'}, {1: first})
        return storage

    def vote_blob(self):
        metadata = begin(self.storage)
        self.store_blob(self.storage, metadata, 2)
        self.storage.tpc_vote(metadata)
        return metadata

    def finish_held(self):
        """Finish it in a thread; its sync is held up."""
        metadata = self.vote_blob()
        self.disk.hold_again()
        thread = Thread(self.storage.tpc_finish, metadata)
        self.disk.wait_for_sync()
        return thread

    def pack(self):
        return Thread(self.storage.pack, time.time() + 1, referencesf)

    def check_it_is_kept(self, tid):
        path = self.storage.loadBlob(oid(2), tid)
        self.storage.close()
        again = self.open(blob_dir=self.path('blobs'))
        self.assertEqual(again.lastTransaction(), tid)
        self.assertEqual(again.load(oid(2)), (b'record', tid))
        self.assertEqual(again.loadBlob(oid(2), tid), path)
        with self.assertRaises(POSKeyError):
            again.loadSerial(oid(1), z64)

    def test_commits_wait_for_it(self):
        """And go to the new file then."""
        storage = self.filled(self.packer)
        before = storage.getSize()
        packing = self.pack()
        self.assertTrue(self.begun.wait(PATIENCE))
        metadata = vote(storage, {3: b'x'})
        finishing = Thread(storage.tpc_finish, metadata)
        self.go_on.set()
        packing.result()
        tid = finishing.result()
        self.assertLess(storage.getSize(), 2 * before)
        storage.close()
        again = self.open(blob_dir=self.path('blobs'))
        self.assertEqual(again.load(oid(3)), (b'x', tid))
        with self.assertRaises(POSKeyError):
            again.loadSerial(oid(1), z64)

    def check_beside_a_commit(self, **options):
        storage = self.filled(self.packer, **options)
        finishing = self.finish_held()
        packing = self.pack()
        self.go_on.set()
        self.assertFalse(self.begun.is_set())
        self.disk.release_syncs()
        tid = finishing.result()
        packing.result()
        self.assertFalse(storage._commit_lock.locked())
        self.check_it_is_kept(tid)

    def test_I8_a_status_that_is_written_late(self):
        """The packer begins after it."""
        self.check_beside_a_commit()

    def test_I8_under_two_sync(self):
        self.check_beside_a_commit(durability='two-sync')

    def test_I8_under_interval(self):
        self.check_beside_a_commit(
            durability='interval', sync_interval='1h')

    def test_I7_a_failed_sync(self):
        """The packer does not begin, and the lock is free again."""
        storage = self.filled(self.packer)
        finishing = self.finish_held()
        packing = self.pack()
        self.disk.fail_sync(EIO)
        with self.assertLogs('fsyncstorage', 'CRITICAL'):
            self.disk.release_syncs()
            with self.assertRaises(OutcomeUnknown):
                finishing.result()
        with self.assertRaises(WritingStopped):
            packing.result()
        self.assertFalse(self.begun.is_set())
        self.assertFalse(storage._commit_lock.locked())
        self.assertFalse(os.path.exists(self.path('Data.fs.old')))
        with self.assertLogs('fsyncstorage', 'ERROR'):
            storage.close()

    def test_one_that_fails_and_one_that_finds_nothing(self):

        def fail(*arguments):
            raise KeyError('it fails')

        storage = self.filled(fail)
        with self.assertRaises(KeyError):
            storage.pack(time.time(), referencesf)
        storage.packer = lambda *arguments: None
        storage.pack(time.time(), referencesf)
        commit(storage, {3: b'x'})

    def test_one_that_is_cancelled_meanwhile(self):
        """It goes on, and is given up then; that commits wait is said."""
        storage = self.filled(self.packer)
        file = os.stat(self.path())
        with self.assertLogs('fsyncstorage.pack', 'WARNING') as logs:
            packing = self.pack()
            self.assertTrue(self.begun.wait(PATIENCE))
        self.assertIn('commits wait until the packer', logs.output[0])
        storage.packs.cancel()
        self.go_on.set()
        with self.assertRaises(Cancelled):
            packing.result()
        self.assertTrue(os.path.samestat(file, os.stat(self.path())))
        commit(storage, {3: b'x'})
