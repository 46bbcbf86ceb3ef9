"""The campaigns: what they claim, record and draw again."""

import contextlib
import io
import os
import pathlib
import shutil
import tempfile
import types
import unittest
import warnings
from unittest import mock

from rich.console import Console

from fsyncstorage.timing.options.contestants import CONTESTANTS
from fsyncstorage.timing.reports import commandline as reports
from fsyncstorage.timing.reports import pictures
from fsyncstorage.timing.results import document as documents
from fsyncstorage.timing.running import crew
from fsyncstorage.timing.running import loops
from fsyncstorage.timing.running import machine
from fsyncstorage.timing.running import measurement
from fsyncstorage.timing.running import supervisor
from fsyncstorage.timing.running.campaign import Race
from fsyncstorage.timing.servers import zeosites as sites
from fsyncstorage.timing.zeo import reading
from fsyncstorage.timing.zeo import writing
from perf import __main__ as command
from perf import campaign
from perf import claims
from perf import fsync_2004
from perf import pinning
from perf import questions
from perf import table2009

from ..timing.test_timing import Scratch
from ..timing.test_timing import SlowedSyncs
from ..timing.test_timing_plots import document_of
from ..timing.test_timing_results import made_document
from ..timing.test_timing_results import txn
from ..timing.test_timing_zeo import SETTINGS


class TableOf2009Tests(unittest.TestCase):

    level = 2

    def shown(self, *races, **figures):
        """The table of one round; each contestant has these figures."""
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
        console = Console(file=io.StringIO(), width=80)
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
                          self.read(2), **self.FIGURES)
        lines = [line.split() for line in text.splitlines()]
        at = lines.index(['zeo'])
        self.assertIn(
            ['clients', 'write', 'cold', 'hot', 'steamin'], lines[:at])
        measured = [
            ['1', '0.002000', '0.030000', '0.300000', '1.500000'],
            ['2', '0.001000', '0.040000', '0.400000', '2.000000']]
        self.assertEqual(
            lines[at:at + 6], [
                ['zeo'], *measured, ['fsync-client'], *measured])
        self.assertEqual(
            lines[at + 6:at + 8], [
                ['2009:', 'ZEO'],
                ['1', '0.013520', '0.005740', '0.000620', '0.000170']])
        self.assertIn('4 objects a transaction, asyncio, over TCP, server and'
                      ' clients on the same', ' '.join(text.split()))
        self.assertIn('Jim Fulton', text)

    def test_of_then_as_many_clients_as_now(self):
        text = self.shown(self.write(16), self.read(16), **self.FIGURES)
        self.assertIn('0.243610', text)
        self.assertNotIn('0.013520', text)

    def test_over_a_network(self):
        network = {'network_delay': 0.001}
        text = self.shown(self.write(1, **network), self.read(1, **network),
                          **self.FIGURES)
        self.assertIn('0.018090', text)
        self.assertIn('clients on another machine', ' '.join(text.split()))

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


class ClaimTests(unittest.TestCase):

    level = 2

    def judged(self, claim, samples):
        document = made_document(
            samples, contestants=('filestorage', 'fsync:group-commit'),
            threads=16, rounds=1)
        return claim.measured(document), claim.holds(document)

    def test_a_claim_is_judged_by_its_race(self):
        samples = [('filestorage', 1, txn(100)),
                   ('fsync:group-commit', 1, txn(900))]
        claim = fsync_2004.ratio(
            'fsync:group-commit', 'filestorage', 16, 0.005, at_least=8)
        self.assertEqual(self.judged(claim, samples), (9, True))
        claim = fsync_2004.ratio(
            'fsync:group-commit', 'filestorage', 16, 0.005, at_least=10)
        self.assertEqual(self.judged(claim, samples), (9, False))

    def test_what_was_not_measured_does_not_hold(self):
        claim = fsync_2004.ratio(
            'fsync:group-commit', 'filestorage', 1, 0.005, at_least=1)
        self.assertEqual(self.judged(claim, []), (None, False))

    def test_a_claim_may_be_about_two_figures(self):
        claim = claims.Claim(
            'words', 'any', {}, 'zeo', 'prefetch_seconds', against='zeo',
            against_figure='cold_seconds', under=0.2)
        document = documents.new(
            'zeo', [Race('any', {'sync_latency': 0}, None, ())],
            [sites.CONTESTANTS['zeo']], 1, 'zeo', {})
        document['samples'] = [
            {'race': 0, 'contestant': 'zeo', 'round': 1,
             'figures': {'prefetch_seconds': 1, 'cold_seconds': 10}}]
        self.assertEqual(claim.measured(document), 0.1)
        self.assertTrue(claim.holds(document))

    def test_how_far_the_rounds_lie_apart_and_what_they_carry(self):
        samples = [('filestorage', 1, txn(100)), ('filestorage', 2, txn(300)),
                   ('filestorage', 3, txn(200)),
                   *(('fsync:group-commit', number, txn(900))
                     for number in (1, 2, 3))]
        claim = fsync_2004.ratio(
            'fsync:group-commit', 'filestorage', 16, 0.005, at_least=4)
        document = made_document(
            samples, contestants=('filestorage', 'fsync:group-commit'),
            threads=16)
        console = Console(file=io.StringIO(), width=120)
        self.assertTrue(claims.show([claim], document, console))
        self.assertRegex(
            console.file.getvalue(),
            r'4\.50x +\d\.\d\dx-\d+\.\d\dx +3\.00x-9\.00x +yes')


class ContestantsOf2004Tests(SlowedSyncs):

    level = 2

    def test_a_second_sync_in_vote_waits_too(self):
        self.assertEqual(
            self.syncs_of_commits(fsync_2004.WITH_TWO_FSYNCS, 3), [0.005] * 6)

    def test_it_takes_part(self):
        self.assertEqual(
            [one.name for one in fsync_2004.contestants()],
            ['filestorage', 'filestorage:no-fsync', 'filestorage:vote-fsync',
             'fsync:none', 'fsync:interval', 'fsync:group-commit',
             'fsync:per-commit', 'fsync:two-sync'])


class EachCampaignTests(unittest.TestCase):

    level = 2

    def test_each_claim_is_about_something_that_is_measured(self):
        with mock.patch.object(loops, 'installed', lambda: ['asyncio']):
            for name, one in command.CAMPAIGNS.items():
                with self.subTest(name):
                    self.check(one)

    def check(self, one):
        races, contestants = one.races(False), one.contestants
        document = documents.new(
            one.name, races, contestants, 1, contestants[0].name,
            machine.describe(tempfile.gettempdir()))
        document['samples'] = [
            {'race': number, 'contestant': contestant.name, 'round': 1,
             'figures': {**dict.fromkeys(race.compared, 1.0),
                         # Counted, but not compared.
                         'readers': 1.0, 'cache_limit': 1.0,
                         'child_allowed_mb': 1.0}}
            for number, race in enumerate(races)
            for contestant in contestants if race.takes(contestant)]
        for claim in one.claims(document):
            self.assertEqual(claim.measured(document), 1 / (1 + claim.plus),
                             claim.words)

    def test_a_quick_run_is_one(self):
        for name, one in command.CAMPAIGNS.items():
            with self.subTest(name), mock.patch.object(
                    loops, 'installed', lambda: ['asyncio']):
                long, quick = (
                    [str(race.settings) for race in one.races(which)]
                    for which in (False, True))
                self.assertTrue(quick)
                self.assertNotEqual(quick, long)

    def test_pinned_clients_are_those_of_one_client(self):
        with mock.patch.object(loops, 'installed', lambda: ['asyncio']):
            for race in command.CAMPAIGNS['zeo_client'].races(False):
                if race.settings['pin'] != pinning.FREE:
                    self.assertEqual(race.settings['clients'], 1)


class PinningTests(Scratch):

    level = 2

    @unittest.skipIf(pinning.obstacle(None), 'processes cannot be pinned')
    def test_server_and_clients_run_where_they_are_told(self):
        first, *_, last = sorted(os.sched_getaffinity(0))
        for pin, expected in [
                ('same', ({first}, {first})), ('across', ({first}, {last}))]:
            self.assertEqual(
                supervisor.run(self.processors, pin), expected, pin)

    def processors(self, pin):
        """Those of a server, and of a client."""
        pinned = pinning.PinnedSite(sites.CONTESTANTS['zeo'])
        with tempfile.TemporaryDirectory(dir=self.scratch) as directory, \
                pinned.running(directory, pin=pin, **SETTINGS) as site:
            [found] = crew.processes(
                site, [lambda start: os.sched_getaffinity(0)]).results
            return os.sched_getaffinity(site.server._process.pid), found


class Perf(Scratch):
    """`python -m perf`, with results in the scratch directory."""

    def setUp(self):
        super().setUp()
        self.results = pathlib.Path(self.scratch)

    def run_main(self, *arguments):
        """Exit code, standard output, standard error."""
        out, err = io.StringIO(), io.StringIO()
        with (contextlib.redirect_stdout(out), contextlib.redirect_stderr(err),
              warnings.catch_warnings()):
            warnings.simplefilter('ignore')  # old matplotlib, new pyparsing
            try:
                code = command.main([
                    arguments[0], '--results', self.scratch, *arguments[1:]])
            except SystemExit as exit:
                code = exit.code
        return code, out.getvalue(), err.getvalue()


class RecordTests(Perf):

    level = 2

    def setUp(self):
        super().setUp()
        self.holds = True
        self.others = 0.0  # of one processor
        self.enterContext(mock.patch.object(measurement, 'run', self.measure))
        self.enterContext(mock.patch.dict(
            command.CAMPAIGNS, tried=campaign.Campaign(
                'tried', 'a campaign', [CONTESTANTS['filestorage']],
                lambda quick: [Race('any', {}, None, ('n',))],
                rounds=5, claims=lambda document: [claims.Claim(
                    'it', 'any', {}, 'filestorage', 'n',
                    **({'at_least': 1} if self.holds else {'under': 1}))])))

    def measure(self, options, name, races, show, added):
        """Takes the place of `session.run`."""
        self.options = options
        document = documents.new(
            name, races, options.contestants, options.rounds,
            options.contestants[0].name, machine.describe(self.scratch))
        document['samples'] = [
            {'race': 0, 'contestant': 'filestorage', 'round': number,
             'figures': {'n': 1}, 'others': {
                 'seconds': 1, 'cpu_seconds': self.others}}
            for number in range(1, options.rounds + 1)]
        document['complete'] = True
        documents.summarise(document)
        if options.json:
            documents.save(document, options.json)
        show(document, Console())
        return 0

    def record(self, *options):
        return self.run_main('record', 'tried', *options)

    def recorded(self):
        """How much of a processor others used."""
        document = documents.load(self.results / 'tried.json')
        return document['samples'][0]['others']['cpu_seconds']

    def files(self):
        return sorted(os.listdir(self.scratch))

    def test_a_run_is_recorded(self):
        code, out, err = self.record()
        self.assertEqual((code, err), (0, ''))
        self.assertEqual(self.files(), ['tried.json', 'tried.txt'])
        self.assertEqual(self.options.rounds, 5)
        text = (self.results / 'tried.txt').read_text()
        for expected in 'filestorage', 'claimed', 'yes':
            self.assertIn(expected, text)
            self.assertIn(expected, out)

    def test_a_claim_that_does_not_hold(self):
        self.holds = False
        code, out, err = self.record()
        self.assertEqual((code, err), (1, ''))
        self.assertIn('NO', out)
        # What was measured is not changed.
        self.assertIn('NO', (self.results / 'tried.txt').read_text())

    def test_a_quick_run_records_and_judges_nothing(self):
        self.holds = False
        code, out, err = self.record('--quick')
        self.assertEqual((code, err), (0, ''))
        self.assertIn('NO', out)
        self.assertEqual(self.files(), [])
        self.assertEqual(self.options.rounds, campaign.QUICK_ROUNDS)

    def test_a_result_of_a_quieter_machine_is_kept(self):
        self.record()
        self.others = 0.5
        code, out, err = self.record()
        self.assertEqual((code, len(err.splitlines())), (1, 1))
        for expected in 'kept 0.50 processors busy', '0.00', '--anyway':
            self.assertIn(expected, err)
        self.assertEqual(self.recorded(), 0)
        # The result of half an hour is kept.
        self.assertIn('tried.json.new', self.files())

    def test_unless_it_is_told_otherwise(self):
        self.record()
        self.others = 0.5
        code, out, err = self.record('--anyway')
        self.assertEqual((code, err), (0, ''))
        self.assertEqual(self.recorded(), 0.5)
        self.assertEqual(self.files(), ['tried.json', 'tried.txt'])

    def test_a_quieter_machine_records(self):
        for self.others in 0.5, 0.3:
            self.assertEqual(self.record()[0], 0)
            self.assertEqual(self.recorded(), self.others)

    def test_so_does_each_quiet_one(self):
        for self.others in 0.0, 0.05:
            self.assertEqual(self.record()[0], 0)
            self.assertEqual(self.recorded(), self.others)

    def test_an_older_result_has_what_was_before_it(self):
        self.record()
        path = self.results / 'tried.json'
        document = documents.load(path)
        for sample in document['samples']:
            del sample['others']
        document['machine']['load_average'] = 0.4
        documents.save(document, path)
        self.others = 0.5
        self.assertIn('0.40 when', self.record()[2])
        self.others = 0.3
        self.assertEqual(self.record()[0], 0)

    def test_an_interrupted_run_records_nothing(self):
        self.record()
        with mock.patch.object(measurement, 'run', return_value=130):
            self.assertEqual(self.record()[0], 130)
        self.assertEqual(self.recorded(), 0)

    def test_one_that_is_not_installed_is_named(self):
        absent = types.SimpleNamespace(
            name='it', missing=lambda: 'not installed')
        with mock.patch.dict(command.CAMPAIGNS, tried=campaign.Campaign(
                'tried', 'a campaign', [absent], None, 5)):
            code, out, err = self.record()
        self.assertEqual((code, out), (2, ''))
        self.assertEqual(err.splitlines(), [
            'perf tried: it is left out: not installed',
            'perf tried: nothing is left to measure'])

    def test_a_place_where_it_cannot_be_measured(self):
        with mock.patch.dict(command.CAMPAIGNS, tried=campaign.Campaign(
                'tried', 'a campaign', [CONTESTANTS['filestorage']], None, 5,
                obstacle=lambda directory: f'not in {directory}')):
            code, out, err = self.record('--directory', self.scratch)
        self.assertEqual(
            (code, out, err), (2, '', f'perf tried: not in {self.scratch}\n'))

    def test_bad_input_is_one_line(self):
        for arguments, expected in [
                (['nothing'], "no 'nothing'; allowed are fsync_2004, claims,"),
                (['tried', '--rounds', '0'], 'whole number'),
                (['tried', '--directory', '/no/such'], 'is no directory')]:
            with self.subTest(arguments):
                code, out, err = self.run_main('record', *arguments)
                self.assertEqual((code, out), (2, ''))
                self.assertEqual(len(err.splitlines()), 1)
                self.assertIn(expected, err)


class DrawTests(Perf):

    level = 2

    def test_what_was_not_recorded(self):
        code, out, err = self.run_main('draw', 'files')
        self.assertEqual((code, out), (1, ''))
        self.assertRegex(err, r'^perf: .*files\.json')

    def test_all_that_was_recorded(self):
        recorded = sorted(command.RESULTS.glob('*.json'))
        self.assertEqual(
            [], [path.stem for path in recorded
                 if path.stem not in command.CAMPAIGNS])
        for path in recorded:
            shutil.copy(path, self.scratch)
        # How pictures are drawn is tested elsewhere.
        drawing = mock.Mock()
        with mock.patch.object(reports, 'drawing', lambda: drawing):
            code, out, err = self.run_main('draw')
        self.assertEqual(code, 0)
        page = (self.results / 'report.html').read_text()
        for path in recorded:
            text = (self.results / f'{path.stem}.txt').read_text()
            self.assertIn(documents.load(path)['baseline'], text)
            self.assertIn(f'id="{path.stem}"', page)
        self.assertIn('Jim Fulton', page)
        self.assertIn('SlinkP', page)
        drawn = {}
        for call in drawing.save.call_args_list:
            _, form, target = call.args
            if form == 'png':  # the page has them as SVG
                drawn.setdefault(target.parent.name, []).append(target.name)
        for path in (command.RESULTS / 'pictures').glob('*'):
            self.assertEqual(sorted(one.name for one in path.glob('*.png')),
                             sorted(drawn[path.name]))


class QuestionTests(unittest.TestCase):

    level = 2

    def test_of_files(self):
        document = document_of(*(
            Race('files', {'size': size, 'loop': 'asyncio', 'pin': 'free'},
                 None, ('warm_per_second', 'warm_bytes_per_second',
                        'cold_per_second', 'cold_bytes_per_second',
                        'first_byte_seconds'))
            for size in (5 << 10, 5000 << 10)),
            names=('nginx', 'x-accel:bare'))
        document['added'] += ' Requests came from ab.'
        found = pictures.of(document, questions.ALL)
        self.assertEqual(
            [one.name for one in found],
            ['files', 'file-speeds', 'first-bytes'])
        self.assertEqual(
            [[panel.title.partition(':')[0] for panel in one.panels]
             for one in found], [['warm', 'cold'], ['warm', 'cold'], ['cold']])
        self.assertEqual(
            found[2].panels[0].series['nginx'],
            [(5 << 10, 1500, 1000, 2000), (5000 << 10, 3000, 2000, 4000)])
        self.assertEqual(
            [found[0].question.put(size)
             for size in (5 << 10, 5000 << 10, 1 << 30)],
            ['5 KB', '5,000 KB', '1 GB'])
        self.assertIn(
            'Requests came from ab.', found[0].footer)
