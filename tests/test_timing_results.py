"""What `fsync-time` makes of its samples: statistics, documents, tables."""

import importlib
import io
import json
import os
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

from rich.console import Console

from fsyncstorage.timing import campaign
from fsyncstorage.timing import committing
from fsyncstorage.timing import document as documents
from fsyncstorage.timing import loading
from fsyncstorage.timing import machine
from fsyncstorage.timing import statistics
from fsyncstorage.timing import tables
from fsyncstorage.timing import wording
from fsyncstorage.timing.contestants import CONTESTANTS
from fsyncstorage.timing.progress import CampaignProgress
from fsyncstorage.timing.progress import Forecast


class StatisticsTests(unittest.TestCase):

    def test_percentile_is_one_of_the_values(self):
        values = list(range(100, 0, -1))
        for percent, expected in [
                (0, 1), (1, 1), (50, 50), (99, 99), (99.5, 100), (100, 100)]:
            self.assertEqual(
                statistics.percentile(values, percent), expected, percent)
        self.assertEqual(statistics.percentile([7], 50), 7)

    def test_spread(self):
        self.assertEqual(
            statistics.spread([3, 1, 100]),
            {'median': 3, 'min': 1, 'max': 100})

    def test_ratio_of_medians_and_of_rounds(self):
        self.assertEqual(
            statistics.ratio({1: 20, 2: 30, 3: 90}, {1: 10, 2: 20, 3: 15}),
            {'of_medians': 2, 'min': 1.5, 'max': 6})

    def test_ratio_of_an_interrupted_run(self):
        # The baseline was not measured in round 2 yet.
        self.assertEqual(
            statistics.ratio({1: 20, 2: 30}, {1: 10}),
            {'of_medians': 2.5, 'min': 2, 'max': 2})
        self.assertIsNone(statistics.ratio({1: 20}, {}))
        self.assertIsNone(statistics.ratio({}, {1: 20}))


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
    tables.show_commits(document, console)
    return console.file.getvalue()


class DocumentTests(unittest.TestCase):

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
             'ratio': {'of_medians': 1, 'min': 1, 'max': 1}},
            {'race': 0, 'contestant': 'fsync:none',
             'figure': 'txn_per_second', 'rounds': 2,
             'median': 220, 'min': 150, 'max': 290,
             'ratio': {'of_medians': 2, 'min': 1.5, 'max': 290 / 120}},
        ])

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

    def test_tids_are_written_in_hex(self):
        path = os.path.join(self.scratch, 'result.json')
        documents.save({'tid': b'\1\xff'}, path)
        self.assertEqual(documents.load(path), {'tid': '01ff'})

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

    def test_what_was_added_and_the_year_2004_are_shown(self):
        text = show(made_document(DocumentTests.SAMPLES))
        for expected in (
                '5 ms added to each sync.\n', 'One tree a thread, 5 ms added',
                '8 threads', '30.9', 'Tim Peters', '2.00x', '1.50x-2.42x',
                '220', '150-290'):
            self.assertIn(expected, text)
        self.assertLessEqual(max(map(len, text.splitlines())), 80)

    def test_shared_syncs_and_retries(self):
        text = show(made_document([
            ('filestorage', 1, txn(100, syncs=200)),
            ('fsync:none', 1, txn(150, syncs=20, conflicts=7)),
        ], rounds=1, shared=True))
        self.assertNotIn('30.9', text)  # of a tree that nobody shared
        for expected in ('One shared tree', '2.0 syncs/txn', '5.0 txn/sync',
                         '7 retries', '1 round after'):
            self.assertIn(expected, text)

    def test_loads(self):
        document = documents.new(
            'commits',
            [loading.race(committers=4, seconds=1, sync_latency=0.05)],
            [CONTESTANTS['filestorage']], 1, 'filestorage',
            machine.describe(tempfile.gettempdir()))
        document['samples'] = [{
            'race': 0, 'contestant': 'filestorage', 'round': 1,
            'figures': {'p50_seconds': 0.00002, 'p99_seconds': 0.0512,
                        'max_seconds': 1.2, 'loads': 1234}}]
        documents.summarise(document)
        text = show(document)
        for expected in ('while 4 threads commit, 50 ms added', '0.020',
                         '51.2', '1,200', '1,234'):
            self.assertIn(expected, text)


class WordingTests(unittest.TestCase):

    def test_duration(self):
        for seconds, expected in [
                (1.5, '1.5 s'), (0.05, '50 ms'), (0.0012, '1.2 ms'),
                (0.000121, '121 us'), (0, '0 us')]:
            self.assertEqual(wording.duration(seconds), expected)

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
                 'Added to each sync, as each table says:'
                 ' nothing, 1 ms, 5 ms.')]:
            self.assertEqual(wording.all_added(latencies), expected)


class ForecastTests(unittest.TestCase):

    def test_what_was_not_seen_takes_what_is_usual(self):
        steps = campaign.schedule(['race'], ['A', 'B', 'C'], 1)
        forecast = Forecast(steps)
        self.assertIsNone(forecast.seconds())
        forecast.took(steps[0], 10)
        self.assertEqual(forecast.seconds(), 50)
        forecast.took(steps[1], 2)
        # C twice as usual, B as it was, A as it was
        self.assertEqual(forecast.seconds(), 6 + 6 + 2 + 10)
        for step in steps[2:]:
            forecast.took(step, 1)
        self.assertEqual(forecast.seconds(), 0)

    def test_the_bar_tells_the_time_left(self):
        steps = campaign.schedule(['race'], [CONTESTANTS['filestorage']], 1)
        console = Console(
            file=io.StringIO(), width=80, force_terminal=True)
        with mock.patch(
                'fsyncstorage.timing.progress.monotonic',
                side_effect=[0, 90, 90, 90, 120]):
            with CampaignProgress(steps, 1, console) as progress:
                for step in steps:
                    with progress.step(step):
                        pass
        self.assertIn('1:30 left', console.file.getvalue())
        self.assertIn('round 1 of 1: filestorage', console.file.getvalue())


class CampaignScriptTests(unittest.TestCase):
    """perf/fsync_2004.py checks what the project claims."""

    def setUp(self):
        perf = pathlib.Path(__file__).parent.parent / 'perf'
        if not perf.exists():
            self.skipTest('the perf scripts are part of a checkout only')
        with mock.patch.object(sys, 'path', [str(perf), *sys.path]):
            self.script = importlib.import_module('fsync_2004')

    def judged(self, claim, samples):
        document = made_document(
            samples, contestants=('filestorage', 'fsync:group-commit'),
            threads=16, rounds=1)
        return claim.measured(document), claim.holds(document)

    def test_a_claim_is_judged_by_its_race(self):
        samples = [('filestorage', 1, txn(100)),
                   ('fsync:group-commit', 1, txn(900))]
        claim = self.script.ratio(
            'fsync:group-commit', 'filestorage', 16, 0.005, at_least=8)
        self.assertEqual(self.judged(claim, samples), (9, True))
        claim = self.script.ratio(
            'fsync:group-commit', 'filestorage', 16, 0.005, at_least=10)
        self.assertEqual(self.judged(claim, samples), (9, False))

    def test_what_was_not_measured_does_not_hold(self):
        claim = self.script.ratio(
            'fsync:group-commit', 'filestorage', 1, 0.005, at_least=1)
        self.assertEqual(self.judged(claim, []), (None, False))
