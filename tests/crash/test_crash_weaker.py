"""What is weaker than the model of a power cut, and than POSIX.

Blocks to which nothing got show what the disk had there before, and not zeros;
and of a rename within a directory, each half is kept or lost by itself.  All
is as in test_crash_images, but that a storage may refuse to open after half of
a rename, if it names the file that has the data.
"""

from fsyncstorage.commit.policies import POLICIES

from .harness import campaign
from .harness import workloads
from .harness.judge import ForgivingJudge
from .harness.judge import Judge
from .harness.tearing import STALE
from .harness.tearing import TORN_RENAMES
from .test_crash_images import Checking
from .test_crash_images import ours

IMAGES = 700


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


class Weaker(Checking):

    level = 3

    def each(self, named_workloads, models, by):
        for policy in POLICIES:
            for name, workload in named_workloads.items():
                with self.subTest(policy, workload=name):
                    self.judge(
                        policy, name, campaign.record(workload, ours(policy)),
                        IMAGES, models=models, by=by)

    def test_blocks_that_show_what_was_there_before(self):
        self.each(workloads_that_grow(), STALE, Judge)

    def test_halves_of_renames(self):
        self.each(workloads_that_rename(), TORN_RENAMES, ForgivingJudge)
