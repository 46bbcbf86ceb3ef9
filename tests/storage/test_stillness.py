"""No transaction is voted, and all that were are appended."""

import contextlib

from ..support import PATIENCE
from ..support import TestCase
from ..support import Thread
from ..support import begin
from ..support import commit
from ..support import oid
from ..support import until
from ..support import vote


class Still(TestCase):

    def setUp(self):
        super().setUp()
        self.storage = self.open()

    def test_votes_wait_and_do_not_fail(self):
        with self.storage.votes_held_back(0) as is_still:
            self.assertTrue(is_still)
            transaction = begin(self.storage)
            self.storage.store(oid(1), bytes(8), b'x', '', transaction)
            voting = Thread(self.storage.tpc_vote, transaction)
            until(lambda: self.storage.stats()['lock_waiting'], 'it waits')
        voting.result()
        self.storage.tpc_finish(transaction)

    def test_what_was_voted_goes_on_to_its_end(self):
        transaction = vote(self.storage, {1: b'x'})
        stack = contextlib.ExitStack()
        self.addCleanup(stack.close)
        beginning = Thread(
            stack.enter_context, self.storage.votes_held_back(PATIENCE))
        until(lambda: self.storage.stats()['lock_waiting'], 'it waits')
        self.assertTrue(beginning.is_alive())
        tid = self.storage.tpc_finish(transaction)
        self.assertTrue(beginning.result())
        self.assertEqual(self.storage.lastTransaction(), tid)

    def test_one_that_is_not_finished(self):
        """All goes on."""
        transaction = vote(self.storage, {1: b'x'})
        with self.storage.votes_held_back(0.01) as is_still:
            self.assertFalse(is_still)
            commit(self.storage, {2: b'x'})
        self.storage.tpc_finish(transaction)

    def test_one_that_is_on_its_way_to_the_disk(self):
        """Its client is told what the disk says."""
        disk = self.controlled_disk()
        transaction = vote(self.storage, {1: b'x'})
        disk.hold_syncs()
        finishing = Thread(self.storage.tpc_finish, transaction)
        disk.wait_for_sync()
        with self.storage.votes_held_back(0.01) as is_still:
            self.assertFalse(is_still)
        disk.release_syncs()
        finishing.result()

    def test_a_storage_that_stops_writing_meanwhile(self):
        """I10: those that wait are told."""
        with self.storage.votes_held_back(0):
            transaction = begin(self.storage)
            self.storage.store(oid(1), bytes(8), b'x', '', transaction)
            voting = Thread(self.storage.tpc_vote, transaction)
            until(lambda: self.storage.stats()['lock_waiting'], 'it waits')
            with self.assertLogs('fsyncstorage', 'CRITICAL'):
                self.storage._sequencer.stop_writing(
                    'of a reason', 'do something')
        with self.assertRaisesRegex(Exception, 'of a reason; do something'):
            voting.result()
