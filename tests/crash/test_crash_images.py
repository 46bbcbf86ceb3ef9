"""After a power cut at any moment: nothing promised is lost, nothing damaged.

Each test records one workload under one policy, builds directories that a
power cut could have left, opens each, and holds it against what was promised.
At the end a summary says how many there were.
"""

import itertools
import unittest
from unittest import mock

from ZODB.FileStorage import FileStorage

from fsyncstorage import FsyncStorage
from fsyncstorage import allocation
from fsyncstorage.commit.policies import POLICIES

from ..often import often
from .harness import campaign
from .harness import workloads
from .harness.judge import DAMAGED
from .harness.judge import HOLE
from .harness.judge import INVENTED
from .harness.judge import LOST
from .harness.judge import REFUSED
from .harness.judge import Judge
from .harness.tally import Report

# What the whole run judges at least.
IMAGES = often(6_000, 20_000)

# For each policy: so many torn files, and so many images of the recovery of
# each.
TORN_FILES = often(6, 12)
IMAGES_OF_A_RECOVERY = often(20, 40)

# So many it takes until stock refuses one.
IMAGES_OF_STOCK = 200


def workloads_for(policy):
    return {
        **({} if POLICIES[policy].promises else {
            'asking': workloads.Asking()}),
        'creation': workloads.Creation(),
        'blob_creation': workloads.BlobCreation(),
        'commits': workloads.Commits(),
        'retry': workloads.Retry(same_tid=False),
        'retry_with_the_same_tid': workloads.Retry(same_tid=True),
        'unsealable': workloads.Unsealable(),
        'batches': workloads.Batches(held_up=POLICIES[policy].promises),
        'asynchronous': workloads.Asynchronous(),
        'undo': workloads.Undo(),
        'pack': workloads.Pack(),
        'pack_without_old': workloads.Pack(keep_old=False),
        'reopening': workloads.Reopening(),
        'checkpoints': workloads.Checkpoints(),
        'large': workloads.Large(),
        'blobs': workloads.Blobs(),
        'blob_checkpoints': workloads.BlobCheckpoints(),
        'blob_pack': workloads.BlobPack(),
        'blob_pack_without_old': workloads.BlobPack(keep_old=False),
        'failing_sync_1': workloads.FailingSync(seed=1),
        'failing_sync_2': workloads.FailingSync(seed=2),
    }


def ours(policy):
    def make(path, **options):
        return FsyncStorage(
            path, durability=policy, group_commit_delay=0, **options)
    return make


REPORT = Report(__name__, 'Crash images', 'policy', 'workload', 'model')


class Checking(unittest.TestCase):

    layer = REPORT
    times = 1

    def check(self, policy, name, workload):
        recording = campaign.record(workload, ours(policy))
        self.judge(policy, name, recording, workload.images)

    def judge(self, policy, name, recording, images, fewest=None):
        judge = Judge(ours(policy), policy, recording.ledger, recording.blobs)
        count, wrong = REPORT.tally.count_all(
            campaign.trial(recording, judge, images * self.times),
            policy, name)
        self.assertEqual(wrong, {})
        self.assertGreaterEqual(count, fewest or images)

    def check_recovery(self, policy):
        """A power cut while a torn file is repaired, and after it.

        (Of a repair with few steps there are fewer images than are asked.)
        """
        commits = campaign.record(workloads.Commits(), ours(policy))
        torn = itertools.islice(
            campaign.cases(commits, '512-byte blocks', 5 * TORN_FILES),
            0, None, 5)
        for case in torn:
            self.judge(policy, 'recovery', campaign.record(
                workloads.Recovery(), ours(policy), over=case.image,
                ledger=commits.ledger, standing=case.standing,
            ), IMAGES_OF_A_RECOVERY, fewest=IMAGES_OF_A_RECOVERY // 2)


class CrashImages(Checking):

    level = 2

    def test_there_are_enough_images(self):
        planned = sum(
            TORN_FILES * IMAGES_OF_A_RECOVERY + sum(
                workload.images for workload in workloads_for(policy).values())
            for policy in POLICIES)
        self.assertGreaterEqual(planned, IMAGES)

    def test_stock_opens_no_torn_commit_of_two_sync_as_good(self):
        """It may refuse to open; that is said in docs/durability.rst."""
        refused = 0
        for workload in (
            workloads.Commits(),
            workloads.Batches(held_up=True),
            workloads.Undo(),
        ):
            recording = campaign.record(workload, ours('two-sync'))
            judge = Judge(FileStorage, 'stock', recording.ledger)
            for model, case, problems in campaign.trial(
                    recording, judge, IMAGES_OF_STOCK):
                for problem in problems:
                    refused += problem.kind == REFUSED
                    self.assertNotIn(
                        problem.kind, (LOST, HOLE, INVENTED, DAMAGED),
                        f'{problem.words} ({case.words})')
        self.assertGreater(refused, 0)


class _NoReserves:
    """On a file system that reserves no room each vote writes."""

    def setUp(self):
        super().setUp()
        patch = mock.patch.object(allocation, 'is_in_place', lambda fd: False)
        patch.start()
        self.addCleanup(patch.stop)


class WithoutReserves(_NoReserves, Checking):
    """Some; at level 2, all."""

    level = 2

    def test_some(self):
        for policy in POLICIES:
            for name, workload in workloads_for(policy).items():
                if name in ('commits', 'retry', 'batches', 'blobs'):
                    with self.subTest(policy=policy, name=name):
                        self.check(policy, name, workload)


class AllWithoutReserves(_NoReserves, CrashImages):

    level = 3


class ManyCrashImages(CrashImages):

    level = 3
    times = 10


def _add_tests():
    for policy in POLICIES:
        suffix = policy.replace('-', '_')
        for name, workload in workloads_for(policy).items():
            setattr(CrashImages, f'test_{name}_{suffix}',
                    lambda self, arguments=(policy, name, workload):
                    self.check(*arguments))
        setattr(CrashImages, f'test_recovery_{suffix}',
                lambda self, policy=policy: self.check_recovery(policy))


_add_tests()
