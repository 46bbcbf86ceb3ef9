"""What is weaker than the model of a power cut, and than POSIX.

Blocks to which nothing got show what the disk had there before, and not zeros;
and of a rename within a directory, each half is kept or lost by itself.  All
is as in test_crash_images, but that a storage may refuse to open after half of
a rename, if it names the file that has the data.
"""

import unittest

from fsyncstorage.commit.policies import POLICIES

from ..often import often
from .harness import campaign
from .harness import workloads
from .harness.judge import ForgivingJudge
from .harness.judge import Judge
from .harness.tally import Report
from .harness.tearing import STALE
from .harness.tearing import TORN_RENAMES
from .test_crash_images import ours

REPORT = Report(__name__, 'Crash images beyond the model',
                'policy', 'workload', 'model')

IMAGES = often(30, 70)


def workloads_that_grow():
    return {
        'same_places': workloads.SamePlaces(),
        'commits': workloads.Commits(),
        'retry': workloads.Retry(same_tid=False),
        'pack': workloads.Pack(),
        'pack_without_old': workloads.Pack(keep_old=False),
        'undo': workloads.Undo(),
    }


def workloads_that_rename():
    return {
        'pack': workloads.Pack(),
        'pack_without_old': workloads.Pack(keep_old=False),
        'blob_pack': workloads.BlobPack(),
        'checkpoints': workloads.Checkpoints(),
        'blobs': workloads.Blobs(),
    }


class Weaker(unittest.TestCase):

    level = 2
    layer = REPORT
    times = 1

    def check(self, policy, name, workload, models, judge):
        recording = campaign.record(workload, ours(policy))
        by = judge(ours(policy), policy, recording.ledger, recording.blobs)
        _, wrong = REPORT.tally.count_all(
            campaign.trial(recording, by, IMAGES * self.times, models),
            policy, name)
        self.assertEqual(wrong, {})

    def test_blocks_that_show_what_was_there_before(self):
        for policy in POLICIES:
            for name, workload in workloads_that_grow().items():
                with self.subTest(policy, workload=name):
                    self.check(policy, name, workload, STALE, Judge)

    def test_halves_of_renames(self):
        for policy in POLICIES:
            for name, workload in workloads_that_rename().items():
                with self.subTest(policy, workload=name):
                    self.check(policy, name, workload, TORN_RENAMES,
                               ForgivingJudge)


class MuchWeaker(Weaker):

    level = 3
    times = 10
