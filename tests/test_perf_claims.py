"""What the campaigns claim, and the tables of 2009."""


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
from tests.test_timing_results import made_document
from tests.test_timing_results import txn


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
