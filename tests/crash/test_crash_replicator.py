"""A node that writes under `quorum` loses its power at any moment: what its
start makes of its files and of the log is what the log says, and has all that
was acknowledged.

In a pack, that is at any step of it; the node finishes the swap of its files,
or takes it back, or packs again.
"""

import itertools
import unittest

from fsyncstorage.quorum.leading.replicator import Replicator

from ..often import often
from .harness import campaign
from .harness import logged
from .harness import workloads
from .harness.judge import LOST
from .harness.judge import REFUSED

IMAGES = often(12, 6_000)
TORN_FILES = often(2, 6)


class Keeping(workloads.Commits):
    """What the node keeps is saved in between."""

    def run(self, site):
        for number, size in enumerate((30, 5000, 700, 20)):
            site.commit({1 + number % 2: size})
            logged.keep(site)
            site.commit_later({3: size})
            logged.keep(site)
        site.settle()


class Blobs(workloads.Blobs):
    """With blobs, and what the node keeps is saved in between."""

    def prepare(self, site):
        super().prepare(site)
        logged.keep(site)

    def run(self, site):
        site.commit_blobs({4: 600})
        logged.keep(site)
        super().run(site)


class BlobRecovery(workloads.Recovery):

    blobs = True

    def run(self, site):
        super().run(site)
        site.commit_blobs({8: 50})


WORKLOADS = {
    'commits': workloads.Commits(),
    'retry': workloads.Retry(same_tid=False),
    'retry_with_the_same_tid': workloads.Retry(same_tid=True),
    'unsealable': workloads.Unsealable(),
    'batches': workloads.Batches(held_up=True),
    'asynchronous': workloads.Asynchronous(),
    'undo': workloads.Undo(),
    'pack': workloads.Pack(),
    'pack_without_old': workloads.Pack(keep_old=False),
    'checkpoints': workloads.Checkpoints(),
    'blobs': Blobs(),
    'blob_checkpoints': workloads.BlobCheckpoints(),
    'failing_sync': workloads.FailingSync(seed=1),
    'keeping': Keeping(),
}


class CrashImages(unittest.TestCase):

    level = 2

    def judge(self, recording, number):
        count, wrong = campaign.wrong(logged.trial(recording, number))
        self.assertEqual(wrong, {})
        return count

    def test_each_workload(self):
        for number, (name, workload) in enumerate(WORKLOADS.items()):
            for is_late in often([number % 2 > 0], [False, True]):
                with self.subTest(name, is_late=is_late):
                    count = self.judge(logged.record(
                        workload, is_late=is_late), IMAGES)
                    self.assertGreater(count, 5)

    def test_a_power_cut_during_the_start(self):
        for workload, recovery in (
                (Keeping(), workloads.Recovery()), (Blobs(), BlobRecovery())):
            first = logged.record(workload, is_late=True)
            torn = campaign.cases(
                first.recording, '512-byte blocks', 9 * TORN_FILES)
            for case in itertools.islice(torn, 0, None, 9):
                self.judge(logged.record(
                    recovery, over=case.image,
                    records=first.records[:case.standing.landed],
                    ledger=first.recording.ledger, standing=case.standing,
                    staged=first.staged), IMAGES)


class Mutants(unittest.TestCase):
    """Replicators that break their promise, and are found out."""

    level = 2

    def found(self, replicator, **of_node):
        recording = logged.record(
            Keeping(), replicator=replicator, **of_node)
        return (problem.kind
                for _, _, problems in logged.trial(recording, 3000)
                for problem in problems)

    def test_one_that_does_not_wait_for_the_log(self):
        class Hasty(Replicator):

            def sync(self, end, read, commits, sync_disk):
                sync_disk()
                super().sync(self._writer.state.end, read, [], lambda: None)

        self.assertIn(LOST, self.found(Hasty))

    def test_one_that_keeps_what_its_disk_has_not(self):
        class Careless(Replicator):

            def sync(self, end, read, commits, sync_disk):
                super().sync(end, read, commits, lambda: None)

        self.assertIn(REFUSED, self.found(Careless))
