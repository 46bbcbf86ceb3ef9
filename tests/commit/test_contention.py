"""Threads take runs at the append lock, and none waits for ever (I10)."""

import threading
from unittest import mock

from ZODB.POSException import ConflictError

from fsyncstorage.commit import contention
from fsyncstorage.commit.contention import RUN
from fsyncstorage.commit.contention import Contention
from fsyncstorage.storage import AsyncFinish

from ..support import PATIENCE
from ..support import TestCase
from ..support import Thread
from ..support import begin
from ..support import commit
from ..support import until


class Runs(TestCase):

    def setUp(self):
        super().setUp()
        self.contention = Contention()
        self.now = 1.0
        self.worked = 0.0
        for name, function in (('clock', lambda: self.now),
                               ('worked', lambda: self.worked)):
            patch = mock.patch.object(contention, name, function)
            patch.start()
            self.addCleanup(patch.stop)
        #: What threads that sleep were given; they sleep until they are woken.
        self.sleeps = []
        sleep = contention._Sleeper.sleep

        def note(sleeper, seconds):
            self.sleeps.append(seconds)
            sleep(sleeper, PATIENCE)

        self.patch_sleep(note)

    def patch_sleep(self, function):
        patch = mock.patch.object(contention._Sleeper, 'sleep', function)
        patch.start()
        self.addCleanup(patch.stop)

    def come_at_once(self, owner='own', may_sleep=True):
        """Call it twice for a thread that has not been there yet."""
        self.contention.come(owner)
        self.contention.leave(owner)
        self.contention.come(owner, may_sleep)

    def sleeper(self, owner, number=1):
        """A thread that came at once, and sleeps."""
        thread = Thread(self.come_at_once, owner)
        until(lambda: len(self.contention._sleepers) == number, 'sleeps')
        return thread

    def assertSleep(self, *threads):
        self.assertEqual(
            [each.thread for each in self.contention._sleepers],
            [each.ident for each in threads])

    def test_another_that_comes_at_once_sleeps(self):
        self.come_at_once()
        other = self.sleeper('other')
        self.assertEqual(self.contention.inside, {'own'})
        self.now += RUN * 1.01
        self.contention.leave('own')
        other.result()
        self.assertEqual(self.contention._runner, other.ident)
        self.assertEqual(self.contention.inside, {'other'})

    def test_a_run_goes_on_for_its_time(self):
        self.come_at_once()
        other = self.sleeper('other')
        for _ in range(10):
            self.now += RUN / 10.1
            self.contention.leave('own')
            self.contention.come('own')
            self.assertSleep(other)
        self.now += RUN / 10.1
        self.contention.leave('own')
        other.result()

    def test_nobody_sleeps_behind_one_that_has_gone(self):
        self.come_at_once()
        self.contention.leave('own')
        self.now += 2.01 * RUN
        other = Thread(self.come_at_once, 'other')
        other.result()
        self.assertEqual(self.contention._runner, other.ident)

    def test_one_that_stays_away_holds_up_nobody(self):
        """Each waits for the runs of those before it, and for one more."""
        self.patch_sleep(lambda sleeper, seconds: self.sleeps.append(seconds))
        self.come_at_once()
        other = Thread(self.come_at_once, 'other')
        other.result()
        self.assertEqual(self.sleeps, [2 * RUN])
        self.assertEqual(self.contention._runner, other.ident)
        self.assertFalse(self.contention._sleepers)

    def test_an_event_loop_does_not_sleep(self):
        self.come_at_once()
        Thread(self.come_at_once, 'other', may_sleep=False).result()
        self.assertEqual(self.contention.inside, {'own', 'other'})
        self.assertEqual(self.contention._runner, threading.get_ident())

    def test_an_interrupted_sleep_leaves_nothing_behind(self):
        self.patch_sleep(mock.Mock(side_effect=KeyboardInterrupt))
        self.come_at_once()
        other = Thread(self.come_at_once, 'other')
        self.assertRaises(KeyboardInterrupt, other.result)
        self.assertFalse(self.contention._sleepers)
        self.assertEqual(self.contention.inside, {'own'})
        self.assertEqual(self.contention._runner, threading.get_ident())


class OfAStorage(TestCase):

    def setUp(self):
        super().setUp()
        for patch in (
                mock.patch.object(contention, 'AT_ONCE', PATIENCE),
                mock.patch.object(contention, 'RUN', PATIENCE),
                mock.patch.object(contention._Sleeper, 'sleep', self.sleep)):
            patch.start()
            self.addCleanup(patch.stop)
        self.storage = self.open(durability='none')
        # One that is alone does not look.
        under_way = begin(self.storage)
        self.addCleanup(self.storage.tpc_abort, under_way)
        self.contention = self.storage._contention
        self.commit_twice(1)  # now this thread has the run
        self.assertEqual(self.contention._runner, threading.get_ident())

    @staticmethod
    def sleep(sleeper, seconds):
        if not sleeper._asleep.acquire(timeout=PATIENCE):
            raise AssertionError('nobody has handed on')

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
