"""The campaign of web applications: that the right thing is measured.

How fast it was is nowhere asserted.
"""

import importlib.util
import io
import os
import tempfile
import unittest
from unittest import mock

from rich.console import Console
from ZEO.ClientStorage import BlobCacheLayout
from ZODB.blob import LAYOUT_MARKER
from ZODB.blob import LAYOUTS
from ZODB.blob import FilesystemHelper
from ZODB.FileStorage import FileStorage

from fsyncstorage.timing.reports import pictures
from fsyncstorage.timing.results import document as documents
from fsyncstorage.timing.running import machine
from fsyncstorage.timing.running import population
from fsyncstorage.timing.running import supervisor
from fsyncstorage.timing.servers import served
from fsyncstorage.timing.servers.zeosites import CONTESTANTS
from perf import questions
from perf import wsgi
from perf.web import applications
from perf.web import program
from perf.web import sites

from ..timing.test_timing import Scratch

SETTINGS = {
    'concurrency': 2, 'seconds': 0.05, 'sync_latency': 0,
    'loop': 'asyncio', 'socket': False}

INSTALLED = [name for name in program.SERVERS
             if importlib.util.find_spec(name)]


class PageTests(Scratch):
    """Applications are called in this process."""

    level = 2

    def test_it_has_all_children(self):
        path = os.path.join(self.scratch, 'Data.fs')
        site = served.Site(
            served.NoServer(), None, lambda: FileStorage(path))
        supervisor.run(lambda: population.plant(
            site, population.small(page=applications.CHILDREN)))
        page = applications.Page({
            'storage': f'<filestorage>\npath {path}\n</filestorage>'})
        page.open()
        self.addCleanup(page._db.close)
        start_response = mock.Mock()
        [body] = page({}, start_response)
        (status, headers), _ = start_response.call_args
        self.assertEqual(status, '200 OK')
        self.assertEqual(dict(headers)['Content-Length'], str(len(body)))
        self.assertEqual(body.count(b'<li>'), applications.CHILDREN)
        self.assertFalse([
            one for one in page._db.connectionDebugInfo() if one['opened']])


class CacheTests(Scratch):

    level = 2

    def test_stock_finds_nothing_left_to_make(self):
        """As of two clients that make it at once, one may fail."""
        directory = os.path.join(self.scratch, 'cache')
        sites.make_cache(directory)
        with mock.patch('os.makedirs') as makedirs, \
                mock.patch.dict(LAYOUTS, zeocache=BlobCacheLayout()):
            marker = os.path.join(directory, LAYOUT_MARKER)
            made = os.stat(marker)
            FilesystemHelper(directory, 'zeocache').create()
        self.assertEqual(os.stat(marker).st_mtime_ns, made.st_mtime_ns)
        makedirs.assert_not_called()


class ServerTests(Scratch):
    """Real processes, for a short time."""

    level = 2

    def measure(self, name, layout):
        with tempfile.TemporaryDirectory(dir=self.scratch) as directory:
            return supervisor.run(lambda: wsgi.measure(
                CONTESTANTS[name], directory, layout=layout, **SETTINGS))

    def test_each_layout(self):
        for number, (layout, (server, _, _)) in enumerate(
                wsgi.LAYOUTS.items()):
            if server in INSTALLED:
                with self.subTest(layout):
                    figures = self.measure(
                        ('zeo', 'fsync-client')[number % 2], layout)
                    race = wsgi.race(**SETTINGS)
                    self.assertLessEqual(set(race.compared), figures.keys())
                    self.assertGreaterEqual(figures['requests'], 2)

    def test_a_database_that_cannot_be_opened(self):
        def work(server):
            with served.running(
                    program.__name__, self.scratch, server=server,
                    processes=1, threads=1,
                    application='Page',
                    storage='<mappingstorage>\n</mappingstorage>'):
                self.fail('it has no page')

        for server in INSTALLED:
            with self.subTest(server), self.assertRaisesRegex(
                    supervisor.Failed, 'died with exit code 1: the database'
                    " cannot be opened: KeyError: 'page'"):
                supervisor.run(work, server)

    @unittest.skipUnless('gunicorn' in INSTALLED, 'needs gunicorn')
    def test_gunicorn_leaves_nothing_in_the_home(self):
        with mock.patch.dict(os.environ, HOME=self.scratch):
            os.environ.pop('XDG_RUNTIME_DIR', None)
            self.measure('zeo', wsgi.ONE)
        self.assertEqual(os.listdir(self.scratch), [])

    def test_a_server_that_is_not_installed(self):
        with mock.patch.object(
                importlib.util, 'find_spec', lambda name: None):
            self.assertEqual(
                wsgi.obstacle(self.scratch), 'waitress is not installed')


class TablesTests(unittest.TestCase):

    level = 2

    def document(self):
        races = [wsgi.race(**{**SETTINGS, 'layout': layout, 'concurrency': 8})
                 for layout in wsgi.LAYOUTS]
        document = documents.new(
            'wsgi', races, wsgi.CAMPAIGNS[0].contestants, 2, 'zeo',
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

    def test_a_table(self):
        console = Console(file=io.StringIO(), width=100)
        wsgi.CAMPAIGNS[0].show_all(self.document(), console)
        text = ' '.join(console.file.getvalue().split())
        for expected in ('8 requests at a time, asyncio',
                         'waitress, 1 x 4 gunicorn, 1 x 4 gunicorn, 4 x 1',
                         'zeo 1,000 2,000 3,000', '12,000 4.00x', 'p99 3 ms',
                         'loaders: 50% CPU', '1,476', '1.50x'):
            self.assertIn(expected, text)

    def test_a_picture_has_all_layouts(self):
        picture, = pictures.of(self.document(), questions.ALL)
        self.assertEqual(
            [panel.title for panel in picture.panels], list(wsgi.LAYOUTS))
        self.assertEqual(
            picture.panels[2].series['zeo'], [(8, 3000, 3000, 3000)])
        self.assertIn('requests at a time: 8', picture.conditions)
