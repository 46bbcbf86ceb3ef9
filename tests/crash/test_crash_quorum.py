"""I16: after a power cut at any moment, a node comes back to what a log says.

A standby, its packs and the start of a node are recorded; of each, directories
are built that a power cut could have left, and a node is started over them.
None may be refused, and each must have the bytes of the log, whether it is the
log of that moment, or another node has led since.

(A primary, which is a storage, is in test_crash_replicator.)
"""

import itertools
import unittest

from ..often import often
from . import nodes
from .harness import campaign
from .harness.tally import Report

REPORT = Report(__name__, 'Crash images of nodes', 'workload', 'model')

#: Of each recording of a workload, and of each start.
IMAGES, IMAGES_OF_A_START = often(40, 120), often(10, 20)


class CrashQuorum(unittest.TestCase):

    level = 2
    layer = REPORT
    #: Recordings of each workload; torn files that a node is started over.
    seeds, torn = often(2, 210), often(4, 100)

    def judge(self, name, recorded, images):
        count, wrong = REPORT.tally.count_all(
            campaign.trial(recorded.recording, nodes.Judge(recorded.logged),
                           images), name)
        self.assertEqual(wrong, {})
        return count

    def check(self, workload):
        for seed in range(self.seeds):
            with self.subTest(seed=seed):
                count = self.judge(
                    workload.__name__, nodes.record(workload, seed=seed),
                    IMAGES)
                self.assertEqual(count, IMAGES)

    def check_start(self, workload):
        """A power cut in a start, and after it."""
        first = nodes.record(workload, seed=self.seeds)
        torn = itertools.islice(
            campaign.cases(first.recording, '512-byte blocks', 9 * self.torn),
            0, None, 9)
        for case in torn:
            logged = nodes.Logged(nodes.restored(
                first.logged.engine, int(case.standing.now)))
            with self.subTest(case.words):
                count = self.judge(
                    f'start after {workload.__name__}', nodes.record(
                        nodes.start, logged, case.image), IMAGES_OF_A_START)
                self.assertGreater(count, 0)  # it may have little to do

    def test_a_standby(self):
        self.check(nodes.follow)

    def test_packs_of_a_standby(self):
        self.check(nodes.follow_packs)

    def test_the_start_of_a_standby(self):
        self.check_start(nodes.follow)

    def test_the_start_of_a_standby_that_packs(self):
        self.check_start(nodes.follow_packs)
