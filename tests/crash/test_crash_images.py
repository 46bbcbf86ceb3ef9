"""After a power cut at any moment: nothing promised is lost, nothing damaged.

Each test records one workload under one policy, builds directories that a
power cut could have left, opens each, and holds it against what was promised.
"""

import functools
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
from .harness.full import FullDisk
from .harness.judge import DAMAGED
from .harness.judge import HOLE
from .harness.judge import INVENTED
from .harness.judge import LOST
from .harness.judge import REFUSED
from .harness.judge import Judge
from .harness.judge import WithRemedy
from .harness.tearing import MODELS
from .harness.tearing import STALE
from .harness.tearing import TORN_RENAMES

# So many times the images that a workload is good for; and as many times as
# this there are, also of a workload with few steps.
TIMES = often(0.25, 30, 0.4)
FEWEST_TIMES = min(TIMES, 6)
# For each policy: so many torn files, and so many images of the recovery of
# each.
TORN_FILES = often(2, 12)
IMAGES_OF_A_RECOVERY = often(20, 400)
IMAGES_OF_WEAKER = 700
# So many it takes until stock refuses one.
IMAGES_OF_STOCK = often(100, 200)
#: What `make check` judges a sample of.
SAMPLE = 'commits', 'batches', 'checkpoints', 'blobs', 'pack'
#: What level 2 judges without reserves, too.
WITHOUT_RESERVES = 'commits', 'retry', 'batches', 'blobs'

POLICIES_OF_LIVES = often(('none', 'group-commit'), tuple(POLICIES))
# Before which of its operations on files a process is killed, and how many
# images of the life after that are judged.
KILLED_BEFORE = often((20,), range(3, 70, 17))
IMAGES_OF_A_LIFE = often(6, 150)

TO_BE_KILLED = {
    'killed_commits': workloads.Commits(),
    'killed_blobs': workloads.Blobs(),
    'killed_blob_creation': workloads.BlobCreation(),
    'killed_pack': workloads.Pack(),
    'killed_blob_pack': workloads.BlobPack(keep_old=False),
    'killed_checkpoints': workloads.Checkpoints(),
}


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


class Checking(unittest.TestCase):

    def check(self, policy, workload):
        recording = campaign.record(workload, ours(policy))
        self.judge(
            policy, recording, int(workload.images * TIMES),
            fewest=int(workload.images * FEWEST_TIMES))

    def judge(self, policy, recording, images, fewest=1, models=MODELS,
              by=Judge, make=None, **of_judge):
        judge = by(make or ours(policy), policy, recording.ledger,
                   recording.blobs, **of_judge)
        count, wrong = campaign.wrong(
            campaign.trial(recording, judge, images, models))
        self.assertEqual(wrong, {})
        self.assertGreaterEqual(count, fewest)

    def lives_after(self, first, model, times):
        """So many torn directories that a recording may leave, each with what
        a site needs that begins there."""
        for case in itertools.islice(
                campaign.cases(first, model, 5 * times), 0, None, 5):
            yield {'over': case.image, 'ledger': first.ledger,
                   'standing': case.standing}


class Workloads(Checking):

    def test_each(self):
        """I1, I3, I11: under each policy, or (at level 2) under every second
        one, in turn."""
        for turn, policy in enumerate(POLICIES):
            found = workloads_for(policy)
            for name in often([*found][turn % 2::2], found, SAMPLE):
                with self.subTest(policy, workload=name):
                    self.check(policy, found[name])


class CrashImages(Checking):

    level = 2

    def test_without_reserves(self):
        """On a file system that reserves no room each vote writes."""
        with mock.patch.object(allocation, 'is_in_place', lambda fd: False):
            for policy in POLICIES:
                found = workloads_for(policy)
                for name in often(WITHOUT_RESERVES, found):
                    with self.subTest(policy, workload=name):
                        self.check(policy, found[name])

    def test_recovery(self):
        """A power cut while a torn file is repaired, and after it.

        (Of a repair with few steps there are fewer images than are asked.)
        """
        for policy in POLICIES:
            first = campaign.record(workloads.Commits(), ours(policy))
            for life in self.lives_after(
                    first, '512-byte blocks', TORN_FILES):
                with self.subTest(policy):
                    self.judge(policy, campaign.record(
                        workloads.Recovery(), ours(policy), **life),
                        IMAGES_OF_A_RECOVERY)

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
            for _, case, problems in campaign.trial(
                    recording, judge, IMAGES_OF_STOCK):
                for problem in problems:
                    refused += problem.kind == REFUSED
                    self.assertNotIn(
                        problem.kind, (LOST, HOLE, INVENTED, DAMAGED),
                        f'{problem.words} ({case.words})')
        self.assertGreater(refused, 0)


def slow(policy):
    """A storage for SlowSyncs."""
    return functools.partial(
        FsyncStorage, durability=policy, group_commit_delay=0,
        sync_interval=workloads.SlowSyncs.INTERVAL)


class CrashLives(Checking):
    """After something else went wrong: the process was killed, the disk was
    full, or syncs took long while others committed.

    What was written before, and not synced, is still not durable: each life
    has to sync what it relies on.
    """

    level = 2

    def test_what_a_killed_process_left(self):
        for policy, name in itertools.product(POLICIES_OF_LIVES, TO_BE_KILLED):
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
        for policy in POLICIES_OF_LIVES:
            for room in 0, 900:
                with self.subTest(policy, room=room):
                    workload = workloads.DiskFull(room)
                    self.judge(policy, campaign.record(
                        workload, ours(policy), disk=FullDisk),
                        int(workload.images * TIMES))


class Weaker(Checking):
    """What is weaker than the model of a power cut, and than POSIX.

    Blocks to which nothing got show what the disk had there before, and not
    zeros; and of a rename within a directory, each half is kept or lost by
    itself: then a storage may refuse to open, if it says which file to rename.
    """

    level = 3

    def test_blocks_that_show_what_was_there_before(self):
        self.each(('commits', 'retry', 'pack', 'pack_without_old', 'undo'),
                  STALE, Judge)
        for policy in POLICIES:
            with self.subTest(policy, workload='same_places'):
                self.judge(
                    policy, campaign.record(
                        workloads.SamePlaces(), ours(policy)),
                    IMAGES_OF_WEAKER, models=STALE)

    def test_halves_of_renames(self):
        self.each(('pack', 'pack_without_old', 'blob_pack', 'checkpoints',
                   'blobs'), TORN_RENAMES, WithRemedy)

    def each(self, names, models, by):
        for policy in POLICIES:
            for name in names:
                with self.subTest(policy, workload=name):
                    recording = campaign.record(
                        workloads_for(policy)[name], ours(policy))
                    self.judge(policy, recording, IMAGES_OF_WEAKER,
                               models=models, by=by)
