"""A real file system on a disk that fails a flush, or loses power: nothing
acknowledged before or after is lost, and what a storage decides when it is
opened again, it decides on what the disk has.

Skipped where the tools, or the rights to mount, are missing.
"""

import contextlib
import os
import random
import traceback

from ZODB.FileStorage import FileIterator

from fsyncstorage import FsyncStorage
from fsyncstorage.errors import OutcomeUnknown
from fsyncstorage.errors import WritingStopped

from ..support import begin
from ..support import commit
from ..support import oid
from .forgetting import machine
from .loaded import Loaded

# More than a page: what is written later does not heal what was lost.
LARGE = 10000
PROMISING = 'group-commit', 'per-commit', 'two-sync'


class OnAMachine(Loaded):

    level = 3

    def setUp(self):
        super().setUp()
        if reason := machine.why_it_cannot_run():
            self.skipTest(reason)

    def switch_on(self, **options):
        self.machine = machine.Machine(self.directory, **options)
        self.addCleanup(self.machine.switch_off)
        self.machine.switch_on()

    def in_root(self, name):
        return os.path.join(self.machine.root, name)


class FailedFlush(OnAMachine):
    """The kernel is told EIO, and what the disk had not stored is gone."""

    def setUp(self):
        super().setUp()
        self.acknowledged = {}  # number -> (data, tid)

    def opened(self, **options):
        storage = FsyncStorage(self.in_root('Data.fs'), **options)
        self.addCleanup(storage.close)
        return storage

    def commit(self, storage, number):
        data = b'%d ' % number * LARGE
        self.acknowledged[number] = data, commit(storage, {number: data})

    def check(self, storage):
        """All that was acknowledged is there, and nothing else."""
        self.assertEqual(storage.lastTransaction(),
                         max(tid for data, tid in self.acknowledged.values()))
        for number, (data, tid) in self.acknowledged.items():
            self.assertEqual(storage.load(oid(number)), (data, tid))

    def fail(self, arm, **options):
        """Commit well, then, after `arm`, when a flush fails."""
        storage = self.opened(**options)
        for number in range(5):
            self.commit(storage, number)
        storage.close()
        # What fails is the first behind the index: the page that it begins in
        # is not only its own.
        storage = self.opened(**options)
        arm()
        with self.assertLogs('fsyncstorage', 'CRITICAL'):
            with self.assertRaises(OutcomeUnknown):
                self.commit(storage, 5)
        with self.assertRaises(WritingStopped):
            begin(storage)
        self.check(storage)
        with self.assertLogs('fsyncstorage', 'ERROR'):
            storage.close()
        # The error knows the frames of the sync, and they the open file.
        traceback.clear_frames(storage._sequencer._broken.__traceback__)

    def go_on_and_lose_power(self, **options):
        storage = self.opened(**options)
        self.check(storage)
        for number in range(6, 9):
            self.commit(storage, number)
        self.machine.cut_the_power()
        with self.assertLogs('fsyncstorage', 'WARNING'):
            storage.close()
        self.machine.switch_off()
        self.machine.switch_on()
        self.check(self.opened(**options))

    def test_without_a_journal(self):
        """The file system goes on, and the cache shows what was lost."""
        self.switch_on(journal=False)
        self.fail(self.machine.fail_next_flush)
        self.check_that_the_cache_shows_it()
        self.go_on_and_lose_power()

    def test_of_a_status(self):
        """No data is lost, but the one byte by which it counts."""
        disk = self.controlled_disk()

        def arm():
            disk.before_write = fail_the_next_after_a_status

        def fail_the_next_after_a_status(data, position):
            if len(data) == 1:
                self.machine.fail_next_flush()

        self.switch_on()
        self.fail(arm, durability='two-sync')
        disk.before_write = lambda data, position: None
        self.check_that_the_cache_shows_it()
        self.go_on_and_lose_power(durability='two-sync')

    def check_that_the_cache_shows_it(self):
        """Else nothing was shown: stock would take the last one for good."""
        with contextlib.closing(
                FileIterator(self.in_root('Data.fs'))) as transactions:
            records = [record.oid for transaction in transactions
                       for record in transaction]
        self.assertEqual(records[-1], oid(5))


class PowerCut(OnAMachine):

    times = 20

    def test_under_load(self):
        """Commits, blobs and packs; the policies in turn."""
        rng = random.Random(1)
        self.switch_on()
        self.acknowledged = self.path('acknowledged')
        for number in range(self.times):
            policy = PROMISING[number % len(PROMISING)]
            with self.subTest(policy, number=number):
                with self.load(self.machine.root, policy) as process:
                    self.wait_for_commits(process, rng.randrange(1, 300))
                    self.machine.cut_the_power()
                self.machine.switch_off()
                self.machine.switch_on()
                self.check(self.machine.root, policy)
