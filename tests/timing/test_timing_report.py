"""Results for others: the page of `fsync-time report`."""

import os
import re
import tempfile
import unittest
from xml.etree import ElementTree

from fsyncstorage.timing import disk
from fsyncstorage.timing import main
from fsyncstorage.timing.results import document as documents

from ..support import run_command
from .support import of_commits
from .support import of_races
from .support import reads


def commits():
    return of_commits((100, 150), (120, 290))


class ReportTests(unittest.TestCase):

    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = directory.name

    def save(self, **found):
        for name, document in found.items():
            documents.save(
                document, os.path.join(self.directory, f'{name}.json'))

    def report(self):
        """Exit code, and what was said on standard error."""
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
        self.assertEqual(self.report(), (0, ''))
        text = self.text()
        for expected in ('a commits', 'interrupted', 'fsync:none', '150-290',
                         '5 ms added to each sync', 'no verdict',
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
