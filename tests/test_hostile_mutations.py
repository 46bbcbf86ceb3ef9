"""Mutated data files and indexes, through check, salvage and opening.

Each takes at most 10 times the time and 2 times the memory of the sound file,
and raises nothing but what a damaged file is refused with.  Prints, when it
fails, the number of the mutation: `Mutations.make` makes it again.
"""

import logging
import os
import subprocess
import sys

from .mutating import Fuzzer
from .support import TestCase

MOST_TIME = 10
MOST_MEMORY = 2


class MutationTests(TestCase):

    NUMBER = 1000

    def setUp(self):
        super().setUp()
        logging.disable()
        self.addCleanup(logging.disable, logging.NOTSET)
        self.fuzzer = Fuzzer(self.directory)

    def test_they_cost_no_more_than_they_may(self):
        for number in range(self.NUMBER):
            with self.subTest(number):
                for name, seconds, memory in self.fuzzer.run(number):
                    self.assertLess(memory, MOST_MEMORY, name)
                    if seconds > MOST_TIME:  # or was the machine busy?
                        self.assertLess(min(self.again(number, name)),
                                        MOST_TIME, name)

    def again(self, number, name):
        for _ in range(3):
            yield next(seconds for way, seconds, _ in self.fuzzer.run(number)
                       if way == name)


class ManyMutationsTests(TestCase):
    """In processes of their own, with a limit to their memory."""

    level = 2
    NUMBER = 100_000
    AT_A_TIME = 5000

    def test_none_is_dear(self):
        for begin in range(0, self.NUMBER, self.AT_A_TIME):
            done = subprocess.run(
                [sys.executable, '-m', 'tests.mutating',
                 str(begin), str(begin + self.AT_A_TIME)],
                capture_output=True, text=True,
                env=dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)))
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
