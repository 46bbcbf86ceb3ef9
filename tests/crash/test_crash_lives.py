"""Power cuts after something else went wrong: the process was killed, the disk
was full, or syncs took long while others committed.

What was written before, and not synced, is still not durable: each life has to
sync what it relies on.
"""

import functools
import itertools

from fsyncstorage import FsyncStorage
from fsyncstorage.commit import policies

from ..often import often
from .harness import campaign
from .harness import workloads
from .harness.full import FullDisk
from .test_crash_images import TIMES
from .test_crash_images import Checking
from .test_crash_images import ours

POLICIES = often(('none', 'group-commit'), tuple(policies.POLICIES))
# Before which of its operations on files a process is killed, and how many
# images of the life after that are judged.
KILLED_BEFORE = often(range(3, 70, 33), range(3, 70, 17))
IMAGES_OF_A_LIFE = often(6, 150)

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


class CrashLives(Checking):

    level = 2

    def test_what_a_killed_process_left(self):
        for policy, name in itertools.product(POLICIES, TO_BE_KILLED):
            for operations in KILLED_BEFORE:
                with self.subTest(policy, name=name, operations=operations):
                    self.judge(policy, campaign.record(
                        workloads.Killed(TO_BE_KILLED[name], operations),
                        ours(policy)), IMAGES_OF_A_LIFE)

    def test_slow_syncs(self):
        """What `interval` promises, by a clock that runs while it syncs."""
        for policy in 'none', 'interval':
            with self.subTest(policy):
                make, workload = slow(policy), workloads.SlowSyncs()
                self.judge(
                    policy, campaign.record(workload, make),
                    int(workload.images * TIMES), make=make,
                    interval=workload.INTERVAL + workload.SYNC)

    def test_a_full_disk(self):
        for policy in POLICIES:
            for room in 0, 900:
                with self.subTest(policy, room=room):
                    workload = workloads.DiskFull(room)
                    self.judge(policy, campaign.record(
                        workload, ours(policy), disk=FullDisk),
                        int(workload.images * TIMES))
