"""The command `fsync-time wsgi`: that the right thing is measured.

How fast it was is nowhere asserted.
"""

import contextlib
import io
import os
import tempfile
import threading
import unittest
from unittest import mock

from persistent.mapping import PersistentMapping
from rich.console import Console
from ZODB.FileStorage import FileStorage

from fsyncstorage.timing import document as documents
from fsyncstorage.timing import machine
from fsyncstorage.timing import supervisor
from fsyncstorage.timing.reports import pictures
from fsyncstorage.timing.servers import served
from fsyncstorage.timing.wsgi import app as wsgiapp
from fsyncstorage.timing.wsgi import command as wsgi
from fsyncstorage.timing.wsgi import loader as wsgiload
from fsyncstorage.timing.wsgi import servers as wsgiservers
from fsyncstorage.timing.wsgi import tables as wsgitables

from .support import PATIENCE
from .test_timing import Command
from .test_timing import Scratch

SETTINGS = {
    'concurrency': 2, 'write': 50, 'seconds': 0.05, 'sync_latency': 0,
    'loop': 'asyncio', 'socket': False, 'pin': 'free'}

INSTALLED = [name for name in wsgiservers.SERVERS
             if wsgiservers.missing(name) is None]


class ApplicationTests(Scratch):
    """In this process."""

    def setUp(self):
        super().setUp()
        site = served.Site(served.Nobody(), None, lambda: FileStorage(
            os.path.join(self.scratch, 'Data.fs')))
        supervisor.run(lambda: wsgiapp.plant(site, 2))
        self.application = wsgiapp.Application(site)
        self.application.open()
        self.addCleanup(lambda: self.application._db.close())

    def ask(self, method, path):
        """Status and text of the answer."""
        start_response = mock.Mock()
        [body] = self.application(
            {'REQUEST_METHOD': method, 'PATH_INFO': path}, start_response)
        (status, headers), _ = start_response.call_args
        self.assertEqual(dict(headers)['Content-Length'], str(len(body)))
        return status, body.decode()

    def test_the_page_has_all_children(self):
        status, text = self.ask('GET', '/')
        self.assertEqual(status, '200 OK')
        self.assertEqual(text.count('<li>'), wsgiapp.CHILDREN)

    def test_counters(self):
        answers = [self.ask('POST', path) for path in ('/0', '/1', '/0')]
        self.assertEqual(
            answers, [('200 OK', '1'), ('200 OK', '1'), ('200 OK', '2')])

    def test_an_error_is_told(self):
        status, text = self.ask('POST', '/7')
        self.assertEqual(status, '500 Internal Server Error')
        self.assertIn('IndexError', text)

    def test_no_connection_is_kept(self):
        for method, path in ('GET', '/'), ('POST', '/1'), ('POST', '/7'):
            self.ask(method, path)
            self.assertFalse([
                one for one in self.application._db.connectionDebugInfo()
                if one['opened']])

    def test_a_change_by_another_process_is_no_error(self):
        """The conflict is tried again."""
        others = [self.application._count]
        set_item = PersistentMapping.__setitem__

        def set_item_late(counter, key, value):
            if others:
                others.pop()(0)
            set_item(counter, key, value)

        with mock.patch.object(
                PersistentMapping, '__setitem__', set_item_late):
            self.assertEqual(self.ask('POST', '/0'), ('200 OK', '2'))


class LoaderTests(unittest.TestCase):

    def asked(self, write, answers=None):
        """What a loader asks until eight requests are answered."""
        clock = iter(range(1000))
        with mock.patch.object(wsgiload, '_ask') as ask, \
                mock.patch.object(wsgiload.time, 'perf_counter',
                                  lambda: next(clock)):
            written = iter(answers or range(1, 100))
            ask.side_effect = (
                lambda address, method, path:
                str(next(written)) if method == 'POST' else '')
            start = mock.Mock(side_effect=ask.reset_mock)
            stretch, cpu = wsgiload.loader('address', 3, write, 16)(start)
        asked = [call.args for call in ask.call_args_list]
        self.assertEqual(len(stretch.transactions), len(asked))
        return asked

    def test_writes_are_evenly_spread(self):
        read, write = ('address', 'GET', '/'), ('address', 'POST', '/3')
        self.assertEqual(self.asked(0), [read] * 8)
        self.assertEqual(self.asked(100), [write] * 8)
        self.assertEqual(self.asked(25), [read, read, read, write] * 2)

    def test_a_lost_change_is_an_error(self):
        with self.assertRaisesRegex(
                wsgiload.WrongAnswer, '2 answered changes there are 1'):
            self.asked(50, [1, 1])


class ServerTests(Scratch):
    """Processes for real, short."""

    def measure(self, name, **settings):
        with tempfile.TemporaryDirectory(dir=self.scratch) as directory:
            return supervisor.run(lambda: wsgiload.measure(
                wsgi.CONTESTANTS[name], directory, **settings, **SETTINGS))

    @unittest.skipUnless(INSTALLED, 'there is no web server')
    def test_each_layout(self):
        layouts = [one for one in wsgi.layouts(2) if one[0] in INSTALLED]
        for number, (server, processes, threads) in enumerate(layouts):
            name = list(wsgi.CONTESTANTS)[number % 2]
            with self.subTest(name, server=server, processes=processes):
                figures = self.measure(
                    name, server=server, processes=processes, threads=threads)
                race = wsgiload.race(**SETTINGS)
                self.assertLessEqual(set(race.compared), figures.keys())
                self.assertGreaterEqual(figures['requests'], 2)

    def test_a_server_that_does_not_start(self):
        def give_up(*arguments):
            os._exit(3)

        with mock.patch.dict(wsgiservers.SERVERS, waitress=give_up), \
                self.assertRaisesRegex(
                    supervisor.Failed, 'waitress died with exit code 3'):
            self.measure('zeo', server='waitress', processes=1, threads=1)

    def test_a_zeo_server_that_dies_before_it_is_open(self):
        def work():
            reader, writer = os.pipe()
            os.close(writer)  # as one that died does
            site = served.Site(wsgiservers.WebServer([reader]), None, None)
            with wsgiservers.running('waitress', site, 1, 1):
                pass

        def serve(*arguments):
            threading.Event().wait(PATIENCE)

        with mock.patch.dict(wsgiservers.SERVERS, waitress=serve), \
                mock.patch.object(wsgiservers, '_GRACE', 0), \
                self.assertRaisesRegex(
                    supervisor.Failed, 'the server ended'):
            supervisor.run(work)

    def test_a_database_that_cannot_be_opened(self):
        def give_up(self):
            raise OSError('no way')

        def serve(listener, make, processes, threads):
            with contextlib.suppress(OSError):
                make()

        with mock.patch.dict(wsgiservers.SERVERS, waitress=serve), \
                mock.patch.object(wsgiapp.Application, 'open', give_up), \
                self.assertRaisesRegex(
                    supervisor.Failed, 'cannot open the database.*no way'):
            self.measure('zeo', server='waitress', processes=1, threads=1)

    @unittest.skipUnless('gunicorn' in INSTALLED, 'needs gunicorn')
    def test_gunicorn_leaves_nothing_in_the_home(self):
        with mock.patch.dict(os.environ, HOME=self.scratch):
            os.environ.pop('XDG_RUNTIME_DIR', None)
            self.measure('zeo', server='gunicorn', processes=1, threads=1)
        self.assertEqual(os.listdir(self.scratch), [])


class CommandTests(Command):

    command = 'wsgi'

    @unittest.skipUnless('waitress' in INSTALLED, 'needs waitress')
    def test_everything_for_real(self):
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, 'result.json')
            code, out, err = self.run_main(
                'fsync-client', '--server', 'waitress', '--workers', '2',
                '--concurrency', '1', '--rounds', '1', '--seconds', '50ms',
                '--json', path)
            document = documents.load(path)
        self.assertEqual((code, err), (0, ''))
        self.assertEqual(os.listdir(self.scratch), [])
        self.assertTrue(document['complete'])
        [race] = document['races']
        self.assertEqual(race['workload'], 'wsgi')
        for name, value in [('server', 'waitress'), ('processes', 1),
                            ('threads', 2), ('concurrency', 1), ('write', 0)]:
            self.assertEqual(race['settings'][name], value, name)
        self.assertIn('1 request at a time,', out)

    def races(self, **options):
        return [
            [race.settings[name] for name in (
                'sync_latency', 'concurrency', 'server', 'processes',
                'threads')]
            for race in wsgi.races(mock.Mock(**{
                'server': ['waitress', 'gunicorn'], 'workers': 4,
                'concurrency': [8], 'write': 0, 'seconds': 1,
                'sync_latency': [0.0], **options}), 0)]

    def test_races(self):
        self.assertEqual(self.races(), [
            [0, 8, 'waitress', 1, 4],
            [0, 8, 'gunicorn', 1, 4],
            [0, 8, 'gunicorn', 4, 1]])
        self.assertEqual(self.races(server=['gunicorn'], workers=1), [
            [0, 8, 'gunicorn', 1, 1]])

    def test_nothing_is_slowed_without_writes(self):
        slow = {'server': ['waitress'], 'sync_latency': [1]}
        self.assertEqual(
            self.races(**slow), [[0, 8, 'waitress', 1, 4]])
        self.assertEqual(
            self.races(**slow, write=5), [[1, 8, 'waitress', 1, 4]])

    def test_who_is_not_installed_is_named(self):
        with mock.patch.object(
                wsgiservers, 'missing', lambda name: 'it is not installed'):
            code, out, err = self.run_main()
        self.assertEqual((code, out), (2, ''))
        for name in 'waitress', 'gunicorn':
            self.assertIn(
                f'fsync-time wsgi: {name} is left out: it is not installed\n',
                err)
        self.assertIn('pip install waitress gunicorn', err)

    def test_bad_input_is_one_line(self):
        for arguments_, expected in [
                (['postgres'], "there is no 'postgres'; allowed are zeo,"),
                (['--server', 'apache'], 'invalid choice'),
                (['--workers', '0'], 'whole number'),
                (['--write', '101'], 'from 0 to 100'),
                (['--write', 'many'], 'from 0 to 100'),
        ]:
            with self.subTest(arguments_):
                code, out, err = self.run_main(*arguments_)
                self.assertEqual((code, out), (2, ''))
                self.assertEqual(len(err.splitlines()), 1)
                self.assertIn(expected, err)


class TablesTests(unittest.TestCase):

    def document(self, **settings):
        contestants = list(wsgi.CONTESTANTS.values())
        races = [
            wsgiload.race(**{
                **SETTINGS, 'server': server, 'processes': processes,
                'threads': threads, 'concurrency': 8, **settings})
            for server, processes, threads in wsgi.layouts(4)]
        document = documents.new(
            'wsgi', races, contestants, 2, 'zeo',
            machine.describe(tempfile.gettempdir()))
        document['samples'] = [
            {'race': race, 'contestant': name, 'round': round, 'figures': {
                'requests_per_second': speed * (race + 1),
                'p50_seconds': 0.002, 'p99_seconds': 0.003,
                'loaders_cpu': 0.5}}
            for round in (1, 2)
            for race in range(3)
            for name, speed in (('zeo', 1000), ('fsync-client', 4000))]
        documents.summarise(document)
        return document

    def shown(self, **settings):
        console = Console(file=io.StringIO(), width=100)
        wsgitables.show(self.document(**settings), console)
        return ' '.join(console.file.getvalue().split())

    def test_a_table(self):
        text = self.shown(write=0)
        for expected in ('8 requests at a time, asyncio',
                         'waitress gunicorn gunicorn', '1 x 4 1 x 4 4 x 1',
                         'zeo 1,000 2,000 3,000', '12,000 4.00x', 'p99 3 ms',
                         'clients: 50% CPU', '3.00x column 1',
                         '2009 276 276 1,476'):
            self.assertIn(expected, text)

    def test_nobody_wrote_in_2009(self):
        text = self.shown(write=20)
        self.assertIn('20 % of them writes', text)
        self.assertNotIn('1,476', text)

    def test_a_picture_has_all_layouts(self):
        picture, = pictures.of(self.document(write=20))
        self.assertEqual(
            [panel.title.replace('\N{NO-BREAK SPACE}', ' ')
             for panel in picture.panels],
            ['waitress: 1 process, 4 threads',
             'gunicorn: 1 process, 4 threads',
             'gunicorn: 4 processes, 1 thread'])
        self.assertEqual(
            picture.panels[2].series['zeo'], [(8, 3000, 3000, 3000)])
        for expected in '20 % of the', 'requests at a time: 8':
            self.assertIn(expected, picture.conditions)
