"""I7: what fails before any sync was tried is no failed sync.

No descriptor left, or no memory to open a file: a blob commit is kept or is
an ordinary failure, and the next commit works.
"""

import errno
import os
import resource
import threading

from fsyncstorage import datafile
from fsyncstorage.commit import blobs
from fsyncstorage.commit import policies

from ..support import TestCase
from ..support import Thread
from ..support import begin
from ..support import commit
from ..support import oid
from ..support import under_way

# As many blobs as have to be committed with a few descriptors left.
BLOBS = 100

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
        self.patch(datafile, disk=self.disk)
        self.patch(blobs, PAUSE=0.001)

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
                    finish = Thread(storage.journal.checkpoints.write)
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

    def test_a_file_that_somebody_removed_fails_alone(self):
        """It gets its name before its transaction is written."""
        storage = self.opened('group-commit')
        transaction = self.store(storage, 1)
        path, = under_way(storage).blobs._files.values()
        os.remove(path)
        with self.assertRaises(FileNotFoundError):
            storage.tpc_finish(transaction)
        self.check(storage)

    def test_nothing_is_held_open(self):
        """Neither by many blobs, nor by a storage that is closed."""
        before = self.descriptors()
        storage = self.opened('group-commit')
        opened = self.descriptors()
        transaction = begin(storage)
        for number in range(1, BLOBS):
            self.store_blob(storage, transaction, number)
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
