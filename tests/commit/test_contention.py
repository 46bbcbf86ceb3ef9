"""Threads step back from the append lock, and not for ever (I10)."""

from unittest import mock

from fsyncstorage.commit import contention
from fsyncstorage.commit.contention import Contention
from fsyncstorage.commit.contention import Sleeper

from ..support import TestCase
from ..support import Thread
from ..support import begin
from ..support import commit
from ..support import until


class Stepping(TestCase):

    def setUp(self):
        super().setUp()
        self.contention = Contention()
        self.sleeps = []

    def come_beside(self, *events):
        """`b` comes while `a` is inside; in its sleeps, these happen."""
        events = list(events)

        def sleep(sleeper, seconds):
            self.sleeps.append(seconds)
            if events:
                self.woken = False
                with mock.patch.object(Sleeper, 'wake', self.note_wake):
                    events.pop(0)()

        self.contention.come('a')
        with mock.patch.object(Sleeper, 'sleep', sleep):
            self.contention.come('b')
        self.assertIn('b', self.contention.inside)
        self.assertFalse(self.contention._sleepers)

    def note_wake(self, sleeper=None):
        self.woken = True

    def test_one_alone_does_not_sleep(self):
        with mock.patch.object(Sleeper, 'sleep') as sleep:
            for owner in 'abc':
                self.contention.come(owner)
                self.contention.leave(owner)
        self.assertFalse(sleep.called)

    def test_it_is_woken_when_the_lock_is_free(self):
        def leave():
            self.contention.leave('a')
            self.assertTrue(self.woken)
        self.come_beside(leave)
        self.assertEqual(self.sleeps, [contention.LONGEST])

    def test_then_it_sleeps_until_the_lock_was_free_many_times(self):
        def leave_once():
            self.contention.leave('a')
            self.contention.come('c')

        def leave_often():
            for number in range(contention.TIMES[1]):
                self.assertFalse(self.woken, number)
                self.contention.leave('c')
                if number < contention.TIMES[1] - 1:
                    self.contention.come('c')
            self.assertTrue(self.woken)

        self.come_beside(leave_once, leave_often)
        self.assertEqual(len(self.sleeps), 2)
        self.assertLess(self.sleeps[1], self.sleeps[0])

    def test_it_goes_on_although_another_stays(self):
        self.come_beside()
        self.assertEqual(len(self.sleeps), len(contention.TIMES))

    def test_the_lock_is_free_before_it_sleeps(self):
        real = Contention._sleep

        def leave_first(it, sleeper, seconds):
            it.leave('a')
            real(it, sleeper, seconds)

        with mock.patch.object(Contention, '_sleep', leave_first):
            # The wake-up came too early for `sleep`, or before it.
            self.come_beside()
        self.assertEqual(self.sleeps, [])

    def test_leaving_twice_counts_once(self):
        def leave_twice():
            self.contention.come('c')
            self.contention.leave('c')
            self.assertTrue(self.woken)
            self.woken = False
            self.contention._sleepers.append(Sleeper(1))
            self.contention.leave('c')
            self.assertFalse(self.woken)
            self.contention._sleepers.clear()
        self.come_beside(leave_twice)

    def test_an_interrupted_sleep_leaves_nothing_behind(self):
        self.contention.come('a')
        interrupted = mock.Mock(side_effect=KeyboardInterrupt)
        with (mock.patch.object(Sleeper, 'sleep', interrupted),
              self.assertRaises(KeyboardInterrupt)):
            self.contention.come('b')
        self.assertFalse(self.contention._sleepers)
        self.assertEqual(self.contention.inside, {'a'})


class OfAStorage(TestCase):

    def test_a_thread_steps_back_from_another(self):
        storage = self.open(durability='none')
        under_way = begin(storage)  # one that is alone does not look
        with storage._commit_lock:
            first = Thread(commit, storage, {1: b'1'})
            until(lambda: storage._contention.inside, 'is at the lock')
            with mock.patch.object(contention, 'LONGEST', 60):
                second = Thread(commit, storage, {2: b'2'})
                until(lambda: storage._contention._sleepers, 'sleeps')
        first.result()
        second.result()
        storage.tpc_abort(under_way)
        self.assertFalse(storage._contention.inside)
