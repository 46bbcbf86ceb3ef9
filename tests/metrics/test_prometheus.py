"""A real Prometheus with examples/prometheus: it scrapes a server, knows the
rules, and answers what the dashboard of examples/grafana asks."""

import contextlib
import json
import shutil
import signal
import subprocess
import unittest
import urllib.error
import urllib.parse
import urllib.request

from prometheus_client import CollectorRegistry
from prometheus_client import start_http_server

from fsyncstorage.client.storage import FsyncClient
from fsyncstorage.metrics.clients import ClientCollector
from perf.ports import free_port

from ..client.connected import commit as commit_by
from ..support import PATIENCE
from ..support import commit
from ..support import until
from .alerting import ALERTS
from .alerting import rules
from .asking import get
from .test_alerts import ServedAndShown
from .test_alerts import queries

CONFIGURATION = ALERTS.with_name('prometheus.yml')

#: What they draw is there only while a pack is under way, or after it.
ABOUT_PACKS = 'fsyncstorage_pack_phase_progress_ratio', 'last_pack_'


@unittest.skipUnless(shutil.which('prometheus'), 'no prometheus here')
class Scraped(ServedAndShown):

    level = 3

    def setUp(self):
        super().setUp()
        self.show(scrub_rate='2MB')
        self.client = FsyncClient(
            self.server.addr, wait_timeout=PATIENCE, wait=True,
            blob_dir=self.path('cache'), blob_cache_size=1000)
        self.addCleanup(self.client.close)
        registry = CollectorRegistry()
        registry.register(ClientCollector({'main': self.client}))
        shown, thread = start_http_server(0, '127.0.0.1', registry)
        self.addCleanup(thread.join)
        self.addCleanup(shown.server_close)
        self.addCleanup(shown.shutdown)
        self.start([f'127.0.0.1:{self.address[1]}',
                    f'127.0.0.1:{shown.server_port}'])

    def start(self, targets):
        """A Prometheus that scrapes these each second."""
        shutil.copy(ALERTS, self.directory)
        text = CONFIGURATION.read_text().replace('15s', '1s')
        with open(self.path('prometheus.yml'), 'w') as file:
            file.write(text.replace(
                '["127.0.0.1:8190"]', json.dumps(targets)))
        said = open(self.path('said'), 'w+')
        self.addCleanup(said.close)
        port = free_port()
        process = subprocess.Popen(
            ['prometheus', f'--config.file={self.path("prometheus.yml")}',
             f'--storage.tsdb.path={self.path("tsdb")}',
             f'--web.listen-address=127.0.0.1:{port}'],
            stdout=said, stderr=subprocess.STDOUT)
        self.addCleanup(process.wait)
        self.addCleanup(process.send_signal, signal.SIGTERM)
        self.api = f'http://127.0.0.1:{port}/api/v1/'

        def is_up():
            with contextlib.suppress(OSError):
                return get(('127.0.0.1', port), '/-/ready')[0] == 200

        until(lambda: process.poll() is not None or is_up(), 'it is up')
        said.seek(0)
        self.assertIsNone(process.poll(), said.read())

    def ask(self, path, **arguments):
        try:
            with urllib.request.urlopen(
                    self.api + path + '?' + urllib.parse.urlencode(arguments),
                    timeout=PATIENCE) as answer:
                return json.load(answer)['data']
        except urllib.error.HTTPError as error:
            with error:
                self.fail((path, arguments, error.read()))

    def query(self, expression):
        return self.ask('query', query=expression)['result']

    def test_scraped_and_drawn(self):
        until(lambda: len(self.query('up == 1')) == 2, 'both are scraped')
        for number in range(3):
            commit(self.storage, {number: b'x'})
            commit_by(self.client, {10 + number: b'x'})
        counted = 'fsyncstorage_commits_total > 5'
        until(lambda: self.query(counted), 'that is seen')
        seen = 'count_over_time(up[1m]) > 3'
        until(lambda: len(self.query(seen)) == 2, 'there are rates')
        for query in queries():
            with self.subTest(query):
                found = self.query(query)
                if not any(name in query for name in ABOUT_PACKS):
                    self.assertTrue(found)
        known = self.ask('rules')['groups'][0]['rules']
        self.assertEqual([each['name'] for each in known], list(rules()))
        self.assertEqual({each['health'] for each in known}, {'ok'})
        self.assertEqual(
            [each for each in self.ask('alerts')['alerts']
             if each['state'] == 'firing'], [])
