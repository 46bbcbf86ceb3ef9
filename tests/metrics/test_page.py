"""The live page: what it says is what the metrics say, and is all its own."""

import html.parser
import http.client
import json
import pathlib
import platform
import re
import unittest
from unittest import mock

import fsyncstorage.metrics
from fsyncstorage.metrics import answering
from fsyncstorage.metrics import exporters
from fsyncstorage.metrics import hosts
from fsyncstorage.metrics import page
from fsyncstorage.metrics import shown
from fsyncstorage.metrics.exporters import Showing

from ..server.serving import ErrorReply
from ..server.serving import Served
from ..server.serving import counter
from ..server.serving import record
from ..support import PATIENCE
from ..support import TestCase
from ..support import Thread
from ..support import commit
from ..support import until
from .asking import NothingIsKept
from .asking import metrics
from .asking import probe

HERE = '127.0.0.1', 0
ROOM = pathlib.Path(fsyncstorage.metrics.__file__).parent
ROOT = pathlib.Path(__file__).parents[2]
FILES = sorted(path.name for path in ROOM.glob('page.*')
               if path.suffix != '.py')


def response(address, path, method='GET', **headers):
    """Status, headers and body."""
    connection = http.client.HTTPConnection(*address, timeout=PATIENCE)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()
    finally:
        connection.close()


class PageTestCase(NothingIsKept, TestCase):

    def show(self, storage, name='main', address=HERE):
        showing = Showing(address, name, storage)
        self.addCleanup(showing.close)
        self.exporter = showing.exporter
        self.address = self.exporter.address
        return showing

    def now(self):
        status, answer = probe(self.address, '/now')
        self.assertEqual(status, 200)
        return answer

    def storage_now(self):
        storage, = self.now()['storages']
        return storage


class Figures(Served, PageTestCase):

    def served(self, storage=None):
        self.server = self.serve(storage, metrics=HERE)
        self.exporter = self.server._shown[0].exporter
        self.address = self.exporter.address
        return self.connect(self.server)

    def test_they_are_those_of_the_metrics(self):
        peer = self.served(self.open(scrub_rate='2MB', pack_process=False))
        tid = peer.commit({0: record(1), 1: record(1), 2: counter(0)})
        peer.commit({2: counter(1)}, tid)
        peer.commit({2: counter(2)}, tid)
        peer.load(1)
        with self.assertRaises(ErrorReply):
            peer.vote({1: record(2)})
        storage = self.server.storages['1']
        storage.pack(1, lambda data: [])
        until(lambda: storage.stats()['scrub']['passes'], 'all is read')
        figures, known = self.storage_now()['figures'], metrics(self.address)
        pairs = [((name, *labels), value)
                 for name, figure in figures.items()
                 for labels, value in (
                     [((label,), each) for label, each in figure.items()]
                     if isinstance(figure, dict) else [((), figure)])]
        for (name, *labels), value in pairs:
            # (It is told as an age, and looked at twice.)
            delta = 60 if name.endswith('_timestamp_seconds') else 0.01
            self.assertAlmostEqual(
                known[('fsyncstorage_' + name, *labels)], value, delta=delta,
                msg=name)
        others = ('storage_loop_lag_', 'storage_received_bytes_',
                  'storage_sent_bytes_', 'storage_build_info',
                  'storage_figures_readable')
        self.assertEqual(
            {'fsyncstorage_' + name for (name, *_), _ in pairs},
            {name for name, *_ in known
             if not name.endswith(('_bucket', '_sum', '_count'))
             and not any(each in name for each in others)})
        self.assertEqual(
            (figures['commits_total'], figures['conflicts_total'],
             figures['conflicts_resolved_total'], figures['clients'],
             figures['loads_total']),
            (3, 1, 1, 1, {'memory': 1, 'disk': 0, 'readers': 0}))

    def test_samples(self):
        """What was between two of them, and nothing else."""
        peer = self.served()
        peer.commit({1: b'x'})
        clock = mock.Mock(**{'time.return_value': 0})
        with mock.patch.object(page, 'time', clock), \
                mock.patch.object(shown, 'time', clock):
            for now in 10 ** 6, 10 ** 6 + 10, 10 ** 6 + 20:
                clock.monotonic.return_value = now
                self.exporter._sample()
                for number in range(5):
                    peer.commit({now + number: b'x'})
            past = self.storage_now()['past']
        self.assertEqual(past['commits'][-2:], [0.5, 0.5])
        self.assertEqual(past['clients'][-1], 1)
        self.assertEqual(past['ago'][-2:], [10, 0])
        self.assertGreater(past['commit_p50'][-1], 0)


class Samples(PageTestCase):

    def test_they_are_taken_though_nobody_looks(self):
        with mock.patch.object(exporters, 'EVERY', 0.01):
            self.show(self.open())

            def there_are_some():
                return len(self.storage_now()['past']['ago']) >= 2

            until(there_are_some, 'two samples')


class Whose(PageTestCase):

    def test_two_servers_look_different(self):
        """The host, since when it runs, and the file are there."""
        self.show(self.open())
        answer = self.now()
        self.assertEqual(answer['host'], platform.node())
        self.assertLessEqual(answer['started'], answer['time'])
        self.assertEqual(answer['storages'][0]['file'], self.path())


class States(PageTestCase):

    def verdicts(self):
        return self.storage_now()['verdicts']

    def test_a_disk_that_does_not_answer(self):
        disk = self.controlled_disk()
        storage = self.open()
        self.show(storage)
        disk.hold_syncs()
        thread = Thread(commit, storage, {1: b'x'})
        disk.wait_for_sync()
        for _ in range(3):
            self.exporter._sample()
        (level, words), = self.verdicts()
        self.assertEqual(level, 'bad')
        self.assertIn('does not answer', words)
        disk.release_syncs()
        thread.result()
        self.exporter._sample()
        self.assertEqual(self.verdicts(), [])

    def test_a_name_is_only_text(self):
        name = '</script><img src=x onerror=alert(1)>\n"\u2028'
        self.show(self.open(), name)
        status, headers, body = response(self.address, '/now')
        self.assertEqual(json.loads(body)['storages'][0]['name'], name)
        self.assertEqual(headers['Content-Type'], 'application/json')
        self.assertEqual(headers['X-Content-Type-Options'], 'nosniff')
        # The page itself has no name in it.
        self.assertNotIn(b'alert', response(self.address, '/')[2])


class Asking(PageTestCase):

    def setUp(self):
        super().setUp()
        self.show(self.open())

    def test_each_file(self):
        for path, content_type in (
                ('/', 'text/html; charset=utf-8'),
                ('/page.css', 'text/css; charset=utf-8'),
                ('/page.js', 'text/javascript; charset=utf-8'),
                ('/page.svg', 'image/svg+xml')):
            with self.subTest(path):
                status, headers, body = response(self.address, path)
                name = 'page.html' if path == '/' else path[1:]
                self.assertEqual(
                    (status, headers['Content-Type'], body),
                    (200, content_type, (ROOM / name).read_bytes()))

    def test_what_browsers_are_told(self):
        for path in '/', '/page.js', '/now', '/metrics', '/ready', '/none':
            with self.subTest(path):
                headers = response(self.address, path)[1]
                self.assertEqual(headers['X-Content-Type-Options'], 'nosniff')
                self.assertEqual(headers['Cache-Control'], 'no-store')
                policy = dict(
                    each.strip().partition(' ')[::2] for each in
                    headers['Content-Security-Policy'].split(';'))
                self.assertEqual(policy['default-src'], "'none'")
                self.assertEqual(policy['frame-ancestors'], "'none'")
                self.assertLessEqual(
                    set(policy.values()), {"'none'", "'self'", "'script'"})

    def test_only_the_head(self):
        status, headers, body = response(self.address, '/', 'HEAD')
        self.assertEqual((status, body), (200, b''))
        self.assertEqual(int(headers['Content-Length']),
                         (ROOM / 'page.html').stat().st_size)

    def test_other_paths(self):
        for path in ('/page.py', '/page.html', '/../page.css', '/./', '//',
                     '/page.css/', '/%70age.css', '/%ff', '/' + 'x' * 7000):
            self.assertEqual(response(self.address, path)[0], 404, path)

    def test_a_name_of_strangers(self):
        for path in '/', '/now', '/metrics', '/ready', '/none':
            with self.subTest(path):
                self.assertEqual(
                    response(self.address, path, Host='evil.example')[0], 421)
        for host in 'localhost:1', '127.0.0.1', '[::1]:8190':
            self.assertEqual(response(self.address, '/', Host=host)[0], 200)

    def test_two_names(self):
        for names in (b'localhost', b'evil.example'), (
                b'evil.example', b'localhost'):
            request = b'GET / HTTP/1.1\r\n%s\r\n\r\n' % b'\r\n'.join(
                b'Host: ' + name for name in names)
            head, _ = answering.response(
                request, lambda path: None,
                lambda name, path: name == 'localhost')
            self.assertIn(b' 421 ', head.partition(b'\r\n')[0])

    def test_a_name_of_its_network_where_others_can_reach_it(self):
        with mock.patch.object(hosts, 'is_loopback', return_value=False):
            self.show(self.open('2.fs'), address=('localhost', 0))
        for path, status in [
                ('/live', 200), ('/ready', 200), ('/startup', 200),
                ('/metrics', 200), ('/', 421), ('/now', 421),
                ('/clients', 421), ('/page.js', 421)]:
            with self.subTest(path):
                self.assertEqual(response(
                    self.address, path, Host='zeo.svc')[0], status)


class Outside(unittest.TestCase):
    """The page needs nothing from elsewhere, and makes HTML of nothing."""

    def test_the_package_has_all(self):
        listed = re.search(r'^"fsyncstorage.metrics" = \[(.*)\]$',
                           (ROOT / 'pyproject.toml').read_text(), re.MULTILINE)
        self.assertEqual(sorted(json.loads(f'[{listed[1]}]')), FILES)

    def test_no_address_is_named(self):
        for name in FILES:
            text = (ROOM / name).read_text().replace(
                'http://www.w3.org/2000/svg', '')  # a name, never asked for
            for words in '//www', 'http:', 'https:', '@import', 'url(':
                self.assertNotIn(words, text, name)

    def test_what_the_page_refers_to_is_here(self):
        names, inline = [], []

        class Parser(html.parser.HTMLParser):

            def handle_starttag(self, tag, attributes):
                for name, value in attributes:
                    if name in ('href', 'src'):
                        names.append(value)
                    if name.startswith('on') or name == 'style':
                        inline.append(name)
                if tag == 'style' or tag == 'script' and (
                        'src' not in dict(attributes)):
                    inline.append(tag)

        Parser().feed((ROOM / 'page.html').read_text())
        self.assertEqual(inline, [])
        self.assertLessEqual(set(FILES) - {'page.html'}, set(names))
        self.assertEqual(
            set(names) - set(FILES),
            {'metrics', 'live', 'ready', 'startup', 'now'})

    def test_the_program_makes_no_html(self):
        text = (ROOM / 'page.js').read_text()
        for words in ('innerHTML', 'outerHTML', 'insertAdjacent', 'eval',
                      'Function(', 'document.write', '.style', 'DOMParser'):
            self.assertNotIn(words, text)
