"""The commands of `fsync-time`: each runs for real, for a moment.

That the right thing is measured, and kept; and that wrong command lines are
one line.
"""

import os
import pathlib
from unittest import mock

from fsyncstorage.timing import blobs
from fsyncstorage.timing import disk
from fsyncstorage.timing import zeo
from fsyncstorage.timing.results import document as documents
from fsyncstorage.timing.running import sampling
from fsyncstorage.timing.running import supervisor

from .support import Command


def in_process(work, *arguments):
    return work(*arguments)


class ForRealTests(Command):
    """Each contestant in each race, in the warm-up and in the one round."""

    level = 2

    def assertSampled(self, document, expected):
        self.assertEqual({
            (document['races'][sample['race']]['workload'],
             sample['contestant'], sample['round'])
            for sample in document['samples']},
            {(*each, number) for each in expected
             for number in range(1 + document['rounds'])})

    def test_commits(self):
        with mock.patch.object(supervisor, 'run', in_process):
            document, text = self.document(
                'commits', 'fsync:group-commit', 'filestorage', '--threads',
                '1,2', '--sync-latency', '0,1us', '--shared', '--rounds', '1',
                '--seconds', '1us')
        names = ['fsync:group-commit', 'filestorage']
        self.assertEqual(list(document['contestants']), names)
        self.assertEqual(document['baseline'], names[0])
        self.assertEqual(
            [race['settings'] for race in document['races']],
            [{'threads': threads, 'seconds': 1e-6,
              'sync_latency': sync_latency, 'shared': shared}
             for shared, sync_latency, threads in [
                 (False, 0, 1), (False, 0, 2), (False, 1e-6, 1),
                 (False, 1e-6, 2), (True, 0, 2), (True, 1e-6, 2)]])
        self.assertSampled(document, [('commits', name) for name in names])
        self.assertIn('How many commits a second?', text)
        kept = pathlib.Path(self.json).read_text()
        self.assertNotIn(self.scratch, kept)
        self.assertNotIn(f'"{os.uname().nodename}"', kept)

    def test_disk(self):
        with mock.patch.object(disk, 'COMMITTERS', (1, 2)), \
                mock.patch.object(disk, 'SYNC_SECONDS', [None, 0.001]), \
                mock.patch.object(disk, 'COMMITS_SECONDS', [None, 0.001]), \
                mock.patch.object(supervisor, 'run', in_process), \
                mock.patch.object(os, 'getloadavg', lambda: (0.0,)):
            document, text = self.document('disk', '--quick')
        self.assertSampled(document, [
            *(('sync', way.name) for way in disk.WAYS),
            *(('commits', storage.name) for storage in disk.STORAGES)])
        for expected in (
                'write 1000 bytes and sync? milliseconds', 'two syncs',
                'threads that commit 1 2', 'fsync:per-commit',
                'group-commit: a power cut may take back nothing',
                f'FsyncStorage takes {disk.WAYS[0].name}'):
            self.assertIn(expected, text)

    def test_zeo(self):
        with mock.patch.object(zeo, 'OBJECTS', 5):
            document, text = self.document(
                'zeo', 'fsync-client', '--rounds', '1', '--seconds', '10ms',
                '--clients', '1', '--objects', '2', '--loop', 'asyncio',
                *(f'--workload={name}' for name in zeo.WORKLOADS))
        self.assertSampled(document, [
            (workload, 'fsync-client') for workload in zeo.WORKLOADS])
        for sample in document['samples']:
            for each in document['races'][sample['race']]['compared']:
                self.assertGreater(sample['figures'][each], 0, each)
        for expected in ('commits a second, over ZEO? (2 objects a',
                         'by Connection.get, 2 objects a transaction',
                         'nothing added to the'):
            self.assertIn(expected, text)

    def test_blobs(self):
        with mock.patch.object(blobs, 'REQUESTS', 1), \
                mock.patch.object(os, 'sync'):
            document, text = self.document(
                'blobs', 'filestorage', '--rounds', '1', '--clients', '1',
                '--sizes', '1KB')
        self.assertSampled(document, [
            ('blob-read', 'filestorage'), ('blob-write', 'filestorage')])
        for expected in ('a second? direct: the file is where the', 'MB/s',
                         'written a second? (1', 'size of a blob 1 KB'):
            self.assertIn(expected, text)


class CommandLineTests(Command):

    def test_bad_input_is_one_line(self):
        for line, expected in [
                ('commits postgres', "there is no 'postgres'; allowed are"),
                ('commits --threads 0', 'whole number'),
                ('commits --threads 1,,2', 'whole number'),
                ('commits --rounds many', 'whole number'),
                ('commits --seconds 0', 'more than 0'),
                ('commits --sync-latency parsecs', 'us, ms, s'),
                ('commits --directory /no/such/place', 'no directory'),
                (f'commits --json {self.scratch}', 'is no plain file'),
                ('commits --json /no/such/place/file', 'no directory'),
                ('commits --no-such-option', 'unrecognized'),
                ('disk --threads 3', 'unrecognized'),
                ('zeo --workload undo', 'invalid choice'),
                ('zeo --objects 0', 'whole number'),
                ('zeo --loop twisted', 'invalid choice'),
                ('blobs --sizes 3GB', 'up to 2048MB'),
                ('blobs --sizes 1KB,', 'number of bytes'),
                ('report', 'unrecognized'),
                ('nothing', 'invalid choice')]:
            with self.subTest(line):
                self.assertOneLine(2, expected, *line.split())

    def test_nothing_to_measure(self):
        self.assertOneLine(
            2, 'none of these contestants takes part in blob-write',
            'blobs', 'filestorage', '--clients', '2', '--workload', 'write')

    def test_who_takes_part_in_blobs(self):
        def suit(**settings):
            race = blobs.write_race(
                size=1, requests=2, volume=1 << 20, **settings)
            return [name for name, one in blobs.CONTESTANTS.items()
                    if race.takes(one)]

        names = list(blobs.CONTESTANTS)
        self.assertEqual(suit(clients=1, sync_latency=0), names)
        # A storage without a server has one client.
        self.assertEqual(suit(clients=4, sync_latency=0), [
            name for name in names
            if name not in ('filestorage', 'fsync:group-commit')])


class EndTests(Command):
    """A run that does not end well: one line, and what was measured is kept.
    """

    COMMITS = ('commits', 'filestorage', 'fsync:none', '--threads', '1',
               '--rounds', '1', '--seconds', '1us')

    def stopped_by(self, error, *arguments):
        """Run the command; its third sample raises the error."""
        calls = []

        def run(work, contestant, directory):
            calls.append(directory)
            self.assertEqual(os.listdir(directory), [])
            self.assertTrue(os.path.isabs(directory))
            if len(calls) == 3:
                pathlib.Path(directory, 'Data.fs').touch()
                raise error
            return {'txn_per_second': 1}

        with mock.patch.object(supervisor, 'run', run):
            code, out, err = self.run_main(
                *self.COMMITS, '--directory', os.path.relpath(self.scratch),
                *arguments)
        self.assertEqual(out, '')
        self.assertEqual(os.listdir(self.scratch), [])
        return code, err

    def assertKept(self):
        document = documents.load(self.json)
        self.assertFalse(document['complete'])
        self.assertEqual(len(document['samples']), 2)

    def test_interrupt(self):
        self.assertEqual(
            self.stopped_by(KeyboardInterrupt(), '--json', self.json),
            (130, 'fsync-time commits: interrupted; what was measured so far'
             f' is in {self.json}\n'))
        self.assertKept()
        self.assertEqual(
            self.stopped_by(KeyboardInterrupt()),
            (130, 'fsync-time commits: interrupted; nothing is kept\n'))

    def test_a_contestant_that_fails_is_named(self):
        self.assertEqual(
            self.stopped_by(supervisor.Failed('OSError: disk full'),
                            '--json', self.json),
            (1, 'fsync-time commits: fsync:none failed (threads 1,'
             ' seconds 1e-06, sync_latency 0.0, shared False):'
             ' OSError: disk full\n'))
        self.assertKept()


class ScheduleTests(Command):

    def steps(self, races, contestants, rounds):
        return [tuple(step) for step in sampling.schedule(
            races, contestants, rounds)]

    def race(self, **options):
        return sampling.Race('any', {}, None, (), **options)

    def test_contestants_take_turns_and_another_one_begins(self):
        self.assertEqual(
            self.steps([self.race(), self.race()], ['A', 'B'], 1),
            [(0, 0, 'A'), (0, 0, 'B'), (0, 1, 'A'), (0, 1, 'B'),
             (1, 0, 'B'), (1, 0, 'A'), (1, 1, 'B'), (1, 1, 'A')])

    def test_one_that_cannot_take_part_is_left_out_of_a_race(self):
        slow = sampling.Race('any', {'sync_latency': 1}, None, ())
        never, always = (mock.Mock(can_be_slowed=can) for can in (False, True))
        self.assertEqual(
            self.steps([self.race(), slow], [never, always], 0),
            [(0, 0, never), (0, 0, always), (0, 1, always)])
        self.assertEqual(
            self.steps([self.race(suits='AC'.__contains__)], ['A', 'B'], 0),
            [(0, 0, 'A')])
