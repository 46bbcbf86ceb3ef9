"""What is done with a storage while it is recorded.

A workload prepares (cuts there are of no interest) and then runs.  Sizes are
chosen so that there are records within one sector and over several pages.
"""

import contextlib
import errno
import os
import pickle

from fsyncstorage import scan
from fsyncstorage.errors import DiskError

SECTOR = 512


class Workload:

    blobs = False
    #: How many images are judged.
    images = 330

    def prepare(self, site):
        site.open()
        site.commit({0: 20, 1: 100, 2: 600}, references=[1, 2])

    def run(self, site):
        raise NotImplementedError


class Creation(Workload):
    """A new storage, its first commit, and a close."""

    images = 120    # there are not many

    def prepare(self, site):
        pass

    def run(self, site):
        site.open()
        site.commit({0: 20})
        site.close()


class BlobCreation(Creation):

    blobs = True
    images = 200

    def run(self, site):
        site.open()
        site.commit({0: 20})
        site.commit_blobs({1: 600})
        site.close()


class Commits(Workload):
    """One after the other; one is aborted after its vote."""

    def run(self, site):
        site.commit({1: 30})
        site.commit({2: 5000, 3: 10})
        site.abort(site.voted({1: 700, 4: 300}))
        site.commit({1: 700})
        site.commit({4: 300, 5: 9000, 1: 1})


class Retry(Workload):
    """Aborted after its vote, and tried again with one object more.

    Its header and what follows are in different blocks: what is left of the
    first attempt can stand between parts of the second.
    """

    def __init__(self, same_tid):
        self._same_tid = same_tid   # as when a copy is tried again

    def prepare(self, site):
        super().prepare(site)
        before = self._end(site)
        site.commit({9: 10})
        with_ten_bytes = self._end(site) - before
        free = -(self._end(site) + with_ten_bytes + scan.HEADER) % SECTOR
        site.commit({9: 10 + free})
        assert (self._end(site) + scan.HEADER) % SECTOR == 0

    def _end(self, site):
        return os.path.getsize(site.path)

    def run(self, site):
        attempt = site.voted({1: 600})
        site.abort(attempt)
        site.commit({1: 600, 4: 300},
                    tid=attempt.tid if self._same_tid else None)


class Unsealable(Workload):
    """Between others is one whose extension has no room for a seal."""

    images = 150

    def run(self, site):
        site.commit({1: 3000})
        site.commit({2: 3000}, extension=pickle.dumps({'x': 'y' * 65480}))
        site.commit({3: 700})


class Batches(Workload):
    """Several threads commit at once."""

    batches = (
        [{10: 30}, {11: 300}, {12: 4000}, {13: 30, 14: 90}, {15: 1500}],
        [{10: 700}, {11: 20}, {12: 40}],
    )

    def __init__(self, held_up):
        self._held_up = held_up

    def run(self, site):
        for batch in self.batches:
            site.commit_together(batch, self._held_up)


class Asynchronous(Workload):
    """Finishes that do not wait."""

    def run(self, site):
        for number, size in enumerate((40, 900, 5000, 10, 300)):
            site.commit_later({number % 3: size})
        site.commit({1: 50})


class Undo(Workload):
    """Of a change, of that undo, and of a creation."""

    def run(self, site):
        changed = site.commit({1: 2000})
        created = site.commit({6: 600, 2: 50})
        undone = site.commit_undo(changed)
        site.commit_undo(undone)
        site.commit_undo(created)
        site.commit({3: 10})


class Pack(Workload):
    """With commits before it, on the way, and after it."""

    def __init__(self, keep_old=True):
        self._keep_old = keep_old

    def prepare(self, site):
        site.open(pack_keep_old=self._keep_old)
        site.commit({0: 20, 1: 100, 2: 600, 3: 9}, references=[1, 2, 3])
        site.commit({1: 300, 2: 5000, 3: 40})
        site.commit({1: 30, 5: 2000})   # 5 is garbage

    def run(self, site):
        site.pack(
            before_copying=lambda: site.commit(
                {0: 20, 4: 800, 1: 10}, references=[1, 2, 3, 4]),
            while_syncing=lambda: site.commit_later({3: 900, 1: 5}),
            after_swapping=lambda: site.commit({2: 10}))
        site.commit({2: 700})
        site.commit({3: 40, 1: 30})
        site.pack()
        site.commit({1: 3000})


class Reopening(Workload):
    """Close, open with the index that the close left, go on."""

    def run(self, site):
        for size in 100, 3000:
            site.commit({1: size, 2: 20})
            site.close()
            site.open()
        site.commit({3: 40})


class Blobs(Workload):
    """Blobs stored, replaced, aborted and undone."""

    blobs = True

    def prepare(self, site):
        site.open()
        site.commit({0: 20}, references=[1, 2, 3])
        site.commit_blobs({1: 50})

    def run(self, site):
        replaced = site.commit_blobs({1: 6000, 2: 10})
        attempt = site.begin()
        site.store_blob(attempt, 1, 100)
        site.vote(attempt)
        site.abort(attempt)
        site.commit_undo(replaced)
        site.commit({3: 700})
        site.commit_blobs({1: 20})


class BlobPack(Workload):
    """A pack that removes blobs."""

    blobs = True

    def __init__(self, keep_old=True):
        self._keep_old = keep_old

    def prepare(self, site):
        site.open(pack_keep_old=self._keep_old)
        site.commit({0: 20}, references=[1])
        site.commit_blobs({1: 50, 2: 90})   # 2 is garbage
        site.commit_blobs({1: 600})

    def run(self, site):
        site.pack(before_copying=lambda: site.commit_blobs({1: 30}))
        site.commit_blobs({3: 40, 1: 10})
        site.pack()


class Checkpoints(Workload):
    """Indexes are written while commits go on; stock has nothing like it."""

    def run(self, site):
        for number in range(3):
            site.commit({1: 3000, 2: 20})
            site.commit({3 + number: 600})
            site.checkpoint(
                while_syncing=lambda: site.commit_later({1: 40, 7: 2000}))
        site.commit({1: 30})


class Recovery(Workload):
    """Over what a power cut left: open, and go on."""

    def prepare(self, site):
        pass

    def run(self, site):
        site.open()
        site.commit({1: 40})
        site.commit({2: 900, 7: 5000})


class FailingSync(Workload):
    """A sync fails, and nobody can commit any more, until it is reopened."""

    def __init__(self, seed):
        self._seed = seed   # of what the disk kept nevertheless

    def run(self, site):
        site.recorder.random.seed(self._seed)
        site.commit({1: 300})
        site.commit({1: 3000, 2: 5000})
        errors = iter([OSError(errno.EIO, 'Input/output error')])
        site.recorder.on_sync = lambda file: _raise_next(errors)
        for number in 1, 2:
            with contextlib.suppress(DiskError):
                site.commit({number: 3000})
        # Here at the latest, it fails.
        site.close()
        site.open()
        site.commit({1: 700})


def _raise_next(errors):
    for error in errors:
        raise error
