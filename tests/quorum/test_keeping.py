"""What a node keeps is never more than its disk has, and not much less."""

import os

from fsyncstorage import datafile
from fsyncstorage.quorum.files import state as states
from fsyncstorage.quorum.leading import keeping

from ..support import ControlledDisk
from ..support import Thread
from ..support import commit
from ..support import until
from .nodes import NodeTest

ENOSPC = OSError(28, 'No space left on device')


class SyncedDisk(ControlledDisk):
    """Knows how much of a data file was synced."""

    def __init__(self):
        super().__init__()
        self.synced = {}  # by inode

    def sync(self, fd):
        status = os.fstat(fd)
        super().sync(fd)
        self.synced[status.st_ino] = status.st_size


class Kept(NodeTest):

    def setUp(self):
        super().setUp()
        self.disk = SyncedDisk()
        self.saved = []
        self.errors = []
        self.patch(datafile, disk=self.disk)
        self.save = states.save
        self.patch(states, save=self.checked_save)

    def checked_save(self, path, state, *more):
        if self.errors:
            raise self.errors.pop()
        inode = os.stat(path).st_ino
        self.assertLessEqual(state.end, self.disk.synced[inode])
        self.assertIsNone(state.incomplete)
        self.save(path, state, *more)
        self.saved.append(state)

    def soon(self):
        self.patch(keeping, LATE=0.0)

    def test_the_epoch_before_anything_of_it(self):
        storage = self.lead()
        self.assertEqual(self.kept().epoch, 1)
        storage.close()
        self.lead()
        self.assertEqual(self.kept().epoch, 2)

    def until_kept(self, storage):
        until(lambda: storage.stats()['quorum']['kept_sequence']
              == storage.stats()['quorum']['sequence'], 'kept')
        self.assertEqual(self.kept().end, storage._pos)

    def test_a_second_after_a_commit(self):
        self.soon()
        storage = self.lead()
        for number in range(1, 4):
            commit(storage, {number: b'x'})
            self.until_kept(storage)

    def test_not_what_the_log_alone_has(self):
        """The disk is not synced yet."""
        self.soon()
        storage = self.lead()
        before = self.kept()
        self.disk.hold_syncs()
        committer = Thread(commit, storage, {1: b'x'})
        self.disk.wait_for_sync()
        storage._replica._keeper.save()
        self.assertEqual(self.kept(), before)
        self.disk.release_syncs()
        committer.result()

    def test_not_what_the_disk_alone_has(self):
        self.soon()
        storage = self.lead()
        before = self.kept()
        storage.line.hold_answers()
        committer = Thread(commit, storage, {1: b'x'})
        storage.line.wait_for_question()
        storage._replica._keeper.save()
        self.assertEqual(self.kept(), before)
        storage.line.release_answers()
        committer.result()

    def test_not_what_a_majority_does_not_confirm(self):
        self.soon()
        storage = self.lead()
        before = self.kept()
        self.engine.away |= {1, 2}
        commit(storage, {1: b'x'})  # the log answers, two do not by themselves
        storage._replica._keeper.save()
        self.assertEqual(self.kept(), before)
        self.engine.away.clear()
        self.until_kept(storage)

    def test_it_is_tried_again(self):
        self.soon()
        storage = self.lead()
        self.errors += [ENOSPC, ENOSPC]
        with self.assertLogs('fsyncstorage', 'WARNING') as logs:
            commit(storage, {1: b'x'})
            self.until_kept(storage)
        self.assertEqual(len(logs.output), 1)
        self.assertIn('is tried again', logs.output[0])
