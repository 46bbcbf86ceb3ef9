"""Mutated data files and indexes, through check, salvage and opening.

Each takes at most 10 times the time and 2 times the memory of the sound file,
and raises nothing but what a damaged file is refused with.  A failure names
the number of the mutation: `Mutations.make` makes it again.
"""

import logging
import os
import subprocess
import sys
from unittest import mock

from fsyncstorage import datafile

from ..often import often
from ..support import TestCase
from .mutating import Fuzzer

MOST_TIME = 10
MOST_MEMORY = 2


class MutationTests(TestCase):

    #: So many mutations, and so many of which the memory is counted.
    level = 2
    number = often(40, 1000)
    traced = often(8, 150)

    def setUp(self):
        super().setUp()
        logging.disable()
        self.addCleanup(logging.disable, logging.NOTSET)
        # What is durable is not asked here.
        for name in 'sync', 'sync_directory':
            patch = mock.patch.object(datafile.Disk, name)
            patch.start()
            self.addCleanup(patch.stop)

    def test_time(self):
        fuzzer = Fuzzer(self.directory, traced=False)
        for number in range(self.number):
            for name, seconds, _ in fuzzer.run(number):
                if seconds > MOST_TIME:  # or was the machine busy?
                    seconds = min(self.again(fuzzer, number, name))
                self.assertLess(seconds, MOST_TIME, (number, name))

    def again(self, fuzzer, number, wanted):
        for _ in range(3):
            for name, seconds, _ in fuzzer.run(number):
                if name == wanted:
                    yield seconds

    def test_memory(self):
        fuzzer = Fuzzer(self.directory)
        for number in range(self.traced):
            for name, _, memory in fuzzer.run(number):
                self.assertLess(memory, MOST_MEMORY, (number, name))


class ManyMutationsTests(TestCase):
    """In processes of their own, with a limit to their memory."""

    level = 3
    NUMBER = 100_000
    AT_A_TIME = 5000

    def test_none_is_dear(self):
        for begin in range(0, self.NUMBER, self.AT_A_TIME):
            done = subprocess.run(
                [sys.executable, '-m', 'tests.check.mutating',
                 str(begin), str(begin + self.AT_A_TIME)],
                capture_output=True, text=True,
                env=dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)))
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
