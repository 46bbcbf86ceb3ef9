"""The campaigns of files: that the right thing is measured, and gone.

How fast it was is nowhere asserted.
"""

import contextlib
import http.client
import http.server
import importlib.util
import io
import os
import pathlib
import re
import shutil
import signal
import socket
import sys
import tempfile
import threading
import unittest
from unittest import mock
from wsgiref.util import FileWrapper

import ZODB
import ZODB.config
from persistent.mapping import PersistentMapping
from rich.console import Console
from webob import Request

from fsyncstorage.timing.blobs import work as blobwork
from fsyncstorage.timing.results import document as documents
from fsyncstorage.timing.running import machine
from fsyncstorage.timing.running import supervisor
from perf import files
from perf.web import applications
from perf.web import load as filesload
from perf.web import memory as filesmemory
from perf.web import nginx as filesnginx
from perf.web import sites as filesites

from ..support import PATIENCE
from ..support import until
from ..timing.test_timing import Scratch
from ..timing.test_timing_blobs import WithoutSync
from ..timing.test_timing_faults import DriverCase
from ..timing.test_timing_faults import processes_of

SITE = {'loop': 'asyncio'}
SETTINGS = {'requests': 12, 'volume': 1 << 20, 'cold_volume': 1 << 20, **SITE}

needs_nginx = unittest.skipIf(filesnginx.missing(), 'there is no nginx')
needs_proc = unittest.skipUnless(
    os.path.isdir('/proc/self/task'), 'needs /proc')

#: The campaign with one contestant.
DRIVER = """\
import dataclasses, pathlib, sys
from perf import __main__ as command
from perf.web import sites
name, directory = sys.argv[1:]
command.CAMPAIGNS['files'] = dataclasses.replace(
    command.CAMPAIGNS['files'], contestants=[sites.CONTESTANTS[name]])
sys.exit(command.main(['record', 'files', '--quick', '--rounds', '1000',
                       '--directory', directory, '--results', directory]))
"""

REPORT = """\
Server Hostname:        127.0.0.1
Document Path:          /warm
Document Length:        512 bytes

Complete requests:      20
Failed requests:        0
Requests per second:    1234.50 [#/sec] (mean)
"""


class ReportTests(unittest.TestCase):
    """What `ab` says."""

    level = 2

    def read(self, *change, size=512, requests=20):
        report = REPORT.replace(*change) if change else REPORT
        return filesload.read_report(report, '/warm', size, requests)

    def test_all_went_well(self):
        self.assertEqual(self.read(), 1234.5)

    def test_failures(self):
        for change, wrong in [
                (('Failed requests:        0', 'Failed requests:        3'),
                 '/warm: 3 of 20 requests failed'),
                (('Failed requests:', 'Non-2xx responses:    4\n'
                  'Failed requests:'), '/warm: 4 of 20 requests failed'),
                (('Complete requests:      20', 'Complete requests:      7'),
                 'of 7 requests failed, and 20 were asked for'),
                (('512 bytes', '162 bytes'), '162 bytes, not 512')]:
            with self.subTest(wrong), self.assertRaisesRegex(
                    filesload.RequestFailed, wrong):
                self.read(*change)


class Handler(http.server.BaseHTTPRequestHandler):

    def do_GET(self):
        self.server.asked.append(self.path)
        self.send_response(404 if self.path == '/none' else 200)
        self.end_headers()
        self.wfile.write(b'x' * 300000)

    def log_message(self, *arguments):
        pass


class LoadTests(unittest.TestCase):

    level = 2

    def setUp(self):
        server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
        server.asked = self.asked = []
        self.addCleanup(server.server_close)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(server.shutdown)
        self.address = server.server_address

    def loaders(self):
        yield 'threads', False
        if shutil.which('ab'):
            yield 'ab', True

    def test_the_number_of_requests(self):
        for name, has_ab in self.loaders():
            with self.subTest(name), mock.patch.object(
                    filesload, '_has_ab', return_value=has_ab):
                self.asked.clear()
                self.assertGreater(filesload.load(
                    self.address, '/x', 300000, requests=7, at_once=3), 0)
                self.assertEqual(self.asked, ['/x'] * 7)

    def test_what_is_wrong_is_an_error(self):
        for name, has_ab in self.loaders():
            for path, size in ('/none', 300000), ('/x', 300001):
                with self.subTest([name, path]), mock.patch.object(
                        filesload, '_has_ab', return_value=has_ab), \
                        self.assertRaises(filesload.RequestFailed):
                    filesload.load(self.address, path, size, 4, 2)

    def test_no_server_listens(self):
        with socket.create_server(('127.0.0.1', 0)) as gone:
            address = gone.getsockname()
        with self.assertRaises((filesload.RequestFailed, OSError)):
            filesload.load(address, '/x', 1, 1, 1)


class MemoryTests(Scratch):
    """With a directory of its own for /proc."""

    level = 2

    def setUp(self):
        super().setUp()
        self.proc = pathlib.Path(self.scratch)
        self.enterContext(mock.patch.object(filesmemory, '_PROC', self.proc))

    def make(self, number, command, peak, *children):
        path = self.proc / str(number)
        (path / 'task' / '1').mkdir(parents=True)
        (path / 'task' / '1' / 'children').write_text(
            ' '.join(map(str, children)))
        (path / 'cmdline').write_text(command.replace(' ', '\0'))
        (path / 'status').write_text(
            f'VmPeak:\t 9999 kB\nVmHWM:\t {peak} kB\nVmRSS:\t 1 kB\n')
        (path / 'clear_refs').write_text('')

    def test_the_largest_of_a_role_counts(self):
        application = 'python -m perf.web.program {}'
        self.make(os.getpid(), 'python', 7000, 11, 12, 99)
        self.make(11, application, 600, 13)
        self.make(12, 'nginx: master process nginx', 800, 14)
        self.make(13, application, 500)
        self.make(14, 'nginx: worker process', 40)
        self.make(15, application, 9000)  # not of this run
        self.assertEqual(filesmemory.peaks(), {
            'application_peak_bytes': 600 << 10, 'nginx_peak_bytes': 40 << 10})
        filesmemory.forget()
        self.assertEqual({
            path.parent.name for path in self.proc.glob('*/clear_refs')
            if path.read_text() == '5'}, {'11', '13', '14'})

    def test_a_system_without_it(self):
        self.assertEqual(filesmemory.peaks(), {})
        filesmemory.forget()


class ApplicationTests(Scratch):

    level = 2

    def setUp(self):
        super().setUp()
        self.files = os.path.join(self.scratch, 'blobs')
        self.section = (
            f'<filestorage>\npath {self.scratch}/Data.fs\n'
            f'blob-dir {self.files}\n</filestorage>')
        db = ZODB.DB(ZODB.config.storageFromString(self.section))
        with contextlib.closing(db), db.transaction() as connection:
            connection.root()['blobs'] = PersistentMapping(all=[
                blobwork.new_blob(connection, data)
                for data in (b'small', b'one', b'two', b'six')])

    @contextlib.contextmanager
    def application(self, name, files=None):
        made = getattr(applications, name)(
            {'storage': self.section, 'files': files, 'threads': 2})
        made.open()
        with contextlib.closing(made._db):
            yield made

    def get(self, application, path):
        request = Request.blank(path)
        request.environ['wsgi.file_wrapper'] = FileWrapper
        return request.get_response(application)

    def test_paths(self):
        for name in 'Ours', 'Stock':
            with self.subTest(name), self.application(name) as application:
                for path, body in [
                        ('/small', b'small'), ('/warm', b'one'),
                        ('/cold', b'one'), ('/cold', b'two'),
                        ('/warm', b'one'), ('/cold', b'six'),
                        ('/cold', b'one'), ('/small', b'small')]:
                    answer = self.get(application, path)
                    self.assertEqual(
                        (answer.status_code, answer.body), (200, body), path)
                    self.assertEqual(answer.content_length, len(body))

    def test_ours_hands_over_where_nginx_is(self):
        with self.application('Ours', self.files) as application:
            answer = self.get(application, '/warm')
        self.assertEqual(answer.body, b'')
        location = answer.headers['X-Accel-Redirect']
        self.assertTrue(location.startswith(applications.LOCATION), location)
        path = os.path.join(self.files, location[len(applications.LOCATION):])
        self.assertEqual(pathlib.Path(path).read_bytes(), b'one')

    def test_bare(self):
        with tempfile.TemporaryDirectory() as files:
            pathlib.Path(files, 'name').touch()
            bare = applications.Bare({'files': files})
        self.assertEqual(
            self.get(bare, '/warm').headers['X-Accel-Redirect'],
            f'{applications.LOCATION}name')


class MissingTests(unittest.TestCase):

    level = 2

    def missing(self, absent=()):
        """What is missing, by contestant."""
        found = importlib.util.find_spec

        def find_spec(name, *more):
            return None if name in absent else found(name, *more)

        with mock.patch.object(importlib.util, 'find_spec', find_spec):
            return {name: site.missing()
                    for name, site in filesites.CONTESTANTS.items()}

    def test_modules(self):
        for module, names in {
                'gunicorn': {'gunicorn:direct', 'gunicorn:fsync-client',
                             'gunicorn:zeo'},
                'webob': {'x-accel:direct', 'x-accel:fsync-client',
                          'waitress:direct', 'waitress:fsync-client',
                          'gunicorn:direct', 'gunicorn:fsync-client'},
        }.items():
            with self.subTest(module):
                self.assertEqual({
                    name for name, reason in self.missing([module]).items()
                    if reason == f'{module} is not installed'}, names)

    def test_nginx(self):
        with mock.patch.object(shutil, 'which', return_value=None):
            self.assertIsNone(filesnginx.version())
            self.assertEqual({
                name for name, reason in self.missing().items()
                if reason == 'nginx is not installed'},
                {'nginx', 'x-accel:bare', 'x-accel:direct',
                 'x-accel:fsync-client'})

    @needs_nginx
    def test_version_of_nginx(self):
        self.assertRegex(filesnginx.version(), r'^\d+\.\d+')


class ContestantTests(WithoutSync):
    """Real processes, for a short time."""

    level = 2

    def measure(self, name):
        with tempfile.TemporaryDirectory(dir=self.scratch) as directory:
            os.chmod(directory, 0o711)
            return supervisor.run(lambda: files.measure(
                filesites.CONTESTANTS[name], directory, size=3000,
                **SETTINGS))

    def check(self, name, *roles):
        figures = self.measure(name)
        ways = filesites.CONTESTANTS[name].ways
        expected = {f'{way}_{figure}' for way in ways
                    for figure in ('per_second', 'bytes_per_second')}
        if 'cold' in ways:
            expected.add('first_byte_seconds')
        if os.path.isdir('/proc/self/task'):
            expected.update(map(filesmemory.figure, roles))
        self.assertEqual(figures.keys(), expected)
        self.assertLessEqual(
            expected, set(files.race(**SETTINGS).compared))

    @needs_nginx
    def test_through_nginx(self):
        self.check('nginx', 'nginx')
        self.check('x-accel:bare', 'nginx', 'application')
        self.check('x-accel:direct', 'nginx', 'application')
        self.check('x-accel:fsync-client', 'nginx', 'application', 'server')

    def test_without_nginx(self):
        self.check('waitress:fsync-client', 'application', 'server')
        self.check('waitress:zeo', 'application', 'server')
        self.check('gunicorn:direct', 'application')

    def test_threads_load_as_well(self):
        with mock.patch.object(filesload, '_has_ab', return_value=False):
            self.check('gunicorn:fsync-client', 'application', 'server')

    @needs_nginx
    def test_nginx_sends_what_is_handed_over(self):
        contestant = filesites.CONTESTANTS['x-accel:fsync-client']

        def ask():
            with contestant.running(
                    self.scratch, size=3000, number=2, **SITE) as address:
                filesload.fetch(address, applications.WARM, 3000)
                connection = http.client.HTTPConnection(*address)
                connection.request('GET', applications.WARM, headers={
                    'Range': 'bytes=0-1,4-5'})
                with contextlib.closing(connection):
                    return connection.getresponse().headers['Content-Type']

        # Ours would be hexadecimal, and longer.
        self.assertRegex(supervisor.run(ask), r'boundary=\d{20}$')

    @needs_nginx
    def test_nginx_that_does_not_start(self):
        with mock.patch.object(filesites, '_plain', return_value='/a;b c'), \
                self.assertRaisesRegex(
                    supervisor.Failed, r'died with exit code 1: .*\[emerg\]'):
            self.measure('nginx')


@needs_proc
class InterruptTests(DriverCase):

    level = 3

    def start(self, name):
        self.run_driver([sys.executable, '-c', DRIVER, name, self.scratch])

    def with_sign(self, sign):
        return [number
                for number, command in processes_of(self.driver.pid).items()
                if sign in ' '.join(command)]

    def assertEnded(self, code, message):
        out, err = self.driver.communicate(timeout=PATIENCE)
        self.assertEqual((self.driver.returncode, out), (code, ''), err)
        self.assertRegex(err, message)
        self.assertEqual(len(err.splitlines()), 1, err)
        self.assertEqual(processes_of(self.driver.pid), {})
        self.assertEqual(os.listdir(self.scratch), [])

    @needs_nginx
    def test_a_kill_with_nginx(self):
        self.start('x-accel:fsync-client')
        until(lambda: self.with_sign(filesmemory.ROLES['nginx']), 'nginx')
        self.driver.terminate()
        self.assertEnded(130, 'interrupted; nothing is kept')

    def test_ctrl_c_with_gunicorn(self):
        self.start('gunicorn:fsync-client')
        until(lambda: len(self.with_sign(
            filesmemory.ROLES['application'])) > 1, 'a worker')
        os.killpg(self.driver.pid, signal.SIGINT)
        self.assertEnded(130, 'interrupted; nothing is kept')

    @needs_nginx
    def test_an_application_dies(self):
        self.start('x-accel:direct')

        def killed():
            for number in self.with_sign(filesmemory.ROLES['application']):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(number, signal.SIGKILL)
            return self.driver.poll() is not None

        until(killed, 'the end')
        self.assertEnded(
            1, '^fsync-time files: x-accel:direct failed [(].*[)]: .*'
               'the server died with exit code -9: ')


class TablesTests(unittest.TestCase):

    level = 2

    def test_tables(self):
        contestants = [filesites.CONTESTANTS[name] for name in (
            'nginx', 'x-accel:fsync-client', 'waitress:zeo')]
        races = [files.race(size=size, **SETTINGS)
                 for size in (5 << 10, 5000 << 10)]
        document = documents.new(
            'files', races, contestants, 1, 'nginx',
            machine.describe(tempfile.gettempdir()))
        document['samples'] = [
            {'race': race, 'contestant': name, 'round': 1, 'figures': figures}
            for race in (0, 1)
            for name, figures in {
                'nginx': {'warm_per_second': 2000,
                          'warm_bytes_per_second': 2000 << 20,
                          'nginx_peak_bytes': 4 << 20},
                'x-accel:fsync-client': {
                    'warm_per_second': 1000,
                    'warm_bytes_per_second': 1000 << 20,
                    'cold_per_second': 50, 'cold_bytes_per_second': 50 << 20,
                    'first_byte_seconds': 0.004,
                    'application_peak_bytes': 33 << 20},
            }.items()]
        documents.summarise(document)
        console = Console(file=io.StringIO(), width=80)
        files.show(document, console)
        text = ' '.join(console.file.getvalue().split())
        warm, cold, first, of_application, of_nginx, history = re.split(
            r'time\? cold: |until the first|most\? application: |nginx: '
            '|2004 ',
            text, flags=re.IGNORECASE)[:6]
        for part, expected in [
                (warm, ('5 KB 5,000 KB', '2,000', '0.50x', '1,000 MB/s')),
                (cold, ('50.0', '50.0 MB/s')),
                (first, ('4.00', 'cold')),
                (of_application, ('x-accel:fsync-client 33.0',)),
                (of_nginx, ('nginx 4.00 4.00',)),
                (history, ('Apache 2 2,083', '0.0700'))]:
            for each in expected:
                self.assertIn(each, part)
        self.assertNotIn('waitress:zeo', text)
        self.assertNotIn(' nginx ', cold)
        self.assertNotIn('server: ', text)  # none had one
