"""Which storages are opened under `quorum`, and what they refuse."""

import contextlib
import os
import threading

from ZODB.FileStorage.FileStorage import FileStorageError

from fsyncstorage import FsyncStorage
from fsyncstorage.commit.policies import POLICIES
from fsyncstorage.quorum.following.rejoin import rejoin
from fsyncstorage.quorum.leading.replicator import Replicator

from ..support import commit
from ..support import oid
from .logged import found_in
from .nodes import Line
from .nodes import NodeTest
from .nodes import led


class Opening(NodeTest):

    def test_another_policy(self):
        """It would append past the log."""
        storage = self.lead()
        commit(storage, {1: b'x'})
        storage.close()
        before = found_in(os.path.dirname(self.path_of('a')))
        for policy in POLICIES:
            for create in False, True:
                with self.subTest(policy, create=create):
                    with self.assertRaisesRegex(
                            FileStorageError, 'durability quorum only'):
                        FsyncStorage(self.path_of('a'), durability=policy,
                                     create=create)
                    self.assertEqual(
                        found_in(os.path.dirname(self.path_of('a'))), before)
        self.lead()  # no lock is left

    def test_by_another_name(self):
        self.lead().close()
        os.symlink(self.path_of('a'), self.path('link.fs'))
        with self.assertRaisesRegex(FileStorageError, 'quorum only'):
            self.open('link.fs')

    def test_only_to_read(self):
        storage = self.lead()
        tid = commit(storage, {1: b'x'})
        for policy in 'group-commit', 'quorum':
            reading = FsyncStorage(
                self.path_of('a'), durability=policy, read_only=True)
            self.assertEqual(reading.load(oid(1)), (b'x', tid))
            self.assertIsNone(reading.stats()['quorum'])
            self.assertIsNone(reading.replica)
            reading.close()

    def test_a_file_that_has_more_than_the_log(self):
        """Something wrote to it after it was compared."""
        self.lead().close()
        path = self.path_of('a')
        other = self.path('other.fs')
        with contextlib.closing(FsyncStorage(other)) as longer:
            commit(longer, {1: b'x'})
        line = Line(self.engine)
        writer = led(line, self.state_of(path, line), 'writer')
        with open(other, 'rb') as source, open(path, 'wb') as target:
            target.write(source.read())
        with self.assertRaisesRegex(FileStorageError, 'the log has of it'):
            FsyncStorage(path, durability='quorum',
                         replica=Replicator(line, writer))
        self.assertTrue(line.is_stopped)

    def state_of(self, path, log):
        with contextlib.closing(
                rejoin(path, log, threading.Event())) as follower:
            return follower.state
