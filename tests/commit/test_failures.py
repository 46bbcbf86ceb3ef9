"""I7: disks that fail.  A failed sync is final, a failed write is clean."""

import errno
import os
import threading
from unittest import mock

from ZODB.FileStorage import FileStorage
from ZODB.POSException import POSKeyError

from fsyncstorage import AsyncFinish
from fsyncstorage import datafile
from fsyncstorage.commit import sequencer
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

EIO = OSError(errno.EIO, 'Input/output error')
ENOSPC = OSError(errno.ENOSPC, 'No space left on device')
PROMISING = 'group-commit', 'per-commit', 'two-sync'


class HangingSync(TestCase):
    """The log says so before it ends, whoever hangs in it; and only once."""

    def check(self, finish, waiting=1, **options):
        self.patch(sequencer, HANGING_SYNC=0.01, SLOW_SYNC=PATIENCE)
        disk = self.controlled_disk()
        storage = self.open(**options)
        self.assertIsNone(storage.stats()['syncing_since'])
        disk.hold_syncs()
        with self.assertLogs('fsyncstorage', 'WARNING') as logs:
            hanging = Thread(finish, storage, vote(storage, {1: b'x'}))
            disk.wait_for_sync()
            until(lambda: logs.output, 'a line in the log')
            self.assertIsNotNone(storage.stats()['syncing_since'])
            for _ in range(3):
                storage._sequencer.look_at_sync()
            disk.release_syncs()
            hanging.result()
        self.assertEqual(len(logs.output), 1)
        self.assertRegex(logs.output[0], (
            'a sync has begun at .*, and has not ended .*: the disk does not'
            f' answer, and {waiting} commits wait for it'))
        until(lambda: storage.stats()['syncing_since'] is None, 'its end')

    def test_of_a_thread_that_commits(self):
        self.check(lambda storage, voted: storage.tpc_finish(voted))

    def test_of_the_flusher(self):
        self.check(self.finish_asynchronously)

    def finish_asynchronously(self, storage, voted):
        told = threading.Event()
        storage.tpc_finish(voted, AsyncFinish(lambda tid, error: told.set()))
        self.assertTrue(told.wait(PATIENCE))

    def test_of_the_thread_that_writes_index_files(self):
        self.check(self.finish_and_write_an_index, waiting=0,
                   durability='none')

    def finish_and_write_an_index(self, storage, voted):
        storage.journal.checkpoints.due = 0
        storage.tpc_finish(voted)

    def test_of_both_threads_of_the_storage(self):
        """A thread that waits for its own commit says so."""
        self.patch(sequencer, HANGING_SYNC=0.01, SLOW_SYNC=PATIENCE)
        disk = self.controlled_disk()
        storage = self.open()
        commit(storage, {1: b'x'})
        disk.hold_syncs()
        with mock.patch.object(
                storage._sequencer.flusher, '_seconds', lambda: None), \
                mock.patch.object(
                storage.journal.checkpoints._thread, '_seconds',
                lambda: None), \
                self.assertLogs('fsyncstorage', 'WARNING') as logs:
            first = Thread(storage.tpc_finish, vote(storage, {2: b'x'}))
            disk.wait_for_sync()
            second = Thread(storage.tpc_finish, vote(storage, {3: b'x'}))
            until(lambda: logs.output, 'a line in the log')
            disk.release_syncs()
            first.result(), second.result()
        self.assertEqual(len(logs.output), 1)


class FailedSync(TestCase):

    def broken(self, policy):
        """A storage with object 1, whose next sync fails."""
        self.disk = self.controlled_disk()
        storage = self.open(policy, durability=policy, sync_interval='1h')
        self.first = commit(storage, {1: b'first'})
        self.disk.fail_sync(EIO)
        return storage

    def test_the_commit_fails_and_writing_stops(self):
        """The sync is not tried again, and what was published is still read.
        """
        for policy in PROMISING:
            with self.subTest(policy):
                storage = self.broken(policy)
                with self.assertLogs('fsyncstorage', 'CRITICAL'):
                    with self.assertRaisesRegex(OutcomeUnknown, 'reopened|'
                                                'opened again'):
                        commit(storage, {1: b'second'}, {1: self.first})
                with self.assertRaisesRegex(WritingStopped, 'check the disk'):
                    begin(storage)
                self.assertTrue(storage.stats()['failed'])
                self.assertEqual(storage.load(oid(1)), (b'first', self.first))
                self.assertEqual(storage.lastTransaction(), self.first)
                self.assertEqual(len(list(storage.iterator())), 1)
                syncs = self.disk.syncs
                with self.assertLogs('fsyncstorage', 'ERROR'):
                    storage.close()
                self.assertEqual(self.disk.syncs, syncs)

    def test_everyone_who_waits_fails_with_it(self):
        storage = self.broken('group-commit')
        self.disk.hold_syncs()
        threads = []
        for number in range(2, 8):
            transaction = vote(storage, {number: b'x'})
            threads.append(Thread(storage.tpc_finish, transaction))
            until(lambda: storage.stats()['commits'] == number, 'appended')
        self.disk.release_syncs()
        for thread in threads:
            with self.assertRaises(OutcomeUnknown):
                thread.result()
        self.assertEqual(storage.stats()['waiting'], 0)

    def test_what_was_durable_before_is_published(self):
        storage = self.broken('per-commit')
        self.disk._errors.clear()
        self.disk.hold_syncs()
        durable = Thread(storage.tpc_finish, vote(storage, {2: b'x'}))
        self.disk.wait_for_sync()
        lost = Thread(storage.tpc_finish, vote(storage, {3: b'x'}))
        until(lambda: storage.stats()['commits'] == 3, 'appended')
        self.disk.let_one_sync_end()
        tid = durable.result()
        self.disk.fail_sync(EIO)
        self.disk.release_syncs()
        with self.assertRaises(OutcomeUnknown):
            lost.result()
        self.assertEqual(storage.lastTransaction(), tid)

    def test_a_voted_transaction_is_cut_off(self):
        storage = self.broken('group-commit')
        self.disk.hold_syncs()
        doomed = Thread(storage.tpc_finish, vote(storage, {2: b'x'}))
        self.disk.wait_for_sync()
        transaction = vote(storage, {3: b'y'})
        self.disk.release_syncs()
        with self.assertRaises(OutcomeUnknown):
            doomed.result()
        with self.assertRaises(WritingStopped):
            storage.tpc_finish(transaction)
        self.assertEqual(os.path.getsize(storage._file_name), storage._pos)

    def test_without_a_promise_only_the_durable_is_read(self):
        storage = self.broken('interval')
        self.disk._errors.clear()
        storage._sequencer.sync_to(storage._pos)
        second = commit(storage, {1: b'second'}, {1: self.first})
        self.assertEqual(storage.lastTransaction(), second)
        self.disk.fail_sync(EIO)
        with self.assertRaises(WritingStopped):
            storage._sequencer.sync_to(storage._pos)
        self.assertEqual(storage.lastTransaction(), self.first)
        self.assertEqual(storage.load(oid(1)), (b'first', self.first))

    def test_pack_is_refused_afterwards(self):
        storage = self.broken('group-commit')
        with self.assertRaises(OutcomeUnknown):
            commit(storage, {2: b'x'})
        with self.assertRaises(WritingStopped):
            storage.pack(2e9, lambda data: [])

    def test_a_directory_that_cannot_be_synced_is_a_warning_once(self):
        disk = datafile.Disk()
        original, calls = os.fsync, []

        def fsync(fd):
            calls.append(fd)
            raise OSError(errno.EINVAL, 'Invalid argument')

        os.fsync = fsync
        try:
            with self.assertLogs('fsyncstorage', 'WARNING') as logs:
                disk.sync_directory(self.directory)
                disk.sync_directory(self.directory)
        finally:
            os.fsync = original
        self.assertEqual(len(calls), 2)
        self.assertEqual(len(logs.output), 1)


class FailedWrite(TestCase):

    def failing(self, at):
        """A storage with object 1, whose n-th write from now on fails."""
        disk = self.controlled_disk()
        storage = self.open()
        self.first = commit(storage, {1: b'first'})
        countdown = [at]

        def before_write(data, position):
            countdown[0] -= 1
            if countdown[0] == 0:
                os.pwrite(storage._file.fileno(), data[:len(data) // 2],
                          position)
                raise ENOSPC

        disk.before_write = before_write
        return storage

    def check_clean(self, storage):
        self.assertEqual(os.path.getsize(storage._file_name),
                         storage.getSize())
        second = commit(storage, {1: b'second'}, {1: self.first})
        storage.close()
        stock = FileStorage(storage._file_name)
        self.addCleanup(stock.close)
        self.assertEqual(stock.load(oid(1)), (b'second', second))
        with self.assertRaises(POSKeyError):
            stock.load(oid(2))

    def test_in_the_vote_of_one_that_is_alone(self):
        storage = self.failing(at=1)
        storage.journal.reserve.is_real = False
        transaction = begin(storage)
        storage.store(oid(2), b'\0' * 8, b'x' * 100, '', transaction)
        with self.assertRaisesRegex(OSError, 'No space left'):
            storage.tpc_vote(transaction)
        storage.tpc_abort(transaction)
        self.check_clean(storage)

    def test_in_the_finish(self):
        storage = self.failing(at=1)
        transaction = vote(storage, {2: b'x' * 100})
        with self.assertRaisesRegex(OSError, 'No space left'):
            storage.tpc_finish(transaction)
        storage.tpc_abort(transaction)  # harmless
        self.check_clean(storage)

    def test_a_file_that_cannot_be_cut_back_stops_writing(self):
        storage = self.failing(at=1)

        def truncate(fd, size):
            raise EIO

        datafile.disk.truncate = truncate
        transaction = vote(storage, {2: b'x'})
        with self.assertLogs('fsyncstorage', 'CRITICAL'):
            with self.assertRaisesRegex(OutcomeUnknown, 'No space left'):
                storage.tpc_finish(transaction)
        storage.tpc_abort(transaction)
        with self.assertRaisesRegex(WritingStopped, 'cut back'):
            begin(storage)
        self.assertEqual(storage.load(oid(1))[0], b'first')
