"""What the tests of processes share: Pythons that say what a test wants, and
ends that are waited for."""

import contextlib
import os
import select
import signal
import stat
import sys
from unittest import mock

from ..support import PATIENCE
from ..support import TestCase


class StartedTestCase(TestCase):

    @staticmethod
    def end(pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    def check_gone(self, pid):
        with self.assertRaises(ProcessLookupError):
            os.kill(pid, 0)

    @contextlib.contextmanager
    def python_that_says(self, script):
        """While this lasts, a shell script stands for Python."""
        path = self.path('python')
        with open(path, 'w') as file:
            file.write(f'#!/bin/sh\n{script}\n')
        os.chmod(path, stat.S_IRWXU)
        with mock.patch.object(sys, 'executable', path):
            yield

    def wait_for_the_end_of(self, pid):
        try:
            number = os.pidfd_open(pid)
        except ProcessLookupError:
            return
        with open(number):
            ended, _, _ = select.select([number], [], [], PATIENCE)
        self.assertTrue(ended)
