"""What `fsync-time` makes of its samples: ratios, documents, tables, verdicts.

What is said of noisy samples: is it right, and how often?  Synthetic systems,
seeded: it is a matter of arithmetic, not of the machine.
"""

import math
import os
import random
import tempfile
import unittest
from unittest import mock

from fsyncstorage.timing import disk
from fsyncstorage.timing.results import document as documents
from fsyncstorage.timing.results import estimates
from fsyncstorage.timing.results import wording

from .support import document_of
from .support import of_commits
from .support import shown

ROUNDS = 7
NOISE = 0.10


class EstimateTests(unittest.TestCase):

    def test_percentile_is_one_of_the_values(self):
        values = list(range(100, 0, -1))
        for percent, expected in [
                (0, 1), (1, 1), (50, 50), (99, 99), (99.5, 100), (100, 100)]:
            self.assertEqual(
                estimates.percentile(values, percent), expected, percent)
        self.assertEqual(estimates.percentile([7], 50), 7)

    def test_ratio_of_an_interrupted_run(self):
        # The baseline was not measured in round 2 yet.
        self.assertEqual(
            estimates.ratio({1: 20, 2: 30}, {1: 10}),
            {'of_medians': 2.5, 'min': 2, 'max': 2, 'interval': None})
        self.assertIsNone(estimates.ratio({1: 20}, {}))
        self.assertIsNone(estimates.ratio({}, {1: 20}))

    def test_the_interval_is_that_of_the_number_of_rounds(self):
        # Between two numbers of a table: that of the smaller one.
        for rounds, expected in [
                (7, 2.612), (8, 2.517), (11, 2.359), (12, 2.359), (13, 2.303),
                (200, 2.081)]:
            values = {number: math.exp((-1) ** number * bool(number))
                      for number in range(rounds)}
            low, high = estimates.ratio(
                values, dict.fromkeys(values, 1))['interval']
            logs = list(map(math.log, values.values()))
            mean = sum(logs) / rounds
            error = math.sqrt(sum((one - mean) ** 2 for one in logs) / (
                rounds * (rounds - 1)))
            self.assertAlmostEqual(
                math.log(high / low) / 2 / error, expected, 6)

    def test_the_medians_must_say_the_same(self):
        for interval, of_medians, expected in [
                ([1.1, 1.3], 1.2, True), ([1.1, 1.3], 0.9, False),
                ([0.7, 0.9], 0.8, True), ([0.7, 0.9], 1.1, False),
                ([0.9, 1.1], 1.05, False)]:
            self.assertEqual(
                estimates.carried(
                    {'of_medians': of_medians, 'interval': interval}),
                expected)


class NamedDifferenceTests(unittest.TestCase):
    """A real difference is named, and noise is not called one."""

    level = 2
    RUNS = 500

    def named(self, ratio, own, common=0.0):
        """The share of runs in which a difference of `ratio` is named.

        The noise of `own` is that of each sample, the noise of `common` hits
        all samples of a round.
        """
        chance = random.Random(20261120)

        def rounds(true, drifts):
            return {
                number: true * math.exp(drift + chance.gauss(0, own))
                for number, drift in enumerate(drifts)}

        named = 0
        for _ in range(self.RUNS):
            drifts = [chance.gauss(0, common) for _ in range(ROUNDS)]
            named += estimates.carried(estimates.ratio(
                rounds(1000 * ratio, drifts), rounds(1000, drifts)))
        return named / self.RUNS

    def test_when_rounds_differ_more_than_the_samples_of_one(self):
        noise = {'own': 0.04, 'common': math.sqrt(NOISE ** 2 - 0.04 ** 2)}
        self.assertGreaterEqual(self.named(1.1, **noise), 0.8)
        self.assertGreaterEqual(self.named(0.9, **noise), 0.8)
        self.assertLessEqual(self.named(1, **noise), 0.05)

    def test_when_each_sample_differs_by_itself(self):
        self.assertLessEqual(self.named(1, own=NOISE), 0.05)
        # No test can do much better, see docs/timing.rst.
        self.assertLess(self.named(1.1, own=NOISE), 0.45)


class DocumentTests(unittest.TestCase):

    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.path = os.path.join(directory.name, 'result.json')
        self.made = of_commits((100, 150), (120, 290))

    def test_results_leave_out_the_warm_up(self):
        self.made['samples'].append({
            'race': 0, 'contestant': 'filestorage', 'round': 0,
            'figures': {'txn_per_second': 1}})
        for name, expected in (
                ('filestorage', {
                    'median': 110, 'min': 100, 'max': 120, 'ratio': {
                        'of_medians': 1, 'min': 1, 'max': 1,
                        'interval': [1, 1]}}),
                ('fsync:none', {
                    'median': 220, 'min': 150, 'max': 290, 'ratio': {
                        'of_medians': 2, 'min': 1.5, 'max': 290 / 120,
                        'interval': mock.ANY}})):
            self.assertEqual(documents.result(
                self.made, 0, name, 'txn_per_second'), expected)

    def test_the_file(self):
        """It is JSON with a line for each sample."""
        documents.save(self.made, self.path)
        self.assertEqual(documents.load(self.path), self.made)
        with open(self.path) as file:
            self.assertEqual(
                sum(line.startswith('{"race": 0, "contestant"') and
                    '"figures"' in line for line in file), 4)

    def test_a_failed_save_leaves_the_old_file(self):
        documents.save({'old': 1}, self.path)
        with self.assertRaises(TypeError):
            documents.save({'new': object()}, self.path)
        self.assertEqual(documents.load(self.path), {'old': 1})
        self.assertEqual(
            os.listdir(os.path.dirname(self.path)), ['result.json'])


class TableTests(unittest.TestCase):

    def assertShown(self, document, *expected):
        text = shown(document)
        self.assertLessEqual(max(map(len, text.splitlines())), 80)
        words = ' '.join(text.split())
        for each in expected:
            self.assertIn(each, words)
        return words

    def test_what_was_added_is_shown(self):
        self.assertShown(
            of_commits((100, 150), (120, 290)),
            'one tree a thread, 5 ms added',
            'threads that commit 8', '220', '150-290', 'No verdict: the noise')
        for rounds, expected in [
                (((100, 200), (110, 221), (90, 181)), ' 2.00x'),
                # The noise does not carry it.
                (((100, 200), (110, 100), (90, 190)), ' no verdict')]:
            self.assertShown(of_commits(*rounds), expected)

    def test_an_interrupted_run_says_how_many_rounds_it_has(self):
        document = of_commits((100, 150), rounds=5)
        del document['samples'][1]
        text = self.assertShown(document, '1 of 5 rounds after')
        self.assertNotIn('fsync:none', text)

    def test_shared_syncs_and_retries(self):
        def figures(**figures):
            return {'txn_per_second': 1, 'transactions': 100, **figures}

        self.assertShown(
            of_commits((figures(syncs=200), figures(syncs=20, conflicts=7)),
                       shared=True),
            'one shared tree', '2.0 syncs/txn', '5.0 txn/sync', '7 retries',
            '1 round after')
        # Commits that do not wait for a sync share none.
        text = self.assertShown(of_commits(
            (figures(syncs=12), figures(syncs=11))), '8.3 txn/sync')
        self.assertEqual(text.count('txn/sync'), 1)

    def test_the_processor_time_of_one_is_beside_the_rate(self):
        """It has a ratio to the baseline, if the noise carries one."""
        def figures(seconds):
            return {'txn_per_second': 100, 'txn_cpu_seconds': seconds}

        rounds = [(0.0012, 0.0003), (0.001, 0.00025), (0.0014, 0.00036)]
        text = self.assertShown(of_commits(
            *(map(figures, pair) for pair in rounds)), '300 us CPU 0.25x')
        self.assertIn('1,200 us CPU fsync:none', text)
        self.assertShown(of_commits(
            *(map(figures, pair) for pair in (rounds[0], (1, 1), (1, 1)))),
            '1,000,000 us CPU no verdict')


class WordingTests(unittest.TestCase):

    def test_numbers(self):
        for put, cases in {
                wording.duration: [
                    (1.5, '1.5 s'), (0.0012, '1.2 ms'), (0.000121, '121 us'),
                    (0, '0 ns'), (0.9994, '999 ms'), (0.9996, '1 s'),
                    (999.6, '16.7 min'), (7200, '120 min')],
                wording.times: [
                    (12, '12.00x'), (0.1, '0.10x'), (0.0042, '0.0042x')],
                wording.size: [
                    (1, '1 byte'), (500, '500 bytes'), (102400, '100 KB'),
                    (3 << 19, '1.5 MB'), (2 << 30, '2 GB')],
                wording.number: [
                    (12345.6, '12,346'), (99.96, '100'), (30.8977, '30.9'),
                    (15.0112, '15.0'), (0.5, '0.500')]}.items():
            for value, expected in cases:
                self.assertEqual(put(value), expected)


def of_disk(sync=0.003, file_system='ext4', load=0.5, **rates):
    """The verdicts on a disk, and the document that they are about."""
    rates = {'none': 600, 'interval': 500, 'group-commit': 400,
             'per-commit': 300, 'two-sync': 200, **rates}
    document = document_of(disk.races(True), [
        (0, disk.WAYS[0].name, 1, {
            'p50_seconds': sync, 'p99_seconds': 0.02, 'max_seconds': 0.5}),
        *((race, f'fsync:{policy}', 1, {'txn_per_second': race * rate})
          for race in (1, 2, 3) for policy, rate in rates.items())],
        names=[each.name for each in (*disk.WAYS, *disk.STORAGES)],
        rounds=1, command='disk')
    document['machine'].update(load_average=2 * load, file_system=file_system)
    document['complete'] = True
    return disk.verdicts(document), document


class VerdictTests(unittest.TestCase):

    def test_borders(self):
        for microseconds, others, no_disk, expected in [
                (19, {}, True, 'This is no disk: none keeps data within'),
                (20, {}, False, 'honest only with a cache'),
                (199, {}, False, 'honest only with a cache'),
                (200, {}, False, 'as with a disk that waits'),
                # A busy disk is no proof of a slow one.
                (199, {'load': 2}, False, 'honest only with a cache'),
                (200, {'load': 2}, False, 'says nothing'),
                # Memory is no disk, however slow.
                (9000, {'file_system': 'tmpfs'}, True, 'tmpfs is memory')]:
            with self.subTest(microseconds, **others):
                (said, _, is_none), _ = of_disk(microseconds / 1e6, **others)
                self.assertEqual(is_none, no_disk)
                self.assertIn(expected, said)

    def test_figures_that_cannot_be_trusted(self):
        def noise(**of):
            return of_disk(**of)[0][1]

        self.assertIsNone(noise(load=1))
        self.assertIn('than there are processors', noise(load=1.01))
        for group, believed in (600, True), (900, True), (901, False):
            found = noise(**{'group-commit': group})
            self.assertEqual(found is None, believed, group)
        self.assertIn('contradict', found)
        # A policy that does not sync may be faster.
        self.assertIsNone(noise(interval=2000))

    def shown(self, document):
        return ' '.join(shown(document, disk.show).split())

    def test_what_is_not_said(self):
        """Nothing is promised where there is no disk, nothing is made of
        noise, and what was not measured is not judged."""
        _, unfinished = of_disk()
        unfinished['complete'] = False
        for document, expected, unexpected in [
                (of_disk(file_system='tmpfs')[1],
                 'tmpfs is memory', 'nothing that was ack'),
                (of_disk()[1], 'interval: a power cut may take back at most',
                 'Do not trust'),
                (of_disk(load=3)[1], 'Do not trust', disk.ADVICE),
                (unfinished, '3.00 20.0', 'A sync takes')]:
            text = self.shown(document)
            self.assertIn(expected, text)
            self.assertNotIn(unexpected, text)
