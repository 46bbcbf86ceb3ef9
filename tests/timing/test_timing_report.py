"""Results for others: the page of `fsync-time report`."""

import contextlib
import importlib.util
import io
import os
import re
import shutil
import subprocess
import tempfile
import unittest
from unittest import mock
from xml.etree import ElementTree

from fsyncstorage.timing import main
from fsyncstorage.timing.reports import commandline as report
from fsyncstorage.timing.results import document as documents
from fsyncstorage.timing.zeo import reading
from fsyncstorage.timing.zeo import writing
from tests.timing.test_timing_plots import SITE
from tests.timing.test_timing_plots import commits
from tests.timing.test_timing_plots import document_of
from tests.timing.test_timing_results import txn

BROWSER = shutil.which('chromium')


class ReportTestCase(unittest.TestCase):

    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = directory.name
        self.page = os.path.join(self.directory, 'report.html')

    def save(self, **found):
        for name, document in found.items():
            documents.save(
                document, os.path.join(self.directory, f'{name}.json'))

    def report(self, *arguments):
        """Exit code, and what was said on standard error."""
        with contextlib.redirect_stdout(io.StringIO()), \
                contextlib.redirect_stderr(io.StringIO()) as said:
            code = main.main(['report', self.directory, *arguments])
        return code, said.getvalue()

    def html(self):
        with open(self.page, encoding='utf-8') as file:
            return file.read()

    def text(self):
        """What the page shows; fails when it is not well-formed."""
        body = ElementTree.fromstring(self.html()).find('body')
        return ' '.join(' '.join(body.itertext()).split())


class ReportTests(ReportTestCase):

    level = 2

    def test_tables(self):
        over_zeo = document_of(*(
            race(clients=clients, objects=4, **more, **SITE)
            for race, more in ((writing.race, {'seconds': 1}),
                               (reading.race, {'access': 'get'}))
            for clients in (1, 16)))
        over_zeo['command'] = 'zeo'
        self.save(disk_a=commits(), zeo_b=over_zeo)
        self.assertEqual(self.report()[0], 0)
        text = self.text()
        for expected in ('disk_a: commits', 'zeo_b', '5 ms added to each sync',
                         'fsync:none', '150-290', '~2.00x',
                         'over ZEO? (4 objects a transaction'):
            self.assertIn(expected, text)

    def test_of_races_that_are_not_known(self):
        document = commits()
        document['command'] = document['races'][0]['workload'] = 'own'
        self.save(own=document)
        self.report()
        self.assertIn('txn_per_second', self.text())

    def test_needs_nothing_besides(self):
        self.save(some=commits())
        self.report()
        html = self.html()
        for reference in re.findall(r'(?:href|src)="([^"]*)"', html):
            self.assertRegex(reference, '^(data:|#)')
        self.assertNotIn('<script', html)
        self.assertNotIn('url(', html)
        self.assertNotIn('@import', html)

    def test_escapes_all(self):
        document = commits()
        name = '<b>&"mine'
        document['contestants'][name] = '<script>alert(1)</script>'
        document['samples'] += [
            {'race': 0, 'contestant': name, 'round': number,
             'figures': txn(1)} for number in (1, 2)]
        document['machine']['cpu_model'] = '<i>'
        self.save(**{'a<b': document})
        self.report()
        self.assertIn(name, self.text())
        self.assertNotIn('<script>', self.html())
        self.assertNotIn('<i>', self.html())
        self.assertNotIn('<b>&', self.html())

    def test_says_what_was_interrupted(self):
        self.save(some=commits())
        self.report()
        self.assertIn('interrupted', self.text())

    def test_what_is_no_result_is_left_out_by_name(self):
        self.save(some=commits(), other={'format': 'another'})
        with open(os.path.join(self.directory, 'bad.json'), 'w') as file:
            file.write('{')
        code, said = self.report()
        self.assertEqual(code, 0)
        self.assertIn('bad.json is left out', said)
        self.assertIn('other.json is left out', said)

    def test_nothing_to_report(self):
        code, said = self.report()
        self.assertEqual(code, 1)
        self.assertIn('there are no results', said)
        self.assertEqual(os.listdir(self.directory), [])

    def test_interrupted(self):
        self.save(some=commits())
        with mock.patch.object(report, 'html', side_effect=KeyboardInterrupt):
            self.assertEqual(
                self.report(), (130, 'fsync-time: interrupted\n'))

    def test_without_matplotlib(self):
        self.save(some=commits())
        with mock.patch.object(report, 'drawing', lambda: None):
            code, said = self.report()
        self.assertEqual(code, 0)
        self.assertIn('fsyncstorage[plots]', said)
        self.assertNotIn('<img', self.html())

    @unittest.skipUnless(
        importlib.util.find_spec('matplotlib'), 'matplotlib is not installed')
    def test_pictures(self):
        self.save(some=commits())
        self.report()
        self.assertIn(
            '<img alt="How many commits a second? one tree a thread, threads'
            ' that commit: 8" src="data:image/svg+xml;base64,',
            self.html())


@unittest.skipUnless(BROWSER, 'chromium is not installed')
class BrowserTests(ReportTestCase):

    level = 3

    def browse(self, width):
        """What the console says, and how wide the page is."""
        probe = ('<script>addEventListener("load", () => console.log("width",'
                 ' document.documentElement.scrollWidth, innerWidth))'
                 '</script></body>')
        page = os.path.join(self.directory, 'probe.html')
        with open(page, 'w', encoding='utf-8') as file:
            file.write(self.html().replace('</body>', probe))
        ended = subprocess.run(
            [BROWSER, '--headless=new', '--no-sandbox', '--disable-gpu',
             '--enable-logging=stderr', f'--window-size={width},900',
             f'--user-data-dir={self.directory}/profile',
             f'--screenshot={self.directory}/page.png', f'file://{page}'],
            capture_output=True, text=True, timeout=120)
        return re.findall(r'CONSOLE.*?\] "(.*)", source', ended.stderr)

    def test_no_error_and_no_scrolling_sideways(self):
        self.save(some=commits())
        self.report()
        for width in 1280, 390:
            said, = self.browse(width)
            _, page, window = said.split()
            self.assertLessEqual(int(page), int(window))
