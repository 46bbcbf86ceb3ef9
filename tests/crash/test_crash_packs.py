"""Power cuts in packs: by a process of their own, after another crash, and
where a rename can be left half done.

What is not here is in test_crash_images, which judges packs as well.
"""

import contextlib
import itertools
import os
from unittest import mock

from fsyncstorage.pack import bulk
from fsyncstorage.pack import process
from fsyncstorage.pack import work

from ..often import often
from .harness import campaign
from .harness import events
from .harness import workloads
from .harness.judge import WithRemedy
from .harness.tearing import TORN_RENAMES
from .test_crash_images import Checking
from .test_crash_images import ours

# Packs do not depend on the policy but for what is synced before.
POLICIES = often(('group-commit',), ('none', 'group-commit', 'two-sync'))

IMAGES = often(10, 900)
# So many torn directories, and so many images of the life after each.
TORN = often(1, 4)
IMAGES_OF_A_LIFE = often(10, 300)
# All that there are, and so many at least.
ALL, LEAST = 60, 15


@contextlib.contextmanager
def process_recorded():
    """While this lasts, what the process of a pack does is done here, where it
    is recorded.

    It does to files what that process does (`pack.work.copied`), in the same
    order, through the same open files.
    """
    references = []

    class Process:

        pid = os.getpid()

        def __init__(self, *job):
            self._job, self._files, self._watch = job

        def copied(self, size):
            copier = work.copied(
                self._job, self._files, references[-1], self._watch.tell, size)
            return process.Done(copier.copied_to, copier.written_to)

        def close(self):
            pass

    def is_possible(of_the_pack):
        references.append(of_the_pack)
        return True

    # What is committed on the way is copied by the process, too.
    with mock.patch.object(bulk, 'Process', Process), \
            mock.patch.object(work, 'SMALL_REST', 1), \
            mock.patch.object(process, 'is_possible', is_possible):
        yield


class CrashPacks(Checking):

    level = 2

    def each(self, check):
        for policy in POLICIES:
            for workload in (
                workloads.Pack(), workloads.Pack(keep_old=False),
                workloads.BlobPack(), workloads.BlobPack(keep_old=False),
            ):
                with self.subTest(policy, workload=type(workload).__name__,
                                  keep_old=workload._keep_old):
                    check(policy, workload)

    def test_by_a_process(self):
        """The other tests pack within the process of the storage."""
        def check(policy, workload):
            with process_recorded():
                recording = campaign.record(workload, ours(policy))
            self.judge(policy, recording, IMAGES)

        self.each(check)

    def test_in_the_life_after_a_crash(self):
        def check(policy, workload):
            first = campaign.record(workload, ours(policy))
            for life in self.lives_after(first, '512-byte blocks', TORN):
                self.judge(policy, campaign.record(
                    workloads.PackAfterCrash(workload.blobs), ours(policy),
                    **life), IMAGES_OF_A_LIFE, fewest=IMAGES_OF_A_LIFE)

        self.each(check)

    def test_with_halves_of_renames(self):
        """Both names, or none: it opens, or says which file to rename, and
        opens then."""
        def check(policy, workload):
            recording = of_the_swap(campaign.record(workload, ours(policy)))
            self.judge(policy, recording, ALL, LEAST,
                       TORN_RENAMES, WithRemedy)

        self.each(check)

    def test_in_the_life_after_half_a_rename(self):
        """Two names of one file are left: nothing is emptied or removed that
        has the other name."""
        def check(policy, workload):
            first = of_the_swap(campaign.record(workload, ours(policy)))
            twice = (case for model in TORN_RENAMES
                     for case in campaign.cases(first, model, ALL)
                     if _has_two_names(case.image))
            for case in itertools.islice(twice, TORN):
                self.judge(policy, campaign.record(
                    workloads.PackAfterCrash(workload.blobs), ours(policy),
                    over=case.image, ledger=first.ledger,
                    standing=case.standing), IMAGES_OF_A_LIFE)

        self.each(check)


def _has_two_names(image):
    """Something that a pack writes is the data or the index, too."""
    return any({'Data.fs.pack', 'Data.fs.pack.index'} & set(names)
               for names in image.links)


def of_the_swap(recording):
    """Nothing but the moments in which the first pack gives names."""
    log, sources = recording.log, [
        event.source if isinstance(event, events.Renamed) else None
        for event in recording.log]
    begin = sources.index('Data.fs.pack.index')
    end = sources.index('Data.fs.pack')
    while not isinstance(log[end], events.SyncedDirectory):
        end += 1
    return recording._replace(log=log[:end + 1], start=begin)
