"""Packs by a packer of the user's own, beside commits.

I8 and "what is acknowledged is kept": such a packer copies up to the end of
the file, where a transaction may be whose final status is not written yet.
"""

import os
import threading
import time

from ZODB.FileStorage import fspack
from ZODB.FileStorage.FileStorage import FileStorageError
from ZODB.POSException import POSKeyError
from ZODB.serialize import referencesf
from ZODB.utils import z64

from fsyncstorage import AsyncFinish
from fsyncstorage.errors import OutcomeUnknown
from fsyncstorage.errors import WritingStopped

from ..support import PATIENCE
from ..support import TestCase
from ..support import Thread
from ..support import begin
from ..support import commit
from ..support import oid
from ..support import until
from ..support import vote

EIO = OSError(5, 'Input/output error')


def stock(storage, stop, gc, has_begun=lambda: None):
    packer = fspack.FileStoragePacker(storage, referencesf, stop, gc)
    try:
        has_begun()
        end = packer.pack()
        return None if end is None else (end, packer.index)
    finally:
        packer.close()


class Foreign(TestCase):

    def setUp(self):
        super().setUp()
        self.disk = self.controlled_disk()
        #: What the packer raised.
        self.error = None
        #: The packer has the old end of the file, and waits.
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.addCleanup(self.go_on.set)

    def packer(self, storage, referencesf, stop, gc):

        def has_begun():
            self.begun.set()
            assert self.go_on.wait(PATIENCE)

        try:
            return stock(storage, stop, gc, has_begun)
        except Exception as error:
            self.error = error
            raise

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

    def status_at_the_end_of(self, name):
        """Of the last transaction in the file."""
        with open(self.path(name), 'rb') as file:
            file.seek(-8, os.SEEK_END)
            length = int.from_bytes(file.read(8), 'big')
            file.seek(-8 - length + 16, os.SEEK_END)
            return file.read(1)

    def check_it_is_kept(self, tid):
        path = self.storage.loadBlob(oid(2), tid)
        self.storage.close()
        again = self.open(blob_dir=self.path('blobs'))
        self.assertEqual(again.lastTransaction(), tid)
        self.assertEqual(again.load(oid(2)), (b'record', tid))
        self.assertEqual(again.loadBlob(oid(2), tid), path)
        with self.assertRaises(POSKeyError):
            again.loadSerial(oid(1), z64)

    def test_one_that_has_its_status(self):
        """The packer does not wait for its sync, the swap does."""
        copied = threading.Event()

        def packer(*arguments):
            result = self.packer(*arguments)
            copied.set()
            return result

        storage = self.filled(packer)
        packing = self.pack()
        self.assertTrue(self.begun.wait(PATIENCE))
        metadata = vote(storage, {3: b'x'})
        self.disk.hold_again()
        finishing = Thread(storage.tpc_finish, metadata)
        self.disk.wait_for_sync()
        self.go_on.set()
        self.assertTrue(copied.wait(PATIENCE))
        self.assertTrue(packing.is_alive())
        self.assertTrue(finishing.is_alive())
        self.disk.release_syncs()
        tid = finishing.result()
        packing.result()
        self.assertEqual(storage.load(oid(3)), (b'x', tid))
        storage.close()
        self.assertEqual(
            self.open(blob_dir=self.path('blobs')).load(oid(3)), (b'x', tid))

    def test_one_that_is_not_published(self):
        """The swap waits for it: the pipeline cannot go over to another file
        with it."""
        storage = self.filled(self.packer)
        packing = self.pack()
        self.assertTrue(self.begun.wait(PATIENCE))
        storage.own_publishing(lambda: None)
        tid = storage.tpc_finish(
            vote(storage, {3: b'x'}), AsyncFinish(lambda tid, error: None))
        commit, = storage._sequencer.pipeline.queue
        until(lambda: storage.stats()['last_durable'] == tid, 'durable')
        self.go_on.set()
        until(lambda: commit.waiters, 'the pack waits')
        storage.publish()
        packing.result()
        self.assertEqual(storage.load(oid(3)), (b'x', tid))

    def check_beside_a_commit(self, packer, **options):
        storage = self.filled(packer, **options)
        size = storage.getSize()
        packing = self.pack()
        self.assertTrue(self.begun.wait(PATIENCE))
        finishing = self.finish_held()
        self.assertEqual(self.status_at_the_end_of('Data.fs'), b'c')
        self.go_on.set()
        until(storage._commit_lock.locked, 'the packer has the lock')
        self.assertTrue(packing.is_alive())
        self.assertTrue(finishing.is_alive())
        self.disk.release_syncs()
        tid = finishing.result()
        packing.result()
        self.assertLess(os.path.getsize(self.path('Data.fs')), size * 2)
        self.assertFalse(storage._commit_lock.locked())
        self.assertEqual(self.status_at_the_end_of('Data.fs'), b' ')
        self.check_it_is_kept(tid)

    def test_I8_a_status_that_is_written_late(self):
        """The packer waits for it."""
        self.check_beside_a_commit(self.packer)

    def test_I8_under_interval(self):
        self.check_beside_a_commit(
            self.packer, durability='interval', sync_interval='1h')

    def test_I7_a_failed_sync(self):
        """The packer does not get the lock, and it is free again."""
        storage = self.filled(self.packer)
        packing = self.pack()
        self.assertTrue(self.begun.wait(PATIENCE))
        finishing = self.finish_held()
        self.go_on.set()
        until(storage._commit_lock.locked, 'the packer has the lock')
        self.disk.fail_sync(EIO)
        with self.assertLogs('fsyncstorage', 'CRITICAL'):
            self.disk.release_syncs()
            with self.assertRaises(OutcomeUnknown):
                finishing.result()
        with self.assertRaises(WritingStopped) as caught:
            packing.result()
        self.assertIs(self.error, caught.exception)  # out of its `acquire`
        self.assertFalse(storage._commit_lock.locked())
        self.assertFalse(os.path.exists(self.path('Data.fs.old')))
        with self.assertLogs('fsyncstorage', 'ERROR'):
            storage.close()

    def test_another_lock(self):
        """One that takes the lock of the storage itself, which it knows from
        elsewhere: the pack is given up, and nothing is renamed."""

        def packer(storage, referencesf, stop, gc):
            return self.packer(self.storage, referencesf, stop, gc)

        storage = self.filled(packer)
        packing = self.pack()
        self.assertTrue(self.begun.wait(PATIENCE))
        finishing = self.finish_held()
        file = os.stat(self.path())
        self.go_on.set()
        with self.assertRaisesRegex(
                FileStorageError, 'on their way to the disk.*given up'):
            packing.result()
        self.assertTrue(os.path.samestat(file, os.stat(self.path())))
        for name in 'Data.fs.pack', 'Data.fs.old':
            self.assertFalse(os.path.exists(self.path(name)))
        self.assertFalse(storage._commit_lock.locked())
        self.disk.release_syncs()
        self.check_it_is_kept(finishing.result())
