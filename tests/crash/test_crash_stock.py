"""What the same power cuts leave of stock FileStorage: the harness can fail.

The same workloads and models as in test_crash_images.  What they prepare is
taken to be on the disk: stock never syncs a directory, and else all would be
lost with the name of the file.
"""

import unittest

from ZODB.FileStorage import FileStorage

from .harness import campaign
from .harness import judge
from .harness import workloads
from .harness.tally import Report
from .harness.tally import Tally

BLOCKS = '512-byte blocks', '4-KiB blocks'

# What is served without a word, and is not what was stored.
CORRUPT = judge.HOLE, judge.INVENTED, judge.DAMAGED, judge.UNREADABLE


# Of each workload.
IMAGES = 330

REPORT = Report(
    __name__, 'Crash images of stock FileStorage', 'workload', 'model')


class StockFileStorage(unittest.TestCase):

    level = 2
    layer = REPORT

    def judged(self, name, workload):
        """The tally of this workload."""
        recording = campaign.record(workload, FileStorage, settled=True)
        by = judge.Judge(
            FileStorage, 'stock', recording.ledger, recording.blobs)
        tally = Tally(name, 'model')
        with REPORT.tally.timed():
            for model, _, problems in campaign.trial(
                    recording, by, IMAGES):
                REPORT.tally.count((name, model), problems)
                tally.count((model,), problems)
        return tally

    def check_commits(self, name, workload):
        tally = self.judged(name, workload)
        self.assertGreater(tally.found([judge.REFUSED], BLOCKS), 0)
        return tally

    def check_pack(self, name, workload):
        tally = self.judged(name, workload)
        self.assertGreater(tally.found([judge.LOST]), 0)
        self.assertGreater(tally.found([judge.EMPTIED]), 0)

    def test_commits(self):
        tally = self.check_commits('commits', workloads.Commits())
        self.assertGreater(tally.found(CORRUPT, BLOCKS), 0)

    def test_pack(self):
        self.check_pack('pack', workloads.Pack())

    def test_blobs(self):
        tally = self.judged('blobs', workloads.Blobs())
        self.assertGreater(tally.found([judge.BLOB]), 0)

    def test_blob_pack(self):
        tally = self.judged('blob_pack', workloads.BlobPack())
        self.assertGreater(tally.found([judge.BLOB]), 0)
        self.assertGreater(tally.found([judge.EMPTIED]), 0)
