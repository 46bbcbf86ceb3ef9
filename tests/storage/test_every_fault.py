"""A disk that fails, once, at each single call: commits, packs, checkpoints,
blobs, and openings that find no descriptor.  Whatever fails, nothing that was
acknowledged is lost, nothing is half there, nobody is left waiting, and the
storage goes on or says that it stopped.

Level 2 has every other call of a disk that fails under `group-commit`, and
otherwise one of a few, not the same under all policies.
"""

import contextlib
import errno
import itertools
import os
import shutil
import time
from unittest import mock

from ZODB.POSException import POSError
from ZODB.POSException import POSKeyError

from fsyncstorage import datafile
from fsyncstorage.commit import blobs
from fsyncstorage.commit import policies
from fsyncstorage.storage.transaction import SPOOL_IN_MEMORY

from ..memory import scratch_directory
from ..often import often
from ..support import TestCase
from ..support import begin
from ..support import oid

OPERATIONS = ('open', 'write', 'sync', 'truncate', 'reserve', 'link',
              'replace', 'remove', 'make_directory', 'remove_directory',
              'sync_directory')
# More than a transaction keeps in memory: it has a file of its own.
LARGE = b'large' * (SPOOL_IN_MEMORY // 5 + 1)
# A full disk does not fail at what needs no space.
NEED_SPACE = 'open', 'write', 'reserve', 'link', 'replace', 'make_directory'


class FaultyDisk(datafile.Disk):
    """Fails at the n-th of some operations, and so many times."""

    def __init__(self, error, operations, at, times=1):
        self.calls = 0
        self.failed = None
        self._fails = range(at, at + times)
        for name in operations:
            setattr(self, name, self._counted(name, error))

    def _counted(self, name, error):
        original = getattr(self, name)

        def call(*args):
            self.calls += 1
            if self.calls in self._fails:
                self.failed = name
                if name == 'write':  # some of it got through
                    fd, data, position = args
                    original(fd, data[:len(data) // 2], position)
                raise OSError(error, os.strerror(error))
            return original(*args)

        return call


class EveryFault(TestCase):

    level = 2

    def setUp(self):
        super().setUp()
        resources = contextlib.ExitStack()
        self.addCleanup(resources.close)
        self.directory = resources.enter_context(scratch_directory())

    def test_full_disk(self):
        for policy in policies.POLICIES:
            with self.subTest(policy):
                self.at_every_call(policy, errno.ENOSPC, NEED_SPACE)

    def test_failing_disk(self):
        for policy in policies.POLICIES:
            with self.subTest(policy):
                self.at_every_call(policy, errno.EIO, OPERATIONS)

    def test_no_descriptor(self):
        """Nothing stops, whichever opening does not find one (I7)."""
        for policy in often(('group-commit',), policies.POLICIES):
            with self.subTest(policy):
                self.at_every_call(policy, errno.EMFILE, ('open',))

    def test_no_descriptor_for_a_while(self):
        with mock.patch.object(blobs, 'PAUSE', 0.001):
            self.at_every_call(
                'group-commit', errno.ENFILE, ('open',), times=5)

    def test_no_memory_to_open_a_file(self):
        self.at_every_call('interval', errno.ENOMEM, ('open',))

    def at_every_call(self, policy, error, operations, times=1):
        step = often(12, 1)
        if policy == 'group-commit' and error != errno.ENOSPC:
            step = often(2, 1)
        first = list(policies.POLICIES).index(policy) % step
        for at in itertools.count(1 + first, step):
            disk = FaultyDisk(error, operations, at, times)
            with self.subTest(at=at):
                self.one_run(policy, disk, goes_on=error in blobs.PASSING)
            if disk.failed is None:
                break
        self.assertGreater(at, 20)

    def one_run(self, policy, disk, goes_on=False):
        self.home = self.path(f'{policy}-{disk.calls}')
        shutil.rmtree(self.home, ignore_errors=True)
        os.mkdir(self.home)
        self.model = {}      # oid -> (data, tid), acknowledged
        self.doubtful = {}   # oid -> data, of which nobody knows
        storage = self.opened(policy)
        try:
            with mock.patch.object(datafile, 'disk', disk):
                self.workload(storage)
                if goes_on:
                    self.assertIsNone(storage.stats()['writing_stopped'])
                    self.commit(storage, 8, b'and it goes on')
                    storage.close()
        finally:
            storage.close()
        if policy not in ('none', 'interval') or disk.failed != 'sync':
            self.check(policy)
        shutil.rmtree(self.home)

    def opened(self, policy):
        storage = self.open(
            os.path.join(self.home, 'Data.fs'), durability=policy,
            blob_dir=os.path.join(self.home, 'blobs'),
            sync_interval='1h', pack_keep_old=True)
        return storage

    def workload(self, storage):
        for step in (
            lambda: self.commit(storage, 1, b'first'),
            lambda: self.commit(storage, 2, LARGE),
            lambda: self.commit(storage, 1, b'second'),
            lambda: self.commit_blob(storage, 3, b'blob one'),
            storage.journal.checkpoints.write,
            lambda: storage.pack(time.time() + 1, lambda data: [], gc=False),
            lambda: self.commit(storage, 1, b'third'),
            lambda: self.commit_blob(storage, 3, b'blob two'),
            lambda: self.undo(storage, 1),
        ):
            try:
                step()
            except (OSError, POSError):
                pass
            self.nobody_waits(storage)

    def commit(self, storage, number, data):
        self.store(storage, number, data, lambda transaction: storage.store(
            oid(number), self.serial(number), data, '', transaction))

    def commit_blob(self, storage, number, content):
        upload = os.path.join(self.home, 'upload')
        with open(upload, 'wb') as file:
            file.write(content)
        self.store(
            storage, number, content, lambda transaction: storage.storeBlob(
                oid(number), self.serial(number), content, upload, '',
                transaction))

    def serial(self, number):
        return self.model.get(oid(number), (None, b'\0' * 8))[1]

    def undo(self, storage, number):
        _, *before = storage.history(oid(number), 2)
        if not before:
            return
        data = storage.loadSerial(oid(number), before[0]['tid'])
        undone = [entry for entry in storage.undoLog(0, 9)
                  if entry['time'] == storage.history(oid(number))[0]['time']]
        self.store(storage, number, data, lambda transaction: storage.undo(
            undone[0]['id'], transaction))

    def store(self, storage, number, data, store):
        transaction = begin(storage)
        try:
            store(transaction)
            storage.tpc_vote(transaction)
            self.doubtful[oid(number)] = data
            tid = storage.tpc_finish(transaction)
        except BaseException:
            storage.tpc_abort(transaction)
            raise
        self.model[oid(number)] = data, tid
        del self.doubtful[oid(number)]

    def nobody_waits(self, storage):
        self.assertEqual(storage.stats()['waiting'], 0)
        self.assertTrue(storage._commit_lock.acquire(timeout=30))
        storage._commit_lock.release()
        # What was acknowledged is what is read.
        for key, (data, tid) in self.model.items():
            if not storage.stats()['failed']:
                self.assertEqual(storage.load(key), (data, tid))

    def check(self, policy):
        storage = self.opened(policy)
        for key, (data, tid) in self.model.items():
            found, found_tid = storage.load(key)
            if found_tid == tid:
                self.assertEqual(found, data)
            else:
                self.assertEqual(found, self.doubtful[key])
                self.assertGreater(found_tid, tid)
        for key in set(self.doubtful) - set(self.model):
            try:
                self.assertEqual(storage.load(key)[0], self.doubtful[key])
            except POSKeyError:
                pass
        try:
            content, tid = storage.load(oid(3))
        except POSKeyError:
            pass
        else:
            with open(storage.loadBlob(oid(3), tid), 'rb') as file:
                self.assertEqual(file.read(), content)
        self.commit(storage, 9, b'last')
        storage.close()
