"""Hostile peers, in seconds: what they cost, and what they leave.

`python -m tests.server.hostile` has the long form, with the times.
"""

from fsyncstorage.server import readers

from ..often import often
from ..support import TestCase
from .hostile import attacks
from .hostile.siege import Siege

# Bytes of memory above the base: before `register`, and after it.
BEFORE = 64 << 20
AFTER = attacks.BOUND
# Of a server that was attacked at all.
ATTACKED = 1 << 20

# Processes that read.
PROCESSES = readers.number_of_processes([None])
# Threads that a server starts when they are first needed.
POOLS = 4 + 5 + PROCESSES
# Files: the end of a socket to the process that resolves conflicts; and three
# ends to each one that reads.
TO_PROCESSES = 1 + 3 * PROCESSES


class Hostile(TestCase):

    level = 2
    seconds = often(1, 4)

    def test_siege(self):
        siege = Siege(self.directory)
        self.addCleanup(siege.close)
        files, threads = siege.server.files(), siege.server.threads()
        peak = siege.attack(attacks.BEFORE, self.seconds)
        self.assertLess(peak - siege.base, BEFORE)
        peak = siege.attack(attacks.AFTER, self.seconds)
        self.assertGreater(peak - siege.base, ATTACKED)
        self.assertLess(peak - siege.base, AFTER)
        left_files, left_threads = siege.rest(
            files + TO_PROCESSES, threads + POOLS)
        self.assertLessEqual(left_files, files + TO_PROCESSES)
        self.assertLessEqual(left_threads, threads + POOLS)
        self.assertIsNone(siege.honest.error)
        self.assertGreater(len(siege.honest.waits), 10)
