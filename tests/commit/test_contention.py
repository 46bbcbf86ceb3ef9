"""Threads take runs at the append lock, and none waits for ever (I10).  Goes
with `commit/contention.py`.
"""

import threading

from ZODB.POSException import ConflictError

from fsyncstorage.commit import contention
from fsyncstorage.commit.wakeable import Sleeper
from fsyncstorage.storage import AsyncFinish

from ..support import PATIENCE
from ..support import TestCase
from ..support import Thread
from ..support import begin
from ..support import commit
from ..support import until


class Patient(Sleeper):
    """It is woken, however long that takes."""

    def sleep(self, seconds=None):
        if not self._asleep.acquire(timeout=PATIENCE):
            raise AssertionError('nobody has handed on')


class OfAStorage(TestCase):

    def setUp(self):
        super().setUp()
        self.patch(contention, AT_ONCE=PATIENCE, RUN=PATIENCE)
        self.patch(contention, Sleeper=Patient)
        self.storage = self.open(durability='none')
        # One that is alone does not look.
        under_way = begin(self.storage)
        self.addCleanup(self.storage.tpc_abort, under_way)
        self.contention = self.storage._contention
        self.commit_twice(1)  # now this thread has the run
        self.assertEqual(self.contention._runner, threading.get_ident())

    def commit_twice(self, oid, f=None):
        self.first = commit(self.storage, {oid: b'1'}, f=f)
        commit(self.storage, {oid: b'2'}, {oid: self.first}, f)

    def sleeper(self, oid):
        thread = Thread(self.commit_twice, oid)
        until(lambda: self.contention._sleepers, 'sleeps')
        return thread

    def test_a_thread_sleeps_behind_another(self):
        other = self.sleeper(2)
        commit(self.storage, {3: b'3'})
        self.assertTrue(self.contention._sleepers)
        self.contention.hand_on()
        other.result()
        self.assertFalse(self.contention.inside)

    def test_one_that_waits_for_objects_hands_on(self):
        """The one that sleeps may hold them."""
        other = self.sleeper(2)
        with self.assertRaises(ConflictError):
            commit(self.storage, {2: b'3'}, {2: self.first})
        other.result()

    def test_an_asynchronous_finish_does_not_sleep(self):
        """An event loop may have called it."""
        told = threading.Semaphore(0)

        def commit_at_once():
            for oid in 2, 3:
                finish = AsyncFinish(lambda tid, error: told.release())
                commit(self.storage, {oid: b'1'}, f=finish)
                self.assertTrue(told.acquire(timeout=PATIENCE))

        Thread(commit_at_once).result()
        self.assertEqual(self.contention._runner, threading.get_ident())
