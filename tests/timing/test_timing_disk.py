"""The command `fsync-time disk`: what it measures, and what it makes of it.

How long a sync took is nowhere asserted.
"""

import dataclasses
import io
import os
import signal
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

from rich.console import Console

from fsyncstorage import FsyncStorage
from fsyncstorage import datafile
from fsyncstorage.commit.policies import POLICIES
from fsyncstorage.timing.disk import commandline as disk
from fsyncstorage.timing.disk import disktables
from fsyncstorage.timing.disk import probing
from fsyncstorage.timing.disk import verdict
from fsyncstorage.timing.results import document as documents
from fsyncstorage.timing.running import machine

from ..support import PATIENCE
from ..support import until
from .test_timing import Command
from .test_timing import Scratch


class WaysTests(unittest.TestCase):

    level = 2

    def test_the_first_is_the_one_of_the_storage(self):
        first = probing.WAYS[0].name
        if first == 'F_FULLFSYNC':
            self.assertEqual(sys.platform, 'darwin')
        else:
            self.assertIs(datafile.Disk.sync, getattr(os, first))


class ProbingTests(Scratch):

    level = 2

    def setUp(self):
        super().setUp()
        self.log = []
        for name in 'write', 'sync':
            self.enterContext(mock.patch.object(
                datafile.disk, name, self.logged(name)))
        for name in 'fsync', 'fdatasync':
            self.enterContext(mock.patch.object(os, name, self.logged(name)))

    def logged(self, name):
        real = getattr(os if name.startswith('f') else datafile.disk, name)

        def call(fd, *arguments):
            self.log.append((name, *arguments))
            return real(fd, *arguments)

        return call

    def measure(self, name):
        """Measure a way that calls the patched functions."""
        for way in probing._ways():
            if way.name == name:
                return probing.measure(way, self.scratch, seconds=0)
        self.skipTest(f'{name} is not known here')

    def size(self):
        return os.path.getsize(os.path.join(self.scratch, 'Data.fs'))

    def test_one_sync_after_each_write(self):
        for name in 'fsync', 'fdatasync':
            del self.log[:]
            figures = self.measure(name)
            self.assertEqual(figures['syncs'], 1)
            self.assertEqual(
                self.log, [('write', probing.RECORD, 0), (name,)])

    def test_no_sync_where_the_write_is_one(self):
        opened = []
        real = datafile.disk.open
        with mock.patch.object(
                datafile.disk, 'open', lambda path, flags: (
                    opened.append(flags), real(path, flags))[1]):
            self.measure('O_DSYNC')
        self.assertEqual(self.log, [('write', probing.RECORD, 0)])
        self.assertEqual(opened[0] & os.O_DSYNC, os.O_DSYNC)
        del opened[:]
        with mock.patch.object(
                datafile.disk, 'open', lambda path, flags: (
                    opened.append(flags), real(path, flags))[1]):
            self.measure('fsync')
        self.assertEqual(opened[0] & os.O_DSYNC, 0)

    def test_two_syncs_with_a_byte_between(self):
        self.measure('two syncs')
        self.assertEqual(self.log, [
            ('write', probing.RECORD, 0), ('sync',), ('write', b'x', 0),
            ('sync',)])

    def test_each_record_is_behind_the_last_one(self):
        with mock.patch.object(probing, 'MOST_SYNCS', 3):
            probing.measure(
                probing.WAYS[0], self.scratch, seconds=PATIENCE)
        self.assertEqual(self.size(), 3 * len(probing.RECORD))

    def test_what_is_no_disk_is_not_written_full(self):
        way = dataclasses.replace(probing.WAYS[0], write=lambda *args: None)
        with mock.patch.object(probing, 'MOST_SYNCS', 5):
            figures = probing.measure(
                way, self.scratch, seconds=PATIENCE)
        self.assertEqual(figures['syncs'], 5)


ROUNDS = 1, 2, 3


def figures(sync=0.003, file_system='ext4', **others):
    return verdict.Figures(**{
        'file_system': file_system, 'load': 0.5, 'sync': sync,
        'two_syncs': 2 * sync,
        'commits': commits(), **others})


def commits(**others):
    """Of one committer, the same in each round; 4 times as many of 16."""
    rates = {'none': 600, 'interval': 500, 'group_commit': 400,
             'per_commit': 300, 'two_sync': 200, **others}
    return {
        policy: {committers: dict.fromkeys(ROUNDS, times * rate)
                 for committers, times in ((1, 1), (4, 2), (16, 4))}
        for policy, rate in zip(POLICIES, rates.values())}


class VerdictTests(unittest.TestCase):

    level = 2

    def test_borders(self):
        for microseconds, no_disk, expected in [
                (19, True, 'This is no disk: none keeps data within 19 us.'),
                (20, False, 'honest only with a cache'),
                (21, False, 'honest only with a cache'),
                (199, False, 'honest only with a cache'),
                (200, False, 'as with a disk that waits'),
                (201, False, 'as with a disk that waits'),
        ]:
            with self.subTest(microseconds):
                found = figures(microseconds / 1e6)
                self.assertEqual(verdict.is_no_disk(found), no_disk)
                self.assertIn(expected, verdict.of_disk(found))

    def test_a_busy_disk_is_no_proof_of_a_slow_one(self):
        self.assertIn('says nothing', verdict.of_disk(figures(load=2)))
        self.assertIn('honest only', verdict.of_disk(figures(1e-4, load=2)))

    def test_memory_is_no_disk_however_slow(self):
        for sync in 1e-6, 0.003:
            found = figures(sync, 'tmpfs')
            self.assertTrue(verdict.is_no_disk(found))
            self.assertIn('tmpfs is memory', verdict.of_disk(found))

    def test_settings_come_with_their_price(self):
        found = verdict.settings(figures())
        self.assertEqual(list(found), [
            'durability group-commit', 'group-commit-delay auto',
            'checksums on'])
        why = found['durability group-commit']
        for expected in (
                'at 67% with 1 committer and 67% with 16 committers',
                'two-sync has 50%', 'interval has 500 in place of 400'):
            self.assertIn(expected, why)
        self.assertIn('6 ms in place of 3 ms', found['checksums on'])

    def why_of_group_commit(self, rates):
        return verdict.settings(
            figures(commits=rates))['durability group-commit']

    def test_what_the_noise_does_not_carry_is_marked(self):
        rates = commits()
        rates['interval'][1] = dict(zip(ROUNDS, (300, 500, 700)))
        why = self.why_of_group_commit(rates)
        self.assertIn(
            'interval has 500 in place of 400 a second (~125%)', why)
        self.assertIn(' 67% with 1 committer', why)

    def test_a_single_round_carries_nothing(self):
        rates = {
            policy: {committers: {1: of_rounds[1]}
                     for committers, of_rounds in of_policy.items()}
            for policy, of_policy in commits().items()}
        why = self.why_of_group_commit(rates)
        self.assertEqual(why.count('~'), why.count('%'))

    def test_nothing_is_promised_where_there_is_no_disk(self):
        why = verdict.settings(figures(1e-6))['durability group-commit']
        self.assertIn('promises nothing', why)
        self.assertNotIn('interval', why)

    def test_figures_of_a_busy_machine(self):
        self.assertIsNone(verdict.of_noise(figures(load=1)))
        self.assertIn('than there are processors',
                      verdict.of_noise(figures(load=1.01)))

    def test_figures_that_contradict_each_other(self):
        for group, believed in (600, True), (900, True), (901, False):
            found = verdict.of_noise(
                figures(commits=commits(group_commit=group)))
            self.assertEqual(found is None, believed, group)
        self.assertIn('contradict', found)
        # A policy that does not sync may be faster.
        self.assertIsNone(
            verdict.of_noise(figures(commits=commits(interval=2000))))

    def test_each_setting_is_one_of_the_section(self):
        options = dict(
            setting.split() for setting in verdict.settings(figures()))
        with tempfile.TemporaryDirectory() as directory:
            FsyncStorage(os.path.join(directory, 'Data.fs'), **{
                key.replace('-', '_'): value == 'on' if key == 'checksums'
                else value for key, value in options.items()}).close()


class TablesTests(Scratch):

    level = 2

    def shown(self, complete=True, **others):
        """A document with the figures of these tests."""
        found = figures(**others)
        document = documents.new(
            'disk', disk.races(quick=True),
            [*probing.WAYS, *disk.STORAGES], len(ROUNDS),
            probing.WAYS[0].name, {
                **machine.describe(self.scratch), 'cpus': 2,
                'load_average': 2 * found.load,
                'file_system': found.file_system})
        document['complete'] = complete
        document['samples'] = [
            {'race': race, 'contestant': contestant, 'round': number,
             'figures': measured}
            for number in ROUNDS
            for race, contestant, measured in self.samples(found, number)]
        documents.summarise(document)
        self.assertEqual(disktables.figures(document), found)
        console = Console(file=io.StringIO(), width=80)
        disktables.show(document, console)
        text = console.file.getvalue()
        self.assertLessEqual(max(map(len, text.splitlines())), 80)
        return ' '.join(text.split())

    def samples(self, found, number):
        own, two = probing.WAYS[0].name, probing.TWO_SYNCS.name
        for way, p50 in (own, found.sync), (two, found.two_syncs):
            yield 0, way, {
                'p50_seconds': p50, 'p99_seconds': 0.02, 'max_seconds': 0.5}
        for race, committers in enumerate(disk.COMMITTERS, 1):
            for policy, rates in found.commits.items():
                yield race, f'fsync:{policy}', {
                    'txn_per_second': rates[committers][number]}

    def test_everything_has_its_place(self):
        text = self.shown()
        for expected in (
                f'{probing.WAYS[0].name} 3.00 20.0 500 3.00-3.00',
                'two syncs 6.00 2.00x', 'A sync takes 3 ms',
                'fsync:none 600 1,200 2,400 anything since the last pack',
                'fsync:per-commit 300 600 1,200 nothing that was',
                'Settings to choose', 'durability group-commit Nothing',
                '~ marks a ratio that the noise does not carry'):
            self.assertIn(expected, text)

    def test_no_policy_promises_anything_where_there_is_no_disk(self):
        text = self.shown(file_system='tmpfs')
        self.assertIn('1,200 anything: this is no disk', text)
        self.assertNotIn('nothing that was', text)

    def test_nothing_is_made_of_noise(self):
        text = self.shown(load=3)
        self.assertIn('That says nothing about the disk', text)
        self.assertIn('Do not trust these figures', text)
        self.assertNotIn('Settings to choose', text)

    def test_what_was_not_measured_is_not_judged(self):
        text = self.shown(complete=False)
        self.assertIn('3.00 20.0', text)
        self.assertNotIn('A sync takes', text)
        self.assertNotIn('Settings to choose', text)


class CommandTests(Command):

    level = 2

    def test_everything_for_real(self):
        path = self.json_file()
        with mock.patch.object(disk, 'COMMITTERS', (1, 2)), \
                mock.patch.object(disk, 'SYNC_SECONDS', [None, 0.001]), \
                mock.patch.object(disk, 'COMMITS_SECONDS', [None, 0.001]):
            code, out, err = self.run_main(
                'disk', self.scratch, '--quick', '--json', path)
        self.assertEqual((code, err), (0, ''))
        self.assertEqual(os.listdir(self.scratch), [])
        document = documents.load(path)
        self.assertTrue(document['complete'])
        # Each way, and each storage with each number of committers.
        measured = {(document['races'][sample['race']]['workload'],
                     sample['race'], sample['contestant'])
                    for sample in document['samples'] if sample['round']}
        self.assertEqual(measured, {
            *(('sync', 0, way.name) for way in probing.WAYS),
            *(('commits', race, storage.name)
              for race in (1, 2) for storage in disk.STORAGES)})
        text = ' '.join(out.split())
        for expected in (
                'write 1000 bytes and sync? milliseconds', 'two syncs',
                'policy 1 2 a power cut may take back',
                'filestorage', 'fsync:per-commit',
                'durability group-commit',
                f'FsyncStorage takes {probing.WAYS[0].name}'):
            self.assertIn(expected, text)

    def test_quick_is_quick(self):
        """The sum of all settings says so; no clock is needed."""
        def seconds(quick):
            races = disk.races(quick)
            return (disk.ROUNDS[quick] + 1) * sum(
                race.settings['seconds'] * sum(map(
                    race.takes, (*probing.WAYS, *disk.STORAGES)))
                for race in races)

        # The begin and the end of each sample take some time more.
        self.assertLess(seconds(quick=True), 12)
        self.assertLess(seconds(quick=False), 75)

    def test_bad_input_is_one_line(self):
        for arguments, expected in [
                (['/no/such/place'], 'no directory'),
                ([__file__], 'no directory'),
                (['--json', '/no/such/place/file'], 'no directory'),
                (['--threads=3'], 'unrecognized'),
        ]:
            with self.subTest(arguments):
                code, out, err = self.run_main('disk', *arguments)
                self.assertEqual((code, out), (2, ''))
                self.assertEqual(len(err.splitlines()), 1)
                self.assertIn(expected, err)

    def test_a_disk_that_fails(self):
        broken = dataclasses.replace(
            probing.WAYS[0], write=mock.Mock(side_effect=OSError('disk full')))
        with mock.patch.object(probing, 'WAYS', (broken,)):
            code, out, err = self.run_main('disk', self.scratch, '--quick')
        self.assertEqual((code, out), (1, ''))
        self.assertEqual(len(err.splitlines()), 1)
        self.assertIn('disk full', err)
        self.assertEqual(os.listdir(self.scratch), [])

    def stopped(self, number):
        """A run in a process of its own that gets a signal in a sample."""
        with subprocess.Popen(
                [sys.executable, '-m', 'fsyncstorage.timing.main', 'disk',
                 self.scratch],
                env={**os.environ, 'PYTHONPATH': os.pathsep.join(sys.path)},
                stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                text=True) as process:
            try:
                until(self.measuring, 'a sample')
                process.send_signal(number)
                out, err = process.communicate(timeout=PATIENCE)
            finally:
                process.kill()
        self.assertEqual(err, 'fsync-time disk: interrupted; nothing is'
                         ' kept\n')
        self.assertEqual((process.returncode, out), (130, ''))
        self.assertEqual(os.listdir(self.scratch), [])

    def measuring(self):
        return any('Data.fs' in files
                   for _, _, files in os.walk(self.scratch))

    def test_ctrl_c(self):
        self.stopped(signal.SIGINT)

    def test_kill(self):
        self.stopped(signal.SIGTERM)
