"""Power cuts in packs: without hard links, in the life after a crash, and where
a rename can be left half done.

What is not here is in test_crash_images, which judges packs as well.
"""

import errno
import itertools
import os
import shutil
import unittest
from unittest import mock

from fsyncstorage import FsyncStorage

from .crashing import campaign
from .crashing import events
from .crashing import powercut
from .crashing import workloads
from .crashing.judge import REFUSED
from .crashing.judge import Judge
from .crashing.recorder import RecordingDisk

# Packs do not depend on the policy but for what is synced before.
POLICIES = 'none', 'group-commit', 'two-sync'

IMAGES = 150
# So many torn directories, and so many images of the life after each.
TORN = 8
IMAGES_OF_A_LIFE = 40
# All that there are, and so many at least.
ALL, LEAST = 100, 25


class WithoutLinks(RecordingDisk):

    def link(self, source, target):
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))


class AfterCrash(workloads.Workload):
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


def ours(policy):
    def make(path, **options):
        return FsyncStorage(
            path, durability=policy, group_commit_delay=0, **options)
    return make


class CrashPacks(unittest.TestCase):

    times = 1

    def each(self, check):
        for policy in POLICIES:
            for workload in (
                workloads.Pack(), workloads.Pack(keep_old=False),
                workloads.BlobPack(), workloads.BlobPack(keep_old=False),
            ):
                with self.subTest(policy, workload=type(workload).__name__,
                                  keep_old=workload._keep_old):
                    check(policy, workload)

    def judge(self, policy, recording, images, least=None, remedy=None):
        judge = Judge(ours(policy), policy, recording.ledger, recording.blobs)
        if remedy is not None:
            judge.verdict = remedy(judge.verdict)
        wrong, count = {}, 0
        for _, case, problems in campaign.trial(
                recording, judge, images * self.times):
            count += 1
            for problem in problems:
                wrong.setdefault(
                    problem.kind, f'{problem.words} ({case.words})')
        self.assertEqual(wrong, {})
        self.assertGreaterEqual(count, least or images)

    def test_without_hard_links(self):
        def check(policy, workload):
            recording = campaign.record(
                workload, ours(policy), disk=WithoutLinks)
            self.judge(policy, recording, IMAGES)

        self.each(check)

    def test_in_the_life_after_a_crash(self):
        def check(policy, workload):
            first = campaign.record(workload, ours(policy))
            torn = itertools.islice(
                campaign.cases(first, '512-byte blocks', 5 * TORN),
                0, None, 5)
            for case in torn:
                self.judge(policy, campaign.record(
                    AfterCrash(workload.blobs), ours(policy),
                    over=case.image, ledger=first.ledger,
                    standing=case.standing), IMAGES_OF_A_LIFE)

        self.each(check)

    def test_with_halves_of_renames(self):
        """Both names, or none: it opens, or says which file to rename, and
        opens then."""
        def check(policy, workload):
            for disk in RecordingDisk, WithoutLinks:
                recording = of_the_swap(campaign.record(
                    workload, ours(policy), disk=disk))
                with mock.patch.object(powercut.Names, 'change', in_halves):
                    self.judge(policy, recording, ALL, LEAST, with_remedy)

        self.each(check)


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


_change = powercut.Names.change


def in_halves(names, index, *changes):
    """A rename is two changes, each kept or lost by itself."""
    for change in reversed(changes):
        _change(names, index, change)


def with_remedy(verdict):
    """Do what a refusal says, and look again."""

    def verdict_with_remedy(directory, standing, thorough=False):
        problems = verdict(directory, standing, thorough)
        path = os.path.join(directory, 'Data.fs')
        if ([problem.kind for problem in problems] == [REFUSED]
                and f'rename {path}.old to {path}' in problems[0].words):
            shutil.move(path + '.old', path)
            return verdict(directory, standing, thorough)
        return problems

    return verdict_with_remedy


class ManyCrashPacks(CrashPacks):

    level = 2
    times = 10
