"""The campaigns: what they claim, record and draw again."""

import os
import pathlib
import shutil
import types
import unittest
from unittest import mock

from fsyncstorage.timing.contestants import CONTESTANTS
from fsyncstorage.timing.results import document as documents
from fsyncstorage.timing.running import sampling
from fsyncstorage.timing.running import zeosites
from perf import __main__ as command
from perf import campaign
from perf import claims
from perf import fsync_2004
from perf import zeo

from ..support import run_command
from ..timing.support import Scratch
from ..timing.support import document_of
from ..timing.support import of_commits
from ..timing.support import of_races
from ..timing.support import reads

RACE = sampling.Race('any', {}, None, ('n',))


class ClaimTests(unittest.TestCase):

    def test_a_claim_is_judged_by_its_race(self):
        document = of_commits((100, 900), threads=16)
        document['contestants'] = dict.fromkeys(
            ('filestorage', 'fsync:none'), '')
        for threads, at_least, expected in [
                (16, 8, (9, True)), (16, 10, (9, False)),
                (1, 1, (None, False))]:
            claim = fsync_2004.ratio('fsync:none', 'filestorage', threads,
                                     0.005, at_least=at_least)
            self.assertEqual(
                (claim.measured(document), claim.holds(document)), expected)

    def test_a_claim_may_be_about_two_figures(self):
        claim = claims.Claim('words', 'any', {}, 'zeo', 'fast', against='zeo',
                             against_figure='slow', under=0.2)
        document = document_of(
            [RACE], [(0, 'zeo', 1, {'fast': 1, 'slow': 10})], names=['zeo'])
        self.assertEqual(claim.measured(document), 0.1)
        self.assertTrue(claim.holds(document))

    def test_each_claim_is_about_something_that_is_measured(self):
        with mock.patch.object(zeosites, 'loops', lambda: ['asyncio']):
            for name, one in command.CAMPAIGNS.items():
                with self.subTest(name):
                    self.check(one)

    def check(self, one):
        races, contestants = one.races(False), one.contestants
        document = document_of(races, [
            (number, contestant.name, 1, {
                **dict.fromkeys(race.compared, 1.0),
                # Counted, but not compared.
                'child_allowed_mb': 1.0})
            for number, race in enumerate(races)
            for contestant in contestants if race.takes(contestant)],
            names=[each.name for each in contestants])
        for claim in one.claims(document):
            self.assertEqual(claim.measured(document), 1 / (1 + claim.plus),
                             claim.words)
        self.assertNotEqual(*([str(race.settings) for race in one.races(quick)]
                              for quick in (False, True)))


class Perf(Scratch):
    """`python -m perf`, with results in the scratch directory."""

    def run_main(self, name, *arguments):
        return run_command(
            command.main, name, '--results', self.scratch, *arguments)


class RecordTests(Perf):

    def setUp(self):
        super().setUp()
        self.holds = True
        self.enterContext(mock.patch.object(
            campaign, 'CAN_DRAW', False))
        self.enterContext(mock.patch.object(sampling, 'run', self.measure))
        self.campaign(CONTESTANTS['filestorage'])

    def campaign(self, contestant, **options):
        self.enterContext(mock.patch.dict(
            command.CAMPAIGNS, tried=campaign.Campaign(
                'tried', 'a campaign', [contestant], lambda quick: [RACE],
                rounds=5, claims=lambda document: [claims.Claim(
                    'it', 'any', {}, 'filestorage', 'n',
                    **({'at_least': 1} if self.holds else {'under': 1}))],
                **options)))

    def measure(self, options, name, races, show, added):
        """Takes the place of `sampling.run`."""
        self.rounds = options.rounds
        document = document_of(races, [
            (0, 'filestorage', number, {'n': 1})
            for number in range(1, options.rounds + 1)],
            names=['filestorage'], rounds=options.rounds, command=name)
        if options.json:
            documents.save(document, options.json)
        show(document, campaign.Console())
        return 0

    def record(self, *options):
        code, out, err = self.run_main('record', 'tried', *options)
        self.files = sorted(os.listdir(self.scratch))
        return code, out, err

    def test_a_run_is_recorded(self):
        code, out, err = self.record()
        self.assertEqual((code, self.rounds), (0, 5))
        self.assertEqual(self.files, ['tried.json', 'tried.txt'])
        text = pathlib.Path(self.scratch, 'tried.txt').read_text()
        for expected in 'filestorage', 'claimed', 'yes':
            self.assertIn(expected, text)
            self.assertIn(expected, out)

    def test_a_claim_that_does_not_hold(self):
        self.holds = False
        # A quick run records and judges nothing.
        for options, expected in [(['--quick'], 0), ([], 1)]:
            code, out, err = self.record(*options)
            self.assertEqual(code, expected)
            self.assertIn('NO', out)
            self.assertEqual(bool(self.files), bool(expected))

    def test_what_cannot_be_measured_is_said(self):
        self.campaign(types.SimpleNamespace(
            name='it', missing=lambda: 'not installed'))
        self.assertEqual(self.record(), (
            2, '', 'perf tried: it is left out: not installed\n'
            'perf tried: nothing is left to measure\n'))
        self.campaign(CONTESTANTS['filestorage'],
                      obstacle=lambda directory: f'not in {directory}')
        self.assertEqual(self.record('--directory', self.scratch), (
            2, '', f'perf tried: not in {self.scratch}\n'))

    def test_bad_input_is_one_line(self):
        for line, code, expected in [
                ('record nothing', 2, "no 'nothing'; allowed are fsync_2004,"),
                ('record claims --rounds 0', 2, 'whole number'),
                ('draw pack', 1, 'pack.json')]:
            with self.subTest(line):
                found, out, err = self.run_main(*line.split())
                self.assertEqual((found, out), (code, ''))
                self.assertEqual(len(err.splitlines()), 1)
                self.assertIn(expected, err)


class DrawTests(Perf):

    level = 3

    def test_all_that_was_recorded(self):
        recorded = sorted(command.RESULTS.glob('*.json'))
        self.assertLessEqual(
            {path.stem for path in recorded}, command.CAMPAIGNS.keys())
        for path in recorded:
            shutil.copy(path, self.scratch)
        self.assertEqual(self.run_main('draw')[0], 0)
        results = pathlib.Path(self.scratch)
        page = (results / 'report.html').read_text()
        for path in recorded:
            text = (results / f'{path.stem}.txt').read_text()
            self.assertIn(documents.load(path)['baseline'], text)
            self.assertIn(f'id="{path.stem}"', page)
            if campaign.CAN_DRAW:
                self.assertEqual(*(
                    sorted(one.name for one in (
                        home / 'pictures' / path.stem).glob('*.png'))
                    for home in (command.RESULTS, results)))
        self.assertIn('Jim Fulton', page)


@unittest.skipUnless(campaign.CAN_DRAW, 'matplotlib is not installed')
class PictureTests(Scratch):

    level = 3

    def setUp(self):
        super().setUp()
        from perf import pictures
        self.pictures = pictures

    def of_commits(self, **figures):
        return self.pictures.of(of_commits(*(
            [{'txn_per_second': one, **figures} for one in pair]
            for pair in ((100, 150), (120, 290)))))

    def test_of_commits(self):
        picture, = self.of_commits()
        self.assertEqual(picture.name, 'commits')
        self.assertEqual(picture.panels, {'5 ms added to each sync': {
            'filestorage': [(8, 110, 100, 120)],
            'fsync:none': [(8, 220, 150, 290)]}})

    def test_what_did_not_wait_for_its_sync_is_in_no_batch(self):
        for commits, expected in (8, ['commits', 'batches']), (9, ['commits']):
            self.assertEqual(
                [one.name for one in self.of_commits(
                    commits_per_sync=commits)], expected)

    def test_of_reads(self):
        found = self.pictures.of(of_races(*(
            reads(clients, access) for access in ('get', 'ghosts')
            for clients in (16, 1))))
        self.assertEqual([one.name for one in found], [
            'zeo-reads-get', 'zeo-reads-ghosts', 'zeo-read-times-get',
            'zeo-read-times-ghosts'])
        self.assertEqual(
            list(found[0].panels), ['cold', 'hot', 'steamin', 'prefetch'])
        # In the order of the clients, not in that of the races.
        self.assertEqual(found[0].panels['cold']['zeo'],
                         [(1, 3, 2, 4), (16, 1.5, 1, 2)])

    def test_a_file(self):
        picture = self.pictures.of(of_races(reads(1), reads(16)))[0]
        path = os.path.join(self.scratch, 'picture.png')
        self.pictures.save(picture, path)
        self.assertEqual(int.from_bytes(
            pathlib.Path(path).read_bytes()[16:20], 'big'), 1200)


class MeasureTests(Scratch):
    """Real servers and clients, for a short time."""

    level = 2

    def test_a_second_sync_in_vote(self):
        """It is one of the contestants of 2004."""
        contestant = fsync_2004.WITH_TWO_FSYNCS
        self.assertIn(contestant, fsync_2004.contestants())
        figures = fsync_2004.commits.measure(
            contestant, self.scratch, threads=1, seconds=0, sync_latency=0,
            shared=False)
        self.assertEqual(figures['syncs'], 2 * figures['transactions'])

    def test_reads_beside_commits(self):
        for figures in (
                self.sample(zeosites.CONTESTANTS['zeo'], zeo.measure_beside,
                            seconds=0.01),
                fsync_2004.measure_beside(
                    CONTESTANTS['filestorage'], self.scratch, committers=2,
                    seconds=0.01, sync_latency=0)):
            self.assertGreater(figures['p50_seconds'], 0)
            self.assertGreaterEqual(
                figures['max_seconds'], figures['p99_seconds'])
