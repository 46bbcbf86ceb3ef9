"""The crash tests are only worth what their own rules are worth.

Does the recorder see everything?  Does the model of the disk lose what a power
cut may take, and nothing else?  Does the judge notice a storage that breaks
its promises?
"""

import contextlib
import functools
import os
import unittest
from unittest import mock

from ZODB._compat import FILESTORAGE_MAGIC

from fsyncstorage import FsyncStorage
from fsyncstorage import datafile

from ..memory import scratch_directory
from .harness import campaign
from .harness import events
from .harness import images
from .harness import judge
from .harness import powercut
from .harness import workloads
from .harness.full import FullDisk
from .harness.recorder import Killed
from .harness.recorder import Recorder
from .harness.recorder import RecordingDisk
from .harness.tearing import ALL_MODELS
from .harness.tearing import MODELS
from .harness.tearing import STALE
from .harness.tearing import TORN_RENAMES

SECTOR, PAGE = 512, powercut.PAGE
PREFIX, SECTORS, PAGES = MODELS
STALE_SECTORS, STALE_PAGES = STALE
HALVES, = TORN_RENAMES


def left_by(log, model=PREFIX):
    """Every directory that a power cut after these events can leave."""
    model = ALL_MODELS[model]
    space = images.Space(
        powercut.Disk.after_all(log, torn_renames=model.torn_renames), model)
    found = set()
    for choice in images.choices(space.options, 10_000, None):
        found.add(frozenset(space.image(choice).files))
    return found


def files(**contents):
    return frozenset(contents.items())


# A file that is surely there, and empty.
DURABLE = [events.Created('a', 1), events.SyncedDirectory('', 1)]


ONE, TWO = b'1' * SECTOR, b'2' * SECTOR
OLD = FILESTORAGE_MAGIC.ljust(2 * PAGE, b'o')
NEW = FILESTORAGE_MAGIC.ljust(2 * PAGE, b'n')
A_RENAME = [
    events.Created('b', 2), events.Wrote(2, 0, b'new'), events.Synced(2, 4),
    events.SyncedDirectory('', 5), events.Renamed('b', 'a')]

#: What is promised -> model, events behind those of DURABLE, and what they can
#: leave.
LEFT = {
    'unsynced bytes survive up to any point': (
        PREFIX, [events.Wrote(1, 0, b'xyz')],
        {files(a=b''), files(a=b'x'), files(a=b'xy'), files(a=b'xyz')}),
    'synced bytes survive': (
        PREFIX, [events.Wrote(1, 0, b'x'), events.Synced(1, 3),
                 events.Wrote(1, 1, b'y')],
        {files(a=b'x'), files(a=b'xy')}),
    'a sync covers what was written before it began': (
        PREFIX, [events.Wrote(1, 0, b'x'), events.Wrote(1, 1, b'y'),
                 events.Synced(1, 3)],
        {files(a=b'x'), files(a=b'xy')}),
    'blocks survive one without the other': (
        SECTORS, [events.Wrote(1, 0, ONE + TWO)],
        {files(a=b''), files(a=ONE + TWO), files(a=ONE + bytes(SECTOR)),
         files(a=bytes(SECTOR) + TWO), files(a=bytes(2 * SECTOR))}),
    'a block may show any state since the last sync': (
        PAGES, [events.Wrote(1, 0, b'c...'), events.Synced(1, 3),
                events.Wrote(1, 0, b'd'), events.Wrote(1, 0, b' ')],
        {files(a=b'c...'), files(a=b'd...'), files(a=b' ...')}),
    'a truncation may be lost': (
        PREFIX, [events.Wrote(1, 0, b'xyz'), events.Synced(1, 3),
                 events.Truncated(1, 1)],
        {files(a=b'xyz'), files(a=b'x')}),
    'names survive one without the other': (
        PREFIX, [events.Created('b', 2), events.Linked('a', 'c'),
                 events.SyncedDirectory('', 3)],
        {files(a=b'', b=b''), files(a=b'', b=b'', c=b'')}),
    'a rename in a directory is atomic': (
        PREFIX, A_RENAME, {files(a=b'', b=b'new'), files(a=b'new')}),
    'without atomic renames each half is for itself': (
        HALVES, A_RENAME,
        {files(a=b'', b=b'new'), files(a=b''), files(a=b'new'),
         files(a=b'new', b=b'new'), files(b=b'new'), files()}),
    'a rename to another directory is not atomic': (
        PREFIX, [events.MadeDirectory('d'), events.SyncedDirectory('', 3),
                 events.Renamed('a', 'd/a')],
        {files(a=b''), frozenset({('a', b''), ('d/a', b'')}),
         frozenset({('d/a', b'')}), frozenset()}),
    'a block may show what a data file had there': (
        STALE_PAGES, [events.Wrote(1, 0, OLD), events.Removed('a'),
                      events.Created('b', 2), events.SyncedDirectory('', 5),
                      events.Wrote(2, 0, NEW)],
        {files(b=b'')} | {files(b=one[:PAGE] + two[PAGE:])
                          for one in (OLD, NEW) for two in (OLD, NEW)}),
    'a block may show what was cut back': (
        STALE_PAGES, [events.Wrote(1, 0, OLD[:PAGE]), events.Truncated(1, 0),
                      events.Synced(1, 4), events.Wrote(1, 0, NEW[:PAGE])],
        {files(a=b''), files(a=OLD[:PAGE]), files(a=NEW[:PAGE])}),
    'a page that is there shows nothing old': (
        STALE_SECTORS, [events.Wrote(1, 0, b'x'), events.Synced(1, 3),
                        events.Wrote(1, SECTOR, b'n' * SECTOR)],
        {files(a=b'x'), files(a=b'x'.ljust(2 * SECTOR, b'\0')),
         files(a=b'x'.ljust(SECTOR, b'\0') + b'n' * SECTOR)}),
    'what is in a lost directory is lost': (
        PREFIX, [events.Removed('a'), events.SyncedDirectory('', 3),
                 events.MadeDirectory('d'), events.Created('d/a', 2),
                 events.SyncedDirectory('d', 5)],
        {frozenset(), frozenset({('d/a', b'')})}),
}


class PowerCut(unittest.TestCase):

    def test_what_it_leaves(self):
        for words, (model, log, expected) in LEFT.items():
            with self.subTest(words):
                self.assertEqual(left_by(DURABLE + log, model), expected)

    def test_a_failed_sync_is_not_made_good_by_the_next_one(self):
        log = DURABLE + [
            events.Wrote(1, 0, b'x'), events.SyncFailed(1, 3),
            events.Synced(1, 4)]
        for model in MODELS:
            self.assertEqual(
                left_by(log, model) - {files(a=b'\0')},
                {files(a=b''), files(a=b'x')})

    def test_a_page_that_is_written_again_is_synced_again(self):
        log = DURABLE + [
            events.Wrote(1, 0, b'x'), events.SyncFailed(1, 3),
            events.Wrote(1, 1, b'y'), events.Synced(1, 5)]
        for model in MODELS:
            self.assertEqual(left_by(log, model), {files(a=b'xy')})

    def test_a_later_sync_may_keep_other_pages_only(self):
        old, new = b'1' * PAGE, b'2' * PAGE
        log = DURABLE + [
            events.Wrote(1, 0, old), events.SyncFailed(1, 3),
            events.Wrote(1, PAGE, new), events.Synced(1, 5)]
        for model in MODELS:
            found = left_by(log, model)
            self.assertIn(files(a=old + new), found)
            self.assertIn(files(a=bytes(PAGE) + new), found)

    def test_two_names_are_of_one_file(self):
        log = DURABLE + [
            events.Linked('a', 'b'), events.SyncedDirectory('', 3)]
        image = images.Space(
            powercut.Disk.after_all(log), MODELS[PREFIX]).image([])
        with scratch_directory() as scratch:
            directory = os.path.join(scratch, 'site')
            image.write(directory)
            self.assertTrue(os.path.samefile(
                os.path.join(directory, 'a'), os.path.join(directory, 'b')))
            self.assertEqual(images.Image.read(directory), image)
            self.assertEqual(
                left_by(Recorder(directory).log), {files(a=b'', b=b'')})


class Recording(unittest.TestCase):

    def setUp(self):
        self.directory = self.enter(scratch_directory())
        self.recorder = Recorder(self.directory)
        self.disk = RecordingDisk(self.recorder)

    def enter(self, context):
        value = context.__enter__()
        self.addCleanup(context.__exit__, None, None, None)
        return value

    def path(self, name):
        return os.path.join(self.directory, name)

    def create(self, name):
        fd = self.disk.open(self.path(name), os.O_RDWR | os.O_CREAT)
        self.addCleanup(os.close, fd)
        return fd

    def check(self):
        campaign.check_that_it_explains(self.recorder.log, self.directory)

    def test_each_operation_of_a_disk_is_recorded(self):
        for name, method in vars(datafile.Disk).items():
            if callable(method) and not name.startswith('_'):
                self.assertIn(name, vars(RecordingDisk))

    def test_what_somebody_else_wrote_is_seen_when_it_is_met(self):
        with open(self.path('a'), 'wb') as file:
            file.write(b'x')
        self.disk.replace(self.path('a'), self.path('b'))
        self.check()

    def test_what_is_done_past_the_recorder_is_found_out(self):
        fd = self.create('a')
        os.pwrite(fd, b'x', 0)
        self.assertRaises(AssertionError, self.check)

    def test_a_dropped_cache_shows_what_the_disk_has(self):
        fd = self.create('a')
        self.disk.sync_directory(self.directory)
        self.disk.write(fd, b'x' * 10 * PAGE, 0)
        self.recorder.on_sync = self.fail_with_oserror
        self.assertRaises(OSError, self.disk.sync, fd)
        self.recorder.drop_cache(fd)
        content = os.pread(fd, 10 * PAGE, 0)
        self.assertEqual(len(content), 10 * PAGE)
        self.assertLess(0, content.count(b'x'))
        self.assertLess(0, content.count(b'\0'))
        self.assertEqual(left_by(self.recorder.log), {files(a=content)})

    def fail_with_oserror(self, file):
        raise OSError

    def test_a_killed_process_does_nothing_any_more(self):
        fd = self.create('a')
        self.recorder.operations_left = 2
        self.disk.write(fd, b'x', 0)
        log = self.recorder.log[:]
        for operation in (
            lambda: self.disk.write(fd, b'y', 1),
            lambda: self.disk.sync(fd),
            lambda: self.disk.truncate(fd, 0),
            lambda: self.disk.link(self.path('a'), self.path('b')),
            lambda: self.disk.replace(self.path('a'), self.path('b')),
            lambda: self.disk.remove(self.path('a')),
            lambda: self.disk.make_directory(self.path('d')),
            lambda: self.disk.sync_directory(self.directory),
            lambda: self.create('c'),
        ):
            self.assertRaises(Killed, operation)
        self.assertEqual(self.recorder.log, log)
        self.check()
        self.assertEqual(os.listdir(self.directory), ['a'])

    def test_a_full_disk_takes_what_fits(self):
        disk = FullDisk(self.recorder)
        fd = self.create('a')
        disk.room = 3
        with self.assertRaisesRegex(OSError, 'No space left'):
            disk.write(fd, b'12345', 0)
        disk.write(fd, b'321', 0)
        self.assertRaises(OSError, disk.make_directory, self.path('d'))
        disk.truncate(fd, 1)
        disk.write(fd, b'abc', 0)
        self.assertEqual(os.pread(fd, 9, 0), b'abc')
        disk.remove(self.path('a'))
        self.assertEqual(disk.room, 3)
        self.check()


class Sabotage(unittest.TestCase):
    """The judge notices a storage that does not do what it promises."""

    level = 2

    def found(self, workload, durability, policy, model, disk=RecordingDisk,
              **options):
        """The kinds of problems of a storage held to that policy, as they are
        found: an image that has one is enough."""
        return self.found_of(workload, functools.partial(
            FsyncStorage, durability=durability, group_commit_delay=0,
            **options), policy, model, disk)

    def found_of(self, workload, make, policy, model, disk=RecordingDisk):
        recording = campaign.record(workload, make, disk=disk)
        by = judge.Judge(make, policy, recording.ledger, recording.blobs)
        return (problem.kind for _, problems in campaign.verdicts(
                    by, campaign.cases(recording, model, 200))
                for problem in problems)

    def test_a_disk_that_does_not_sync(self):

        class Lying(RecordingDisk):

            def sync(self, fd):
                pass

        for policy in 'group-commit', 'per-commit', 'two-sync':
            self.assertIn(judge.LOST, self.found(
                workloads.Commits(), policy, policy, PREFIX, disk=Lying))

    def test_a_disk_that_does_not_sync_directories(self):

        class Lying(RecordingDisk):

            def sync_directory(self, path, *args):
                pass

        for workload, kind in (
            (workloads.Creation(), judge.EMPTIED),
            (workloads.Pack(), judge.REVERTED),
            (workloads.Blobs(), judge.BLOB),
        ):
            self.assertIn(kind, self.found(
                workload, 'group-commit', 'group-commit', PREFIX,
                disk=Lying))

    def test_a_policy_or_an_option_that_promises_less(self):
        for kind, workload, policy, model, options in (
            (judge.LOST, workloads.Commits(), 'group-commit', PREFIX, {}),
            (judge.BLOB, workloads.Blobs(), 'group-commit', PREFIX, {}),
            (judge.DAMAGED, workloads.Commits(), 'none', SECTORS,
             {'checksums': False}),
        ):
            with self.subTest(kind):
                self.assertIn(kind, self.found(
                    workload, 'none', policy, model, **options))

    def test_a_life_that_does_not_sync_what_it_found(self):

        def make(path, **options):
            with mock.patch.object(
                    datafile.DataFile, 'sync', lambda file: None):
                return FsyncStorage(path, durability='none', **options)

        self.assertIn(judge.LOST, self.found_of(
            workloads.Killed(workloads.Commits(), 20), make, 'none', PREFIX))

    def test_a_full_disk_that_is_not_noticed(self):

        class Lying(FullDisk):

            def write(self, fd, data, position):
                with contextlib.suppress(OSError):
                    super().write(fd, data, position)

            def reserve(self, fd, position, length):
                """It reserves nothing."""

        class OneThatDoesNotFit(workloads.Commits):

            def run(self, site):
                site.disk.room = 100
                site.commit({1: 300})

        self.assertIn(judge.LOST, self.found(
            OneThatDoesNotFit(), 'group-commit', 'group-commit', PREFIX,
            disk=Lying))

    def test_a_read_only_opening_that_writes(self):

        def make(path, read_only=False, **options):
            if read_only:
                with open(path + '.read', 'w'):
                    pass
            return FsyncStorage(path, read_only=read_only, **options)

        self.assertIn(judge.WROTE, self.found_of(
            workloads.Commits(), make, 'group-commit', PREFIX))
