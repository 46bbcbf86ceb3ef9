"""Threads that the system does not start."""

import threading
from unittest import mock

from fsyncstorage.server.threads import Threads

from ..support import PATIENCE
from ..support import TestCase

LOG = 'fsyncstorage.server'


def no_more_threads():
    """The system has enough of them."""
    return mock.patch.object(
        threading.Thread, 'start',
        side_effect=RuntimeError("can't start new thread"))


class NotStarted(TestCase):

    def setUp(self):
        super().setUp()
        self.done = []
        self.threads = Threads(3, 'thread')
        self.addCleanup(self.threads.shutdown)

    def test_what_is_refused_is_not_done_later(self):
        with no_more_threads(), self.assertRaisesRegex(RuntimeError, 'start'):
            self.threads.submit(self.done.append, 'refused')
        self.threads.submit(self.done.append, 'taken')
        self.threads.shutdown()
        self.assertEqual(self.done, ['taken'])

    def test_the_one_that_runs_does_all(self):
        go_on = threading.Event()
        self.addCleanup(go_on.set)
        self.threads.submit(go_on.wait, PATIENCE)
        with no_more_threads(), self.assertLogs(LOG, 'ERROR') as logs:
            self.threads.submit(self.done.append, 1)
            self.threads.submit(self.done.append, 2)
        self.assertIn('thread: a thread could not be started: can',
                      logs.output[0])
        go_on.set()
        self.threads.shutdown()
        self.assertEqual(self.done, [1, 2])
