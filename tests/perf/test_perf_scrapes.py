"""Who asks for metrics, and what is done meanwhile; not what it costs."""

import json
import urllib.request
from unittest import mock

from fsyncstorage.timing.running import campaign
from fsyncstorage.timing.running import supervisor
from perf import scrapes

from ..support import until
from ..timing.test_timing import Scratch
from ..timing.test_timing_zeo import SETTINGS

FEW = 3


class ScrapeTests(Scratch):

    def setUp(self):
        super().setUp()
        self.enterContext(mock.patch.object(scrapes, 'SECONDS', 0.1))

    def figures_of(self, measure, *arguments, **settings):
        with campaign.directory(self.scratch) as directory:
            return supervisor.run(lambda: measure(
                *arguments, scrapes.ON, directory, turns=2,
                **SETTINGS, **settings))

    def check(self, work):
        figures = self.figures_of(
            scrapes.in_turns, work, pages='metrics')
        for name in 'quiet_cpu_seconds', 'asked_cpu_seconds', 'scrapes':
            self.assertGreater(figures[name], 0, name)

    def test_commits(self):
        self.check(scrapes.commits)

    def test_reads(self):
        self.check(scrapes.reads)

    def test_a_crowd(self):
        for pages in scrapes.PAGES:
            figures = self.figures_of(
                scrapes.in_a_crowd, clients=FEW, pages=pages)
            self.assertGreaterEqual(figures['scrapes'], 1 / scrapes.SECONDS)
            self.assertIn('more_mb', figures)

    def test_what_is_asked_for(self):
        asked = []
        with mock.patch.object(
                scrapes.load, 'fetch',
                lambda address, page: asked.append(page)):
            for pages in scrapes.PAGES.values():
                with scrapes.asking(None, pages) as times:
                    until(lambda: times, 'it was asked once')
        self.assertEqual(
            asked, ['/metrics', '/metrics', '/now', '/clients'])

    def test_whom_the_server_has_then(self):
        seen = supervisor.run(self.clients_in_a_crowd)
        self.assertEqual(
            [[each['holds'] for each in client['transactions']]
             for client in seen], [[True]] * FEW)

    def clients_in_a_crowd(self):
        with scrapes.ON.running(self.scratch, **SETTINGS) as site, \
                scrapes.crowd(FEW, site):
            host, port = scrapes.exporter(self.scratch)
            with urllib.request.urlopen(
                    f'http://{host}:{port}/clients') as answer:
                storage, = json.load(answer)['storages'].values()
            return storage['clients']
