"""Threads that do each job, and what they refuse."""

import threading
from unittest import mock

from fsyncstorage.server.threads import Threads

from ..support import PATIENCE
from ..support import TestCase
from ..support import Thread
from ..support import until

LOG = 'fsyncstorage.server'


def no_more_threads(error=None):
    """The system has enough of them."""
    return mock.patch.object(
        threading.Thread, 'start',
        side_effect=error or RuntimeError("can't start new thread"))


class ThreadsTest(TestCase):

    def setUp(self):
        super().setUp()
        self.done = []
        self.go_on = threading.Event()
        self.threads = Threads(3, 'thread')
        self.addCleanup(self.threads.shutdown)
        self.addCleanup(self.go_on.set)

    def hold(self, number=1):
        for _ in range(number):
            self.threads.submit(self.go_on.wait, PATIENCE)

    def number(self):
        return sum(thread.name.startswith('thread ')
                   for thread in threading.enumerate())


class Jobs(ThreadsTest):

    def test_as_many_as_are_needed(self):
        self.assertEqual(self.number(), 0)
        for number in 1, 2, 3, 3:
            self.hold()
            self.assertEqual(self.number(), number)
        self.go_on.set()
        until(lambda: not self.threads._undone, 'done')
        self.threads.submit(self.done.append, 1)
        until(lambda: self.done, 'done by one of them')

    def test_an_error_is_not_the_others_problem(self):
        for error in ValueError, SystemExit:
            with self.assertLogs(LOG, 'ERROR'):
                self.threads.submit(mock.Mock(side_effect=error))
                until(lambda: not self.threads._undone, 'done')
        self.threads.submit(self.done.append, 1)
        self.threads.shutdown()
        self.assertEqual(self.done, [1])

    def test_at_the_end_all_that_was_taken_is_done(self):
        self.hold(3)
        for number in range(5):
            self.threads.submit(self.done.append, number)
        ending = Thread(self.threads.shutdown)
        until(lambda: self.threads._closed, 'closed')
        self.go_on.set()
        ending.result()
        self.assertCountEqual(self.done, range(5))
        self.assertEqual(self.number(), 0)


class NotStarted(ThreadsTest):

    errors = RuntimeError("can't start new thread"), MemoryError()

    def test_what_is_refused_is_not_done_later(self):
        for error in self.errors:
            with no_more_threads(error), self.assertLogs(LOG, 'ERROR'), \
                    self.assertRaisesRegex(RuntimeError, 'be started'):
                self.threads.submit(self.done.append, 'refused')
        self.threads.submit(self.done.append, 'taken')
        self.threads.shutdown()
        self.assertEqual(self.done, ['taken'])

    def test_after_it_there_are_as_many_as_before(self):
        self.hold()
        with no_more_threads(), self.assertLogs(LOG, 'ERROR'):
            self.hold(2)
        self.assertEqual(self.number(), 1)
        self.hold(2)
        self.assertEqual(self.number(), 3)

