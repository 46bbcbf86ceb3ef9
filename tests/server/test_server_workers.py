"""Worker threads, and the mailbox by which they reach the loop.  Goes with
`server/workers.py` and `server/threads.py`.
"""

import gc
import sys
import threading
import weakref
from unittest import mock

from fsyncstorage.server import workers
from fsyncstorage.server.accounts import Account
from fsyncstorage.server.accounts import Accounts
from fsyncstorage.server.workers import Workers

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


class Jobs(TestCase):

    def setUp(self):
        super().setUp()
        self.posted = threading.Semaphore(0)
        self.results = []
        self.make_workers()
        self.go_on = threading.Event()
        self.addCleanup(lambda: self.workers.close())
        self.addCleanup(self.go_on.set)

    def make_workers(self, at_once=None):
        #: Whoever has it does what the loop does.
        self.loop = threading.RLock()
        self.workers = Workers('worker', 3, self)
        self.line = self.workers.line(Account(Accounts(), None), at_once)

    def post(self, function, *arguments):
        """As a mailbox has it; who waits for it is in another thread."""
        with self.loop:
            function(*arguments)
        self.posted.release()

    def done(self, result, error):
        self.results.append((result, error))

    def submit(self, function, *arguments):
        with self.loop:
            return self.line.submit(self.done, function, *arguments)

    def wait(self, number=1):
        for _ in range(number):
            self.assertTrue(self.posted.acquire(timeout=PATIENCE))

    def hold(self, number):
        """Jobs that have begun, and do not end until `go_on`."""
        begun = threading.Semaphore(0)

        def job():
            begun.release()
            assert self.go_on.wait(PATIENCE)

        for _ in range(number):
            self.submit(job)
        for _ in range(min(number, 3)):
            self.assertTrue(begun.acquire(timeout=PATIENCE))

    def threads(self):
        return [thread for thread in threading.enumerate()
                if thread.name.startswith('worker ')]

    def test_a_job_that_would_end_its_thread(self):
        for _ in range(4):
            self.submit(sys.exit, 'the end')
        self.submit(int)
        self.wait(5)
        errors = [error for _, error in self.results if error is not None]
        self.assertEqual(
            [str(error) for error in errors],
            ["it was ended by SystemExit('the end')"] * 4)
        until(lambda: not self.workers.busy, 'none is busy')

    def test_an_error_keeps_nothing(self):
        """Such as a file, which a pack has replaced meanwhile."""
        class Used:
            pass

        def job():
            used = Used()
            kept.append(weakref.ref(used))
            raise ValueError

        kept = []
        gc.disable()
        self.addCleanup(gc.enable)
        self.submit(job)
        self.wait()
        self.results.clear()
        until(lambda: kept[0]() is None, 'it is let go')

    def start_no_more_threads(self):
        """Undo it with what is returned."""
        refused = no_more_threads()
        refused.start()
        self.addCleanup(refused.stop)
        return refused.stop

    def test_no_thread_can_be_started(self):
        """Each job has an outcome, and nothing of it stays counted."""
        start_again = self.start_no_more_threads()
        with self.assertLogs(LOG, 'ERROR') as logs:
            for _ in range(workers.AT_HAND * 3 + 1):
                self.submit(int)
        self.wait(workers.AT_HAND * 3 + 1)
        start_again()
        self.assertIn("worker 1: a thread could not be started: can't",
                      logs.output[0])
        self.assertEqual(
            {(result, type(error)) for result, error in self.results},
            {(None, RuntimeError)})
        self.assertEqual(self.workers.waiting, 0)
        self.assertEqual(self.workers._handed_out, 0)
        self.assertEqual(self.line.under_way, 0)
        self.results.clear()
        self.submit(int)
        self.wait()
        self.assertEqual(self.results, [(0, None)])

    def test_at_the_end_those_that_wait_are_dropped(self):
        """Nobody is left who could be told.  What was begun is done."""
        for handed_out in 3, 5:     # the other ones wait in their line
            with self.subTest(handed_out=handed_out):
                self.make_workers(handed_out)
                self.hold(5)
                closing = Thread(self.workers.close)
                until(self.is_closed, 'closed')
                self.go_on.set()
                closing.result()
                until(lambda: not self.threads(), 'ended')
                self.assertEqual(len(self.results), 3)
            self.go_on.clear()
            self.results.clear()

    def is_closed(self):
        return self.workers.closed

    def test_the_end_does_not_wait_for_ever(self):
        """A job may wait for another server, which does not answer."""
        self.hold(1)
        with mock.patch.object(workers, 'END_WITHIN', 0.01):
            self.workers.close()
        self.assertEqual(len(self.threads()), 1)
        self.go_on.set()
        until(lambda: not self.threads(), 'ended')
