"""Power cuts after something else went wrong: the process was killed, the disk
or the quota was full, or syncs took long while others committed.

What was written before, and not synced, is still not durable: each life has to
sync what it relies on.
"""

import functools
import itertools
import unittest

from fsyncstorage import FsyncStorage
from fsyncstorage.commit.policies import POLICIES

from ..often import often
from .harness import campaign
from .harness import workloads
from .harness.full import FullDisk
from .harness.judge import Judge
from .harness.tally import Report
from .test_crash_images import ours

REPORT = Report(
    __name__, 'Crash images of lives', 'policy', 'workload', 'model')

# Before which of its operations on files a process is killed, and how many
# images of the life after that are judged.
KILLED_BEFORE = range(3, 70, 17)
IMAGES_OF_A_LIFE = often(6, 15)
# So many torn files are opened on a disk that is full.
TORN_FILES = 3

TO_BE_KILLED = {
    'killed_commits': workloads.Commits(),
    'killed_blobs': workloads.Blobs(),
    'killed_blob_creation': workloads.BlobCreation(),
    'killed_pack': workloads.Pack(),
    'killed_blob_pack': workloads.BlobPack(keep_old=False),
    'killed_checkpoints': workloads.Checkpoints(),
}


def slow(policy):
    """A storage for SlowSyncs."""
    return functools.partial(
        FsyncStorage, durability=policy, group_commit_delay=0,
        sync_interval=workloads.SlowSyncs.INTERVAL)


class CrashLives(unittest.TestCase):

    level = 2
    layer = REPORT
    times = 1

    def judge(self, policy, name, recording, images, make=None, **of_judge):
        make = make or ours(policy)
        judge = Judge(
            make, policy, recording.ledger, recording.blobs, **of_judge)
        count, wrong = REPORT.tally.count_all(
            campaign.trial(recording, judge, images * self.times),
            policy, name)
        self.assertEqual(wrong, {})
        self.assertGreater(count, 0)

    def test_what_a_killed_process_left(self):
        for policy, name in itertools.product(POLICIES, TO_BE_KILLED):
            for operations in KILLED_BEFORE:
                with self.subTest(policy, name=name, operations=operations):
                    self.judge(policy, name, campaign.record(
                        workloads.Killed(TO_BE_KILLED[name], operations),
                        ours(policy)), IMAGES_OF_A_LIFE)

    def test_slow_syncs(self):
        """What `interval` promises, by a clock that runs while it syncs."""
        for policy in 'none', 'interval':
            with self.subTest(policy):
                make, workload = slow(policy), workloads.SlowSyncs()
                self.judge(
                    policy, 'slow_syncs', campaign.record(workload, make),
                    workload.images, make,
                    interval=workload.INTERVAL + workload.SYNC)

    def test_a_full_disk(self):
        for policy in POLICIES:
            for room in 0, 900:
                with self.subTest(policy, room=room):
                    workload = workloads.DiskFull(room)
                    self.judge(policy, 'disk_full', campaign.record(
                        workload, ours(policy), disk=FullDisk),
                        workload.images)

    def test_a_quota(self):
        for policy in POLICIES:
            with self.subTest(policy):
                workload = workloads.Quota()
                self.judge(policy, 'quota', campaign.record(
                    workload, ours(policy)), workload.images)

    def test_a_torn_file_on_a_full_disk(self):
        """It is refused, in words, or opens; and opens when there is room."""
        for policy in POLICIES:
            first = campaign.record(workloads.Commits(), ours(policy))
            torn = itertools.islice(
                campaign.cases(first, '512-byte blocks', 9 * TORN_FILES),
                0, None, 9)
            for case in torn:
                with self.subTest(policy, words=case.words):
                    self.judge(policy, 'recovery_on_a_full_disk',
                               campaign.record(
                                   workloads.RecoveryOnFullDisk(),
                                   ours(policy), over=case.image,
                                   ledger=first.ledger, disk=FullDisk,
                                   standing=case.standing),
                               IMAGES_OF_A_LIFE)


class ManyCrashLives(CrashLives):

    level = 3
    times = 10
