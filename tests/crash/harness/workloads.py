"""What is done with a storage while it is recorded.

A workload prepares (cuts there are of no interest) and then runs.  Sizes are
chosen so that there are records within one sector and over several pages.
"""

import contextlib
import errno
import os
import pickle

from fsyncstorage.errors import DiskError
from fsyncstorage.format import scan

SECTOR = 512
PAGE = 4096


class Workload:

    blobs = False
    #: How many images it is good for.
    images = 60

    def prepare(self, site):
        site.open()
        site.commit({0: 20, 1: 100, 2: 600}, references=[1, 2])


class Creation(Workload):
    """A new storage, its first commit, and a close."""

    images = 40    # there are not many

    def prepare(self, site):
        pass

    def run(self, site):
        site.open()
        site.commit({0: 20})
        site.close()


class BlobCreation(Creation):

    blobs = True
    images = 60

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
        before = _end(site)
        site.commit({9: 10})
        with_ten_bytes = _end(site) - before
        free = -(_end(site) + with_ten_bytes + scan.HEADER) % SECTOR
        site.commit({9: 10 + free})
        assert (_end(site) + scan.HEADER) % SECTOR == 0

    def run(self, site):
        attempt = site.voted({1: 600})
        site.abort(attempt)
        site.commit({1: 600, 4: 300},
                    tid=attempt.tid if self._same_tid else None)


def _end(site):
    return os.path.getsize(site.path)


class SamePlaces(Workload):
    """A pack, and then transactions in places where others were before it.

    Each begins and ends with a page, so that what the disk had there may be a
    whole one, in the very place that its seal names.
    """

    def prepare(self, site):
        site.open(pack_keep_old=False)
        site.commit({0: 20}, references=[1, 2, 3])
        before = _end(site)
        site.commit({2: 500})
        self._size = 500 + PAGE - (_end(site) - before)  # of a whole page
        site.commit({3: 500 + -(2 * _end(site) - before) % PAGE})
        for _ in range(8):
            site.commit({1: self._size})
        assert _end(site) % PAGE == 0

    def run(self, site):
        site.pack()
        assert _end(site) % PAGE == 0
        site.commit({1: self._size})
        for _ in range(3):
            site.commit_later({1: self._size})
        site.commit({1: self._size})


class Unsealable(Workload):
    """Between others is one whose extension has no room for a seal."""

    images = 45

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


class Asking(Workload):
    """Some ask for more than the policy promises; others do not."""

    blobs = True
    images = 150

    def run(self, site):
        site.commit({1: 30})
        site.commit_blobs({6: 600})
        site.commit({2: 5000}, asks='group-commit')
        site.commit({1: 700, 3: 10})
        site.commit_blobs({6: 6000, 7: 10}, asks='group-commit')
        site.commit_blobs({7: 90})
        site.commit({4: 300})
        site.commit_later({1: 900, 3: 40}, asks='two-sync')
        site.commit_later({2: 10})
        site.settle()
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


class BlobCheckpoints(Workload):
    """Indexes are written while blobs are stored."""

    blobs = True

    def run(self, site):
        site.commit_blobs({1: 600, 2: 20})
        site.checkpoint(while_syncing=lambda: site.commit_later({3: 40}))
        site.commit_blobs({1: 30, 4: 5000})
        site.commit({3: 700})
        site.checkpoint()
        site.commit_blobs({2: 90})


class SlowSyncs(Workload):
    """Each sync takes its time, in which others commit; one has blobs, and so
    needs many syncs.

    Its site has a storage whose interval is `INTERVAL`, in seconds, and whose
    policy promises no sync with a commit.
    """

    blobs = True
    INTERVAL = 0.4
    SYNC = 0.036
    BLOBS = 25
    images = 30

    def run(self, site):
        site.PACE = 0.01
        site.clock.sync_takes = self.SYNC
        with site.committing_at_syncs({1: 30}):
            for step in (
                lambda: site.commit({2: 100}),
                lambda: site.commit_blobs(
                    dict.fromkeys(range(10, 10 + self.BLOBS), 20)),
                lambda: site.time_passed(0.3),
                lambda: site.commit({2: 100}),
                lambda: site.commit_blobs({3: 20}),
                lambda: site.time_passed(1.0),
            ):
                step()
                site.settle()
        site.clock.sync_takes = 0.0


class Large(Workload):
    """Transactions that are spilled to a file, and take several writes."""

    images = 12

    def run(self, site):
        site.commit({1: 900_000, 2: 700_000})
        site.abort(site.voted({3: 1_300_000}))
        site.commit({3: 1_200_000, 1: 10})


class DiskFull(Workload):
    """The disk is full after so many bytes, and is emptied in the end.

    Its site has a FullDisk.
    """

    blobs = True
    images = 24

    def __init__(self, room):
        self._room = room

    def prepare(self, site):
        site.open()
        site.commit({0: 20, 1: 100, 2: 600}, references=[1, 2, 3])
        site.commit_blobs({3: 50})
        site.commit({1: 200, 2: 700})

    def run(self, site):
        site.disk.room = self._room
        site.commit_if_it_fits({1: 300})
        site.commit_if_it_fits({2: 9000})
        site.commit_if_it_fits({3: 400, 1: 10}, blobs=[3])
        site.commit_if_it_fits({1: 30})
        with contextlib.suppress(OSError):
            site.pack()
        site.commit_if_it_fits({1: 20})
        site.close()
        site.open()
        site.commit_if_it_fits({2: 40})
        site.disk.room = None
        site.commit({2: 3000})
        site.pack()


class Killed(Workload):
    """The process is killed before one of its operations on files; another
    one opens what it left, and goes on."""

    def __init__(self, workload, operations):
        self._workload = workload
        self._operations = operations   # before that one
        self.blobs = workload.blobs

    def prepare(self, site):
        self._workload.prepare(site)
        site.recorder.operations_left = self._operations
        with contextlib.suppress(OSError, DiskError):
            self._workload.run(site)
        site.die()

    def run(self, site):
        site.resurrect()
        site.commit({1: 40})
        site.close()
        site.open()
        site.commit({2: 900, 7: 5000})


class PackAfterCrash(Workload):
    """Over what a power cut left: open, commit, and pack."""

    def __init__(self, blobs):
        self.blobs = blobs

    def prepare(self, site):
        pass

    def run(self, site):
        site.open()
        if self.blobs:
            site.commit_blobs({3: 70})
            site.commit_blobs({3: 90})
        site.commit({0: 30, 3: 40}, references=[3])
        site.pack()
        site.commit({2: 900, 7: 5000})


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
