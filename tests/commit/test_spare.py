"""I7: what fails before any sync was tried is no failed sync.

No descriptor left, or no memory to open a file: a blob commit is kept or is
an ordinary failure, and the next commit works.
"""

import errno
import itertools
import logging
import os
import resource
import subprocess
import sys
import threading
from unittest import mock

from fsyncstorage import datafile
from fsyncstorage.commit import policies
from fsyncstorage.commit import spare

from ..support import TestCase
from ..support import Thread
from ..support import begin
from ..support import commit
from ..support import oid
from ..support import under_way

# As many blobs as have to be committed with a few descriptors left.
BLOBS = 100

#: Commits blobs with so many descriptors left, none to spare for anything
#: but what a store needs by itself; then one more object.
FEW_DESCRIPTORS = '''
import os, resource, sys
from ZODB.Connection import TransactionMetaData
from ZODB.utils import p64, z64
from fsyncstorage import FsyncStorage

home, policy, number = sys.argv[1], sys.argv[2], int(sys.argv[3])
storage = FsyncStorage(
    os.path.join(home, 'Data.fs'), durability=policy,
    blob_dir=os.path.join(home, 'blobs'))
transaction = TransactionMetaData()
storage.tpc_begin(transaction)
for n in range(1, number + 1):
    path = os.path.join(home, 'upload')
    with open(path, 'wb') as file:
        file.write(b'content')
    storage.storeBlob(p64(n), z64, b'record', path, '', transaction)
storage.tpc_vote(transaction)
taken = []
resource.setrlimit(resource.RLIMIT_NOFILE, (
    100, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
try:
    while True:
        taken.append(os.open(home, os.O_RDONLY))
except OSError:
    pass
print('kept', storage.tpc_finish(transaction) == storage.lastTransaction())
for fd in taken:
    os.close(fd)
transaction = TransactionMetaData()
storage.tpc_begin(transaction)
storage.store(p64(999999), z64, b'next', '', transaction)
storage.tpc_vote(transaction)
storage.tpc_finish(transaction)
storage.close()
print('next', storage.may_have_lost)
'''


class NoDescriptorDisk(datafile.Disk):
    """A disk where some openings find no descriptor."""

    def __init__(self, error=errno.EMFILE):
        self.error = error
        self.times = 0      # so many openings fail from now on
        self.failed = 0
        #: Called when an opening fails.
        self.on_failure = lambda: None

    def open(self, path, flags, mode=0o666):
        if self.times:
            self.times -= 1
            self.failed += 1
            self.on_failure()
            raise OSError(self.error, os.strerror(self.error), path)
        return super().open(path, flags, mode)


class NoDescriptors(TestCase):

    def setUp(self):
        super().setUp()
        self.disk = NoDescriptorDisk()
        for owner, name, value in (
            (datafile, 'disk', self.disk), (spare, 'PAUSE', 0.001),
        ):
            patch = mock.patch.object(owner, name, value)
            patch.start()
            self.addCleanup(patch.stop)

    def store(self, storage, number, content=b'content'):
        transaction = begin(storage)
        upload = self.path('upload')
        with open(upload, 'wb') as file:
            file.write(content)
        try:
            storage.storeBlob(
                oid(number), b'\0' * 8, b'blob', upload, '', transaction)
            storage.tpc_vote(transaction)
        except BaseException:
            storage.tpc_abort(transaction)
            raise
        return transaction

    def opened(self, name):
        policy = name if name in policies.POLICIES else 'group-commit'
        return self.open(
            name, durability=policy, blob_dir=self.path(name + '-blobs'),
            sync_interval='1h')

    def check(self, storage, *tids):
        """All is there, and it goes on."""
        tid = commit(storage, {1000: b'next'})
        self.assertEqual(storage.lastTransaction(), tid)
        name = os.path.basename(storage._file_name)
        storage.close()
        again = self.opened(name)
        self.assertEqual(
            [transaction.tid for transaction in again.iterator()],
            [*tids, tid])

    def test_once_at_each_opening(self):
        for error in spare.PASSING:
            storage = self.opened(str(error))
            failed, tids = True, []
            while failed:
                transaction = self.store(storage, len(tids) * 256)
                failed = self.fail_the_opening(error, len(tids))
                tids.append(storage.tpc_finish(transaction))
                del self.disk.open
            self.assertGreater(len(tids), 2)
            self.check(storage, *tids)

    def fail_the_opening(self, error, at):
        """The one of that number; what is returned tells if it was met."""
        count, failed = itertools.count(), []

        def opening(path, flags):
            if next(count) == at:
                failed.append(path)
                raise OSError(error, os.strerror(error), path)
            return datafile.Disk.open(self.disk, path, flags)

        self.disk.open = opening
        return failed

    def test_for_long(self):
        """Its committer waits, readers and others do not."""
        for policy in policies.POLICIES:
            with self.subTest(policy):
                storage = self.opened(policy)
                first = commit(storage, {2: b'first'})
                transaction = self.store(storage, 1)
                waiting = threading.Event()
                self.disk.times = 10 ** 9
                self.disk.on_failure = waiting.set
                finish = Thread(storage.tpc_finish, transaction)
                if policy == 'none':
                    tid = finish.result()
                    finish = Thread(storage._checkpoints.write)
                self.assertTrue(waiting.wait(30))
                self.assertEqual(storage.load(oid(2)), (b'first', first))
                storage.tpc_abort(begin(storage))
                self.assertIsNone(storage.stats()['writing_stopped'])
                self.disk.times = 0
                if policy == 'none':
                    finish.result()
                else:
                    tid = finish.result()
                self.check(storage, first, tid)

    def test_it_is_said_once_a_minute(self):
        storage = self.opened('group-commit')
        transaction = self.store(storage, 1)
        self.disk.times = 20
        with self.assertLogs(spare.logger, logging.ERROR) as logs:
            storage.tpc_finish(transaction)
        self.assertEqual(len(logs.output), 1)
        self.assertIn('commits wait', logs.output[0])

    def test_an_interrupt_ends_the_wait(self):
        storage = self.opened('group-commit')
        transaction = self.store(storage, 1)
        self.disk.times = 10 ** 9
        interrupts = [KeyboardInterrupt]

        def interrupt():
            if interrupts:
                raise interrupts.pop()

        self.disk.on_failure = interrupt
        with self.assertRaises(KeyboardInterrupt):
            storage.tpc_finish(transaction)
        self.disk.times = 0
        self.check(storage, storage.stats()['last_appended'])

    def test_a_store_fails_alone(self):
        """What is opened before the append is no reason to wait."""
        storage = self.opened('group-commit')
        self.disk.times = 1
        with self.assertRaises(OSError):
            self.store(storage, 1)
        self.assertEqual(self.disk.failed, 1)
        self.assertEqual(self.files(storage), [])
        self.check(storage)

    def test_what_cannot_be_opened_at_all_fails_in_its_store(self):
        storage = self.opened('group-commit')

        def refuse(path, flags):
            if 'blobs/tmp/upload-' in path:
                raise PermissionError(errno.EACCES, 'as if', path)
            return datafile.Disk.open(self.disk, path, flags)

        self.disk.open = refuse
        with self.assertRaises(PermissionError):
            self.store(storage, 1)
        del self.disk.open
        self.assertEqual(self.files(storage), [])
        self.check(storage)

    def test_a_file_that_somebody_removed_fails_alone(self):
        """It gets its name before its transaction is written."""
        storage = self.opened('group-commit')
        transaction = self.store(storage, 1)
        path, = under_way(storage).blobs._files.values()
        os.remove(path)
        with self.assertRaises(FileNotFoundError):
            storage.tpc_finish(transaction)
        self.check(storage)

    def files(self, storage):
        return [os.path.join(parent, name)
                for parent, _, names in os.walk(storage.blob_dir)
                for name in names if name.endswith('.blob')]

    def test_it_is_taken_again(self):
        held = spare.Spare(self.directory)
        self.disk.times = 1
        held.sync_directory(self.directory)
        self.assertEqual(self.disk.failed, 1)
        self.assertIsNotNone(held._held)
        held.close()

    def test_nothing_is_held_open(self):
        """Neither by many blobs, nor by a storage that is closed."""
        before = self.descriptors()
        storage = self.opened('group-commit')
        opened = self.descriptors()
        transaction = begin(storage)
        for number in range(1, BLOBS):
            with open(self.path('upload'), 'wb') as file:
                file.write(b'content')
            storage.storeBlob(oid(number), b'\0' * 8, b'blob',
                              self.path('upload'), '', transaction)
        storage.tpc_vote(transaction)
        self.assertEqual(self.descriptors(), opened)
        most = []
        sync = self.disk.sync
        self.disk.sync = lambda fd: (most.append(self.descriptors()), sync(fd))
        storage.tpc_finish(transaction)
        self.assertLessEqual(max(most), opened + 1)
        self.assertEqual(self.descriptors(), opened)
        storage.close()
        self.assertEqual(self.descriptors(), before)

    @staticmethod
    def descriptors():
        count = 0
        for fd in range(resource.getrlimit(resource.RLIMIT_NOFILE)[0]):
            try:
                os.fstat(fd)
                count += 1
            except OSError:
                if fd > 1000:
                    break
        return count

    def test_a_process_that_has_none_left(self):
        for policy in 'interval', 'group-commit', 'per-commit', 'two-sync':
            with self.subTest(policy):
                home = self.path(policy)
                os.mkdir(home)
                done = subprocess.run(
                    [sys.executable, '-c', FEW_DESCRIPTORS, home, policy,
                     str(BLOBS)], timeout=60, text=True,
                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
                said = [line for line in done.stdout.splitlines()
                        if 'a sync took' not in line]  # a slow disk's log
                self.assertEqual(said, ['kept True', 'next False'])
