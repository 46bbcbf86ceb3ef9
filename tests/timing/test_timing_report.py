"""Results for others: the page of `fsync-time report`, and its pictures."""

import importlib.util
import io
import os
import re
import tempfile
import unittest
from unittest import mock
from xml.etree import ElementTree

from fsyncstorage.timing import disk
from fsyncstorage.timing import main
from fsyncstorage.timing import report
from fsyncstorage.timing import zeo
from fsyncstorage.timing.results import document as documents

from ..support import run_command
from .support import SETTINGS
from .support import document_of
from .support import of_commits

HAS_MATPLOTLIB = importlib.util.find_spec('matplotlib')


def commits(**figures):
    return of_commits(*([{'txn_per_second': one, **figures} for one in pair]
                        for pair in ((100, 150), (120, 290))))


def of_races(*races, names=('zeo', 'fsync-client')):
    """A document with all compared figures, of two rounds."""
    return document_of(races, [
        (number, name, round_number, {
            figure: (number + 1.0) * round_number for figure in race.compared})
        for number, race in enumerate(races) for name in names
        for round_number in (1, 2)], names=names, command='zeo')


def reads(clients, access='get'):
    return zeo.read_race(
        clients=clients, objects=4, access=access, **SETTINGS)


class ReportTests(unittest.TestCase):

    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = directory.name

    def save(self, **found):
        for name, document in found.items():
            documents.save(
                document, os.path.join(self.directory, f'{name}.json'))

    def report(self, drawing=None):
        """Exit code, and what was said on standard error."""
        with mock.patch.object(report, 'drawing', lambda: drawing):
            code, _, said = run_command(main.main, 'report', self.directory)
        return code, said

    def html(self):
        with open(os.path.join(self.directory, 'report.html'),
                  encoding='utf-8') as file:
            return file.read()

    def text(self):
        """What the page shows; fails when it is not well-formed."""
        body = ElementTree.fromstring(self.html()).find('body')
        return ' '.join(' '.join(body.itertext()).split())

    def test_tables(self):
        own = commits()
        own['command'] = own['races'][0]['workload'] = 'own'
        of_disk = of_races(disk.races(True)[0])
        of_disk.update(command='disk')
        self.save(a=commits(), b=of_races(reads(1), reads(16)), c=own,
                  d=of_disk)
        code, said = self.report()
        self.assertEqual(code, 0)
        # There is no matplotlib.
        self.assertIn('fsyncstorage[plots]', said)
        self.assertNotIn('<img', self.html())
        text = self.text()
        for expected in ('a commits', 'interrupted', 'fsync:none', '150-290',
                         '5 ms added to each sync', '~2.00x',
                         '(by Connection.get, 4 objects a transaction',
                         # Of a race that is not known; of a disk.
                         'txn_per_second', 'FsyncStorage takes zeo'):
            self.assertIn(expected, text)

    def test_it_needs_nothing_besides_and_escapes_all(self):
        document = commits()
        name = '<b>&"mine'
        document['contestants'][name] = '<script>alert(1)</script>'
        document['samples'].append({
            'race': 0, 'contestant': name, 'round': 1,
            'figures': {'txn_per_second': 1}})
        document['machine']['cpu_model'] = '<i>'
        self.save(**{'a<b': document})
        self.report()
        self.assertIn(name, self.text())
        html = self.html()
        for forbidden in '<script', '<i>', '<b>&', 'url(', '@import':
            self.assertNotIn(forbidden, html)
        for reference in re.findall(r'(?:href|src)="([^"]*)"', html):
            self.assertRegex(reference, '^(data:|#)')

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


@unittest.skipUnless(HAS_MATPLOTLIB, 'matplotlib is not installed')
class PictureTests(unittest.TestCase):
    """The tests of the documents draw some, too."""

    level = 3

    def setUp(self):
        self.pictures = report.drawing()

    def names(self, document):
        return [one.name for one in self.pictures.of(document)]

    def test_of_commits(self):
        picture, = self.pictures.of(commits())
        self.assertEqual(picture.name, 'commits')
        self.assertEqual(picture.panels, {'5 ms added to each sync': {
            'filestorage': [(8, 110, 100, 120)],
            'fsync:none': [(8, 220, 150, 290)]}})

    def test_what_did_not_wait_for_its_sync_is_in_no_batch(self):
        self.assertEqual(
            self.names(commits(commits_per_sync=8)), ['commits', 'batches'])
        self.assertEqual(
            self.names(commits(commits_per_sync=9)), ['commits'])

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

    def draw(self, picture, form):
        file = io.BytesIO()
        self.pictures.save(picture, form, file)
        return file.getvalue()

    def test_the_page(self):
        with tempfile.TemporaryDirectory() as directory:
            documents.save(commits(), os.path.join(directory, 'some.json'))
            self.assertEqual(
                run_command(main.main, 'report', directory)[0], 0)
            with open(os.path.join(directory, 'report.html')) as file:
                self.assertIn(
                    '<img alt="How many commits a second? one tree a thread"'
                    ' src="data:image/svg+xml;base64,', file.read())

    def test_what_is_drawn(self):
        picture = self.pictures.of(of_races(reads(1), reads(16)))[0]
        texts = [''.join(one.itertext()).strip() for one in
                 ElementTree.fromstring(self.draw(picture, 'svg')).iter(
                     '{http://www.w3.org/2000/svg}text')]
        for expected in ('client processes', '1', '16', 'steamin', 'zeo',
                         'objects a second, all clients', 'fsync-client'):
            self.assertIn(expected, texts)
        self.assertEqual(
            int.from_bytes(self.draw(picture, 'png')[16:20], 'big'), 1200)
