"""After a power cut, with the file of a release that is not written yet.

A storage of that release records a workload; the storage of this one opens
what a power cut left.  Where that release had promised something, this one
refuses the file, and changes nothing.
"""

import unittest

from fsyncstorage import FsyncStorage
from fsyncstorage.format import seal

from ..format.sealing import later_release
from ..often import often
from .harness import campaign
from .harness import workloads
from .harness.judge import Judge
from .harness.judge import _everything_in

POLICY = 'group-commit'
IMAGES = often(60, 1000)


def make(path, **options):
    return FsyncStorage(
        path, durability=POLICY, group_commit_delay=0, **options)


def without_lock(directory):
    return {path: content
            for path, content in _everything_in(directory).items()
            if not path.endswith('.lock')}


class Refusing(Judge):

    refused = 0

    def verdict(self, directory, standing, thorough=False):
        before = without_lock(directory)
        try:
            seen = self._open_and_look(self._make, directory)
        except Exception as failed:
            if not isinstance(failed.__cause__, seal.UnknownVersion):
                raise
            self.refused += 1
            return [] if without_lock(directory) == before else [
                'it was refused, and changed']
        return [f'{tid.hex()} was promised' for tid in standing.owed(POLICY)
                ] and [f'opened, with {len(seen.transactions)} transactions']


class LaterReleases(unittest.TestCase):

    level = 2

    def test_what_it_has_promised_is_refused_and_kept(self):
        for workload in (
                workloads.Commits(), workloads.Batches(held_up=True),
                workloads.Reopening(), workloads.Large()):
            with self.subTest(type(workload).__name__):
                with later_release():
                    recording = campaign.record(workload, make)
                judge = Refusing(make, POLICY, recording.ledger)
                for _, case, problems in campaign.trial(
                        recording, judge, IMAGES):
                    self.assertEqual(problems, [], case.words)
                self.assertGreater(judge.refused, IMAGES // 2)
