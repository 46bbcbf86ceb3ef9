"""Threads step back from the append lock, and not for ever (I10)."""

from unittest import mock

from fsyncstorage.commit import contention
from fsyncstorage.commit.contention import Contention
from fsyncstorage.commit.contention import Sleeper
from fsyncstorage.storage import AsyncFinish

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
        """`b` comes while `a` is inside; in its sleeps, these happen.

        All in one thread, so that the one that has left is back.
        """
        events = list(events)
        wake = Sleeper.wake

        def note_wake(sleeper, thread):
            self.woken = True
            wake(sleeper, thread)

        def sleep(sleeper, seconds):
            self.sleeps.append(seconds)
            self.woken = False
            if events:
                with mock.patch.object(Sleeper, 'wake', note_wake):
                    events.pop(0)()
            return self.woken

        self.come_at_once('a')
        with mock.patch.object(Sleeper, 'sleep', sleep):
            self.contention.come('b')
        self.assertIn('b', self.contention.inside)
        self.assertFalse(self.contention._sleepers)

    def come_at_once(self, owner):
        for _ in range(2):
            self.contention.leave(owner)
            self.contention.come(owner)

    def leave_and_come_back(self):
        for owner in 'ac':
            self.contention.leave(owner)
        self.contention.come('c')

    def test_one_alone_does_not_sleep(self):
        with mock.patch.object(Sleeper, 'sleep') as sleep:
            for owner in 'abc':
                self.contention.come(owner)
                self.contention.leave(owner)
        self.assertFalse(sleep.called)

    def test_it_does_not_sleep_beside_one_that_has_not_come_at_once(self):
        """Most programs have other things to do between their commits."""
        with mock.patch.object(Sleeper, 'sleep') as sleep:
            self.contention.come('a')
            Thread(self.contention.come, 'b').result()
            Thread(self.contention.leave, 'b').result()
            self.contention.leave('a')
            Thread(self.contention.come, 'b').result()
            self.contention.come('a')
        self.assertFalse(sleep.called)

    def test_it_does_not_sleep_beside_one_that_came_at_once_before(self):
        with mock.patch.object(Sleeper, 'sleep') as sleep:
            self.come_at_once('a')
            self.contention.leave('a')
            Thread(self.contention.come, 'b').result()
            Thread(self.contention.leave, 'b').result()
            self.contention.come('a')
            Thread(self.contention.come, 'b').result()
        self.assertFalse(sleep.called)

    def test_one_that_has_slept_is_not_passed_again_at_once(self):
        with mock.patch.object(Sleeper, 'sleep', return_value=False) as sleep:
            self.come_at_once('a')
            Thread(self.contention.come, 'b').result()
            self.assertEqual(sleep.call_count, len(contention.TIMES))
            self.contention.leave('a')
            self.contention.come('a')  # it sleeps now
        self.assertEqual(sleep.call_count, 2 * len(contention.TIMES))

    def test_it_is_woken_when_the_lock_is_free(self):
        def leave():
            self.contention.leave('a')
            self.assertTrue(self.woken)
        self.come_beside(leave)
        self.assertEqual(self.sleeps, [contention.LONGEST])

    def test_then_it_sleeps_until_the_lock_was_free_many_times(self):
        def leave_often():
            for number in range(contention.TIMES[1]):
                self.assertFalse(self.woken, number)
                self.contention.leave('c')
                if number < contention.TIMES[1] - 1:
                    self.contention.come('c')
            self.assertTrue(self.woken)

        self.come_beside(self.leave_and_come_back, leave_often)
        self.assertEqual(
            self.sleeps, [contention.LONGEST, contention.LOOK_AFTER])

    def test_it_goes_on_when_the_one_that_has_left_is_not_back(self):
        """Most programs have other things to do between their commits."""
        def leave_to_another():
            self.contention.leave('a')
            Thread(self.contention.come, 'c').result()
        self.come_beside(leave_to_another)
        self.assertEqual(self.sleeps, [contention.LONGEST])

    def test_it_goes_on_soon_when_no_other_leaves(self):
        self.come_beside(
            self.leave_and_come_back, lambda: self.contention.leave('c'))
        self.assertEqual(
            self.sleeps, [contention.LONGEST, contention.LOOK_AFTER])

    def test_it_goes_on_although_another_stays(self):
        self.come_beside()
        self.assertEqual(
            self.sleeps, [contention.LONGEST] + 2 * [contention.LOOK_AFTER])

    def test_it_goes_on_soon_when_few_leave(self):
        """It would be late for nothing."""
        def some_leave():
            for _ in range(contention.LEAST - 1):
                self.leave_and_come_back()
        self.come_beside(self.leave_and_come_back, *100 * [some_leave])
        self.assertEqual(
            self.sleeps, [contention.LONGEST] + 2 * [contention.LOOK_AFTER])

    def test_it_goes_on_although_many_leave_that_count_for_another(self):
        def many_leave():
            if len(self.sleeps) == 2:
                self.contention._sleepers.appendleft(Sleeper(1000))
            for _ in range(contention.LEAST):
                self.leave_and_come_back()
            if len(self.sleeps) == 1 + 2 * contention.MOST_LOOKS:
                self.contention._sleepers.clear()
        self.come_beside(self.leave_and_come_back, *100 * [many_leave])
        self.assertEqual(len(self.sleeps), 1 + 2 * contention.MOST_LOOKS)

    def test_the_lock_is_free_before_it_sleeps(self):
        real = Contention._sleep

        def leave_first(it, *args):
            it.leave('a')
            real(it, *args)

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
        self.come_at_once('a')
        interrupted = mock.Mock(side_effect=KeyboardInterrupt)
        with (mock.patch.object(Sleeper, 'sleep', interrupted),
              self.assertRaises(KeyboardInterrupt)):
            self.contention.come('b')
        self.assertFalse(self.contention._sleepers)
        self.assertEqual([*self.contention.inside], ['a'])


class OfAStorage(TestCase):

    def test_a_thread_steps_back_from_another(self):
        storage = self.open(durability='none')
        under_way = begin(storage)  # one that is alone does not look
        with storage._commit_lock:
            first = Thread(commit, storage, {1: b'1'})
            until(lambda: storage._contention.inside, 'is at the lock')
            storage._contention._returner = first.ident
            with mock.patch.object(contention, 'LONGEST', 60):
                second = Thread(commit, storage, {2: b'2'})
                until(lambda: storage._contention._sleepers, 'sleeps')
        first.result()
        second.result()
        storage.tpc_abort(under_way)
        self.assertFalse(storage._contention.inside)

    def test_an_asynchronous_finish_does_not_sleep(self):
        """An event loop may have called it."""
        storage = self.open(durability='none')
        under_way = begin(storage)
        for _ in range(2):  # it comes at once
            storage._contention.leave('another')
            storage._contention.come('another')
        told = []
        with mock.patch.object(Sleeper, 'sleep') as sleep:
            commit(storage, {1: b'1'},
                   f=AsyncFinish(lambda tid, error: told.append(error)))
        self.assertFalse(sleep.called)
        until(lambda: told, 'is told')
        self.assertEqual([*storage._contention.inside], ['another'])
        storage.tpc_abort(under_way)
