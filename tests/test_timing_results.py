"""What `fsync-time` makes of its samples: statistics, documents, tables."""

import contextlib
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
from fsyncstorage.timing import document as documents
from fsyncstorage.timing import loops
from fsyncstorage.timing import machine
from fsyncstorage.timing import main
from fsyncstorage.timing import session
from fsyncstorage.timing import tables
from fsyncstorage.timing import wording
from fsyncstorage.timing.commits import committing
from fsyncstorage.timing.commits import loading
from fsyncstorage.timing.contestants import CONTESTANTS
from fsyncstorage.timing.progress import CampaignProgress
from fsyncstorage.timing.progress import Forecast
from fsyncstorage.timing.servers import relstorages
from fsyncstorage.timing.zeo import reading
from fsyncstorage.timing.zeo import sites
from fsyncstorage.timing.zeo import table2009
from fsyncstorage.timing.zeo import writing


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
             'ratio': {'of_medians': 1, 'min': 1, 'max': 1,
                       'interval': [1, 1]}},
            {'race': 0, 'contestant': 'fsync:none',
             'figure': 'txn_per_second', 'rounds': 2,
             'median': 220, 'min': 150, 'max': 290,
             'ratio': {'of_medians': 2, 'min': 1.5, 'max': 290 / 120,
                       'interval': mock.ANY}},
        ])

    def test_the_samples_of_a_round_stand_for_it_with_their_mean(self):
        document = made_document([
            ('filestorage', 1, txn(100)), ('filestorage', 1, txn(140)),
            ('filestorage', 2, txn(130))])
        self.assertEqual(
            documents.values(document, 0, 'filestorage', 'txn_per_second'),
            {1: 120, 2: 130})

    def test_results_of_an_older_version_are_made_anew(self):
        document = made_document(self.SAMPLES)
        del document['repeats']
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
                '8 threads', '30.9', 'Tim Peters', '220', '150-290'):
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


class ForecastTests(unittest.TestCase):

    def test_what_was_not_seen_takes_what_is_usual(self):
        steps = campaign.schedule([RACE], ['A', 'B', 'C'], 1)
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
        steps = campaign.schedule([RACE], [CONTESTANTS['filestorage']], 1)
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


class TableOf2009Tests(unittest.TestCase):

    def shown(self, *races, width=80, **figures):
        """Of one round, in which each contestant has these figures."""
        document = documents.new(
            'zeo', races,
            [sites.CONTESTANTS[name] for name in ('zeo', 'fsync-client')],
            1, 'zeo', machine.describe(tempfile.gettempdir()))
        document['samples'] = [
            {'race': number, 'contestant': contestant, 'round': 1,
             'figures': {name: value * (number + 1)
                         for name, value in figures.items()}}
            for number in range(len(races))
            for contestant in document['contestants']]
        console = Console(file=io.StringIO(), width=width)
        table2009.show(document, console)
        return console.file.getvalue()

    SITE = {'loop': 'asyncio', 'socket': False, 'pin': 'same',
            'sync_latency': 0.0, 'objects': 4}

    def write(self, clients, **settings):
        return writing.race(
            clients=clients, seconds=1, **{**self.SITE, **settings})

    def read(self, clients, **settings):
        return reading.race(
            clients=clients, access='get', **{**self.SITE, **settings})

    FIGURES = {'write_seconds': 0.001, 'cold_seconds': 0.01,
               'hot_seconds': 0.1, 'steamin_seconds': 0.5}

    def test_as_in_the_post(self):
        text = self.shown(self.write(2), self.write(1), self.read(1),
                          self.read(2), width=90, **self.FIGURES)
        lines = [line.split() for line in text.splitlines()]
        columns = ['write', 'cold', 'hot', 'steamin'] * 2
        self.assertEqual(
            lines[2:6], [
                ['zeo', 'fsync-client'],
                ['clients', *columns],
                ['1', *['0.002000', '0.030000', '0.300000', '1.500000'] * 2],
                ['2', *['0.001000', '0.040000', '0.400000', '2.000000'] * 2],
            ])
        self.assertEqual(lines[8], ['clients', *columns])
        self.assertEqual(
            lines[9][:5],
            ['1', '0.013520', '0.005740', '0.000620', '0.000170'])
        self.assertIn('4 objects a transaction, asyncio over TCP, server and'
                      ' clients on the same', ' '.join(text.split()))
        self.assertIn('Jim Fulton', text)

    def test_one_below_the_other_where_there_is_no_room(self):
        text = self.shown(
            self.write(1), self.read(1), width=60, **self.FIGURES)
        self.assertEqual(text.count('steamin'), 4)
        self.assertLessEqual(
            max(map(len, text.splitlines())), 60)

    def test_only_of_what_was_written_and_read(self):
        for other in (
                {'objects': 1}, {'loop': 'uvloop'}, {'pin': 'free'},
                {'socket': True}, {'sync_latency': 0.1}, {'clients': 2}):
            text = self.shown(self.write(**{'clients': 1, **other}),
                              self.read(1), **self.FIGURES)
            self.assertEqual(text, '', other)

    def test_interrupted(self):
        text = self.shown(self.write(1), self.read(1), write_seconds=0.001)
        self.assertIn(
            ['1', '0.001000', '-', '-', '-'],
            [line.split() for line in text.splitlines()])


class CampaignScript(unittest.TestCase):

    def load(self, name):
        perf = pathlib.Path(__file__).parent.parent / 'perf'
        if not perf.exists():
            self.skipTest('the perf scripts are part of a checkout only')
        with mock.patch.object(sys, 'path', [str(perf), *sys.path]):
            return importlib.import_module(name)

    def measured(self, races, claims):
        """The claims, when all figures by which they are compared are 1."""
        contestants = list(dict.fromkeys(
            name for claim in claims for name in (
                claim.contestant, claim.against or claim.contestant)))
        document = documents.new(
            'zeo', races, [sites.CONTESTANTS[name] for name in contestants],
            1, contestants[0], machine.describe(tempfile.gettempdir()))
        document['samples'] = [
            {'race': number, 'contestant': contestant, 'round': 1,
             'figures': dict.fromkeys(race.compared, 1.0)}
            for number, race in enumerate(races)
            for contestant in contestants]
        return {claim.words: claim.measured(document) for claim in claims}


class ZeoScriptTests(CampaignScript):
    """Each claim is about something that is measured."""

    def assertAllMeasured(self, races, claims):
        measured = self.measured(races, claims)
        self.assertEqual(len(measured), len(claims))
        for words, value in measured.items():
            self.assertEqual(value, 1.0, words)

    def test_client(self):
        script = self.load('zeo_client')
        for quick in True, False:
            self.assertAllMeasured(
                script.races(quick), list(script.all_claims()))

    def test_a_claim_may_be_about_two_figures(self):
        claim = self.load('claims').Claim(
            'words', 'any', {}, 'zeo', 'prefetch_seconds', against='zeo',
            against_figure='cold_seconds', under=0.2)
        race = campaign.Race('any', {'sync_latency': 0}, None, ())
        document = documents.new(
            'zeo', [race], [sites.CONTESTANTS['zeo']], 1, 'zeo', {})
        document['samples'] = [
            {'race': 0, 'contestant': 'zeo', 'round': 1,
             'figures': {'prefetch_seconds': 1, 'cold_seconds': 10}}]
        self.assertEqual(claim.measured(document), 0.1)

    def test_server(self):
        script = self.load('zeo_server')
        with mock.patch.object(loops, 'installed', lambda: ['asyncio']), \
                mock.patch.object(session, 'run') as run, \
                contextlib.redirect_stderr(io.StringIO()):
            main.main(script.PARAMETERS)
        options, _, races, _ = run.call_args.args
        self.assertAllMeasured(
            races(options, 0.0), list(script.of_loop('asyncio')))

    def test_what_is_not_installed_is_left_out(self):
        script = self.load('zeo_client')
        with mock.patch.object(relstorages.RelStorageSite, 'missing',
                               lambda self: 'not installed'), \
                contextlib.redirect_stderr(io.StringIO()) as said:
            contestants = list(script.contestants())
        self.assertEqual(
            [one.name for one in contestants], ['zeo', 'fsync-client'])
        self.assertIn(
            'relstorage:sqlite is left out: not installed', said.getvalue())


class CommitsScriptTests(CampaignScript):
    """perf/fsync_2004.py checks what the project claims."""

    def setUp(self):
        self.script = self.load('fsync_2004')

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

    def test_how_far_the_rounds_lie_apart(self):
        samples = [('filestorage', 1, txn(100)), ('filestorage', 2, txn(300)),
                   ('fsync:group-commit', 1, txn(900)),
                   ('fsync:group-commit', 2, txn(900))]
        claim = self.script.ratio(
            'fsync:group-commit', 'filestorage', 16, 0.005, at_least=4)
        document = made_document(
            samples, contestants=('filestorage', 'fsync:group-commit'),
            threads=16)
        console = Console(file=io.StringIO(), width=120)
        self.assertTrue(self.load('claims').show([claim], document, console))
        self.assertIn('4.50x   3.00x-9.00x   yes', console.file.getvalue())
