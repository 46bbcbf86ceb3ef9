"""`kill -9` under load, again and again: nothing acknowledged is missing, and
each restart scans at most `index-checkpoint` bytes.

Unless a pack was swapping the files, and the index was there first.
"""

import os
import random

from fsyncstorage import datafile
from fsyncstorage.commit import policies
from fsyncstorage.format import index

from ..often import often
from .loaded import Loaded


class Kill(Loaded):

    level = 2
    times = often(1, 40)    # of each policy

    def test_nothing_acknowledged_is_missing(self):
        for policy in often(('none', 'two-sync'), policies.POLICIES):
            with self.subTest(policy):
                self.kill_often(policy)

    def kill_often(self, policy):
        rng = random.Random(policy)
        # Commits that wait for no disk are too fast for a small one.
        self.checkpoint = (
            2 if policies.POLICIES[policy].promises else 16) << 20
        self.acknowledged = self.path(f'{policy}.acknowledged')
        home = self.path(policy)
        os.mkdir(home)
        for time in range(self.times):
            with self.load(home, policy) as process:
                self.wait_for_commits(process, rng.randrange(1, 1000))
            swapping = index_of_packed_is_first(home)
            scanned = self.check(home, policy)
            if not swapping:
                self.assertLessEqual(scanned, self.checkpoint)


def index_of_packed_is_first(home):
    """Does the index belong to the file that is to replace Data.fs?"""
    try:
        packed = datafile.open_existing(os.path.join(home, 'Data.fs.pack'))
    except FileNotFoundError:
        return False
    with packed:
        loaded = index.load(os.path.join(home, 'Data.fs.index'))
        return loaded.fingerprint == index.fingerprint(packed, loaded.position)
