"""A log begins with a file, and nodes join with copies of it."""

import threading
from unittest import mock

from ZODB.FileStorage.FileStorage import FileStorageError

from fsyncstorage.quorum.beginning.bootstrap import begin
from fsyncstorage.quorum.files import state as states
from fsyncstorage.quorum.following.rejoin import rejoin
from fsyncstorage.quorum.log.interface import Unanswered

from ..support import TestCase
from ..support import commit
from .fakelog import Engine
from .fakelog import FakeLog
from .fakelog import Fault
from .logged import found_in


class Begins(TestCase):

    def setUp(self):
        super().setUp()
        self.engine = Engine(None)
        self.log = FakeLog(self.engine)

    def follows(self):
        """It is a node."""
        follower = rejoin(self.path(), self.log, threading.Event())
        self.addCleanup(follower.close)
        return follower

    def filled(self):
        storage = self.open()
        commit(storage, {1: b'x', 2: b'y'})
        storage.close()
        with open(self.path(), 'rb') as file:
            return file.read()

    def test_it_can_be_broken_off_anywhere(self):
        """And repeated: there is one log, and it is that of this file."""
        self.filled()
        for fault in Fault.BEFORE, Fault.AFTER:
            for answered in range(3):
                with self.subTest(fault=fault, answered=answered):
                    engine = Engine(None)
                    log = FakeLog(engine)
                    log.faults.extend([Fault.NONE] * answered + [fault])
                    with self.assertRaises(Unanswered):
                        begin(self.path(), log)
                    identity = begin(self.path(), log)
                    self.assertEqual(engine.log, identity)
                    self.assertEqual(begin(self.path(), log), identity)

    def test_two_logs_never_have_one_identity(self):
        """The first one was made under another name, or on another etcd."""
        other = Engine(None)
        first = begin(self.path(), FakeLog(other))
        second = begin(self.path(), self.log)
        self.assertNotEqual(first, second)
        self.assertEqual((other.log, self.engine.log), (first, second))
        self.assertEqual(states.load(self.path()).state.log, second)

    def test_a_log_that_comes_late(self):
        """The first call was not answered; the second one takes another
        identity, and finds the first one there."""
        self.log.faults.extend([Fault.NONE, Fault.DELAYED])
        with self.assertRaises(Unanswered):
            begin(self.path(), self.log)
        kept = states.load(self.path())
        create = self.log.create
        with mock.patch.object(self.log, 'create', lambda identity: (
                self.engine.deliver(), create(identity))):
            with self.assertRaisesRegex(FileStorageError, 'already'):
                begin(self.path(), self.log)
        self.assertEqual(states.load(self.path()), kept)
        self.assertEqual(begin(self.path(), self.log), kept.state.log)

    def test_what_is_kept_is_there_before_the_log(self):
        """Else nobody could tell whose it is."""
        found = []

        class Watching(FakeLog):
            def create(log, identity):
                found.append(states.load(self.path()).state.log)
                super().create(identity)

        identity = begin(self.path(), Watching(self.engine))
        self.assertEqual(found, [identity])

    def test_a_refusal_leaves_no_file_behind(self):
        """It would be in the way of a copy of a node."""
        begin(self.path('other.fs'), self.log)
        before = found_in(self.directory)
        with self.assertRaisesRegex(
                FileStorageError, 'bootstrap --from DIRECTORY'):
            begin(self.path(), self.log)
        self.assertEqual(found_in(self.directory), before)
