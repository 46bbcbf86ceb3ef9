"""What `fsync-time` makes of its samples: statistics, documents, tables."""

import io
import json
import os
import tempfile
import unittest
from unittest import mock

from rich.console import Console

from fsyncstorage.timing.commits import committing
from fsyncstorage.timing.options.contestants import CONTESTANTS
from fsyncstorage.timing.results import document as documents
from fsyncstorage.timing.results import tables
from fsyncstorage.timing.results import wording
from fsyncstorage.timing.running import campaign
from fsyncstorage.timing.running import machine
from fsyncstorage.timing.running.progress import CampaignProgress


def txn(value, **figures):
    return {'txn_per_second': value, 'syncs': 100, 'conflicts': 0, **figures}


def made_document(samples, contestants=('filestorage', 'fsync:none'),
                  rounds=2, **settings):
    """A document with samples (contestant, round, figures) of one race."""
    race = committing.race(**{
        'threads': 8, 'transactions': 100, 'sync_latency': 0.005,
        'shared': False, **settings})
    made = documents.new(
        'commits', [race], [CONTESTANTS[name] for name in contestants],
        rounds, contestants[0], machine.describe(tempfile.gettempdir()))
    made['samples'] = [
        {'race': 0, 'contestant': contestant, 'round': number,
         'figures': figures}
        for contestant, number, figures in samples]
    documents.summarise(made)
    return made


def show(document):
    console = Console(file=io.StringIO(), width=80)
    tables.show(document, console)
    return console.file.getvalue()


class DocumentTests(unittest.TestCase):

    level = 2

    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.scratch = directory.name

    SAMPLES = [
        ('filestorage', 0, txn(1)), ('fsync:none', 0, txn(1000)),
        ('filestorage', 1, txn(100)), ('fsync:none', 1, txn(150)),
        ('filestorage', 2, txn(120)), ('fsync:none', 2, txn(290)),
    ]

    def test_results_leave_out_the_warm_up(self):
        results = made_document(self.SAMPLES)['results']
        self.assertEqual(results, [
            {'race': 0, 'contestant': 'filestorage',
             'figure': 'txn_per_second', 'rounds': 2,
             'median': 110, 'min': 100, 'max': 120,
             'ratio': {'of_medians': 1, 'min': 1, 'max': 1,
                       'interval': [1, 1]}},
            {'race': 0, 'contestant': 'fsync:none',
             'figure': 'txn_per_second', 'rounds': 2,
             'median': 220, 'min': 150, 'max': 290,
             'ratio': {'of_medians': 2, 'min': 1.5, 'max': 290 / 120,
                       'interval': mock.ANY}},
        ])

    def test_results_of_an_older_version_are_made_anew(self):
        document = made_document(self.SAMPLES)
        for found in document['results']:
            del found['ratio']['interval']
        documents.summarise(document)
        self.assertIn('220', show(document))

    def test_what_was_not_measured_has_no_result(self):
        document = made_document(self.SAMPLES[:3])
        self.assertIsNotNone(
            documents.result(document, 0, 'filestorage', 'txn_per_second'))
        self.assertIsNone(
            documents.result(document, 0, 'fsync:none', 'txn_per_second'))
        show(document)

    def test_round_trip(self):
        path = os.path.join(self.scratch, 'result.json')
        document = made_document(self.SAMPLES)
        documents.save(document, path)
        self.assertEqual(documents.load(path), document)

    def test_a_failed_save_leaves_the_old_file(self):
        path = os.path.join(self.scratch, 'result.json')
        documents.save({'old': 1}, path)
        with self.assertRaises(TypeError):
            documents.save({'new': object()}, path)
        self.assertEqual(documents.load(path), {'old': 1})
        self.assertEqual(os.listdir(self.scratch), ['result.json'])

    def test_no_path_and_no_name_of_the_machine(self):
        text = json.dumps(made_document(self.SAMPLES))
        self.assertNotIn(tempfile.gettempdir(), text)
        self.assertNotIn(f'"{os.uname().nodename}"', text)


class TablesTests(unittest.TestCase):

    level = 2

    def test_what_was_added_is_shown(self):
        text = show(made_document(DocumentTests.SAMPLES))
        for expected in (
                '5 ms added to each sync.\n', 'one tree a thread, 5 ms added',
                'threads that commit', '220', '150-290'):
            self.assertIn(expected, text)
        self.assertLessEqual(max(map(len, text.splitlines())), 80)

    def shown_ratio(self, *values):
        return show(made_document([
            (contestant, number, txn(value))
            for number, of_round in enumerate(values, 1)
            for contestant, value in zip(
                ('filestorage', 'fsync:none'), of_round)], rounds=3))

    def test_a_ratio_with_its_interval(self):
        text = self.shown_ratio((100, 200), (110, 221), (90, 181))
        self.assertIn(' 2.00x', text)
        self.assertIn('1.99x-2.02x', text)

    def test_what_the_noise_does_not_carry_is_marked(self):
        text = self.shown_ratio((100, 200), (110, 100), (90, 190))
        self.assertIn(' ~1.90x', text)
        self.assertIn('~ marks a ratio', ' '.join(text.split()))

    def test_an_interrupted_run_says_how_many_rounds_it_has(self):
        text = show(made_document(DocumentTests.SAMPLES, rounds=5))
        self.assertIn('2 of 5 rounds after', text)

    def test_shared_syncs_and_retries(self):
        text = show(made_document([
            ('filestorage', 1, txn(100, syncs=200)),
            ('fsync:none', 1, txn(150, syncs=20, conflicts=7)),
        ], rounds=1, shared=True))
        for expected in ('one shared tree', '2.0 syncs/txn', '5.0 txn/sync',
                         '7 retries', '1 round after'):
            self.assertIn(expected, text)

    def test_commits_that_do_not_wait_for_a_sync_share_none(self):
        text = show(made_document([
            ('filestorage', 1, txn(100, syncs=12)),
            ('fsync:none', 1, txn(150, syncs=11))], rounds=1))
        self.assertIn('8.3 txn/sync', text)
        self.assertEqual(text.count('txn/sync'), 1)

    def test_the_processor_time_of_one_is_beside_the_rate(self):
        """It has a ratio to the baseline, which may be marked as noise."""
        document = made_document([
            (contestant, number, txn(100, txn_cpu_seconds=seconds))
            for number, of_round in enumerate(
                ((0.0012, 0.0003), (0.001, 0.00025), (0.0014, 0.00036)), 1)
            for contestant, seconds in zip(
                ('filestorage', 'fsync:none'), of_round)], rounds=3)
        self.assertIn('1,200 us CPU\n', show(document).replace(' \n', '\n'))
        self.assertIn('300 us CPU 0.25x', show(document))
        for sample in document['samples']:
            if sample['round'] > 1:
                sample['figures']['txn_cpu_seconds'] = 0.001
        self.assertIn('1,000 us CPU ~1.00x', show(document))

    def test_loads(self):
        document = documents.new(
            'commits',
            [committing.beside_race(
                committers=4, seconds=1, sync_latency=0.05)],
            [CONTESTANTS['filestorage']], 1, 'filestorage',
            machine.describe(tempfile.gettempdir()))
        document['samples'] = [{
            'race': 0, 'contestant': 'filestorage', 'round': 1,
            'figures': {'p50_seconds': 0.00002, 'p99_seconds': 0.0512,
                        'max_seconds': 1.2, 'loads': 1234}}]
        documents.summarise(document)
        text = ' '.join(show(document).split())
        for expected in ('4 threads commit, 50 ms added', '0.0200', '51.2',
                         '1,200'):
            self.assertIn(expected, text)


class WordingTests(unittest.TestCase):

    level = 2

    def test_duration(self):
        for seconds, expected in [
                (1.5, '1.5 s'), (0.05, '50 ms'), (0.0012, '1.2 ms'),
                (0.000121, '121 us'), (0, '0 ns'), (3.2e-8, '32 ns'),
                (0.9994, '999 ms'), (0.9996, '1 s'), (9.996e-7, '1 us'),
                (999.6, '16.7 min'), (7200, '120 min'), (100000, '27.8 h')]:
            self.assertEqual(wording.duration(seconds), expected)

    def test_no_duration_has_more_than_three_digits(self):
        for power in range(-90, 55):
            for factor in 1, 1.004, 9.994, 9.996:
                text = wording.duration(factor * 10 ** (power / 10))
                self.assertRegex(
                    text, r'^(\d{1,3}|\d\d\.\d|\d\.\d\d?) [a-z]+$')

    def test_times(self):
        for ratio, expected in [
                (12, '12.00x'), (1.452, '1.45x'), (0.1, '0.10x'),
                (0.0999, '0.10x'), (0.0042, '0.0042x')]:
            self.assertEqual(wording.times(ratio), expected)

    def test_size(self):
        for bytes_, expected in [
                (1, '1 byte'), (500, '500 bytes'), (102400, '100 KB'),
                (3 << 19, '1.5 MB'), (2 << 30, '2 GB')]:
            self.assertEqual(wording.size(bytes_), expected)

    def test_number(self):
        for value, expected in [
                (12345.6, '12,346'), (99.96, '100'), (30.8977, '30.9'),
                (15.0112, '15.0'), (0.5, '0.500')]:
            self.assertEqual(wording.number(value), expected)

    def test_all_that_was_added(self):
        for latencies, expected in [
                ([0, 0], 'Nothing added to the syncs.'),
                ([0.005], '5 ms added to each sync.'),
                ([0, 0.001, 0, 0.005],
                 'Added to each sync, as each title says:'
                 ' nothing, 1 ms, 5 ms.')]:
            self.assertEqual(wording.all_added(latencies), expected)


RACE = campaign.Race('any', {}, None, ())


class ProgressTests(unittest.TestCase):

    level = 2

    def test_the_bar_tells_what_is_measured_and_the_time_left(self):
        steps = campaign.schedule([RACE], [CONTESTANTS['filestorage']], 2)
        now = [0]
        console = Console(
            file=io.StringIO(), width=80, force_terminal=True,
            get_time=lambda: now[0])
        with CampaignProgress(steps, 2, console) as progress:
            for step in progress.each_step():
                now[0] += 90
        self.assertIn('0:01:30', console.file.getvalue())
        self.assertIn('round 2 of 2: filestorage', console.file.getvalue())

    def test_nothing_where_there_is_no_terminal(self):
        steps = campaign.schedule([RACE], [CONTESTANTS['filestorage']], 1)
        console = Console(file=io.StringIO())
        with CampaignProgress(steps, 1, console) as progress:
            for step in progress.each_step():
                progress.refresh()
        self.assertEqual(console.file.getvalue(), '')
