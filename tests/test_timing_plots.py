"""The pictures of `fsync-time`: what is in them, and that they are drawn."""

import importlib
import importlib.util
import os
import tempfile
import unittest
from unittest import mock
from xml.etree import ElementTree

from fsyncstorage.timing import arguments
from fsyncstorage.timing.zeo import beside
from fsyncstorage.timing import contestants
from fsyncstorage.timing import document as documents
from fsyncstorage.timing.reports import pictures
from fsyncstorage.timing.disk import probing
from fsyncstorage.timing.zeo import reading
from fsyncstorage.timing.zeo import sites
from tests.test_timing_results import made_document
from tests.test_timing_results import txn

SITE = {'loop': 'asyncio', 'socket': False, 'pin': 'free',
        'sync_latency': 0.0}


def document_of(*races, names=('zeo', 'fsync-client')):
    """Of two rounds, in which the figures are what they are compared by."""
    made = made_document([], contestants=('filestorage',))
    made.update(
        command='a_script',
        contestants=dict.fromkeys(names, 'takes part'),
        baseline=names[0],
        races=[{'workload': race.workload, 'settings': race.settings,
                'compared': list(race.compared)} for race in races],
        samples=[
            {'race': number, 'contestant': contestant, 'round': round_number,
             'figures': {'clients_cpu': 0.5, 'cold_p99_seconds': 9.0, **{
                 figure: (number + 1.0) * round_number
                 for figure in race.compared}}}
            for number, race in enumerate(races)
            for contestant in names
            for round_number in (1, 2)])
    documents.summarise(made)
    return made


def commits(**figures):
    """Two contestants; the samples have these figures besides."""
    return made_document([
        ('filestorage', 1, txn(100, **figures)),
        ('fsync:none', 1, txn(150, **figures)),
        ('filestorage', 2, txn(120, **figures)),
        ('fsync:none', 2, txn(290, **figures))])


class PicturesTests(unittest.TestCase):

    def test_of_commits(self):
        picture, = pictures.of(commits())
        self.assertEqual(picture.name, 'commits')
        self.assertEqual(picture.conditions, 'IIBTree, one tree a thread')
        panel, = picture.panels
        self.assertEqual(panel.title, '5 ms added to each sync')
        self.assertEqual(panel.series, {
            'filestorage': [(8, 110, 100, 120)],
            'fsync:none': [(8, 220, 150, 290)]})
        for expected in ('2 rounds', '5 ms added to each sync', 'one sync'):
            self.assertIn(expected, picture.footer)

    def test_what_did_not_wait_for_its_sync_is_in_no_batch(self):
        names = [one.name for one in pictures.of(commits(commits_per_sync=8))]
        self.assertEqual(names, ['commits', 'batches'])
        names = [one.name for one in pictures.of(commits(commits_per_sync=9))]
        self.assertEqual(names, ['commits'])

    def test_of_reads(self):
        found = pictures.of(document_of(*(
            reading.race(clients=clients, objects=4, access=access, **SITE)
            for access in ('get', 'ghosts') for clients in (16, 1))))
        self.assertEqual(
            [one.name for one in found], [
                'zeo-reads-get', 'zeo-reads-ghosts', 'zeo-read-times-get',
                'zeo-read-times-ghosts'])
        self.assertEqual(
            [panel.title for panel in found[0].panels],
            ['cold', 'hot', 'steamin', 'prefetch'])
        # In the order of the clients, whatever the order of the races.
        self.assertEqual(
            found[0].panels[0].series['zeo'],
            [(1, 3, 2, 4), (16, 1.5, 1, 2)])
        self.assertIn('asyncio over TCP', found[0].conditions)

    def test_in_units_that_can_be_read(self):
        picture, = pictures.of(document_of(beside.race(seconds=2, **SITE)))
        self.assertEqual(picture.up, 'milliseconds a read')
        self.assertEqual(
            picture.panels[0].series['zeo'], [(0, 1500, 1000, 2000)])

    def test_of_a_disk(self):
        names = [one.name for one in pictures.of(document_of(*(
            probing.race(place=place, seconds=1)
            for place in probing.PLACES)))]
        self.assertEqual(names, [
            'syncs-append', 'syncs-overwrite',
            'syncs-append-beside-a-writer'])

    def test_not_of_what_was_not_measured(self):
        self.assertEqual(pictures.of(made_document([])), [])

    def test_not_of_another_measurement_with_the_same_name(self):
        document = document_of(beside.race(seconds=2, **SITE))
        document['races'][0]['workload'] = 'write'
        self.assertEqual(
            [one.name for one in pictures.of(document)],
            ['zeo-commit-times'])


class WithoutMatplotlibTests(unittest.TestCase):

    def test_says_what_to_install(self):
        with mock.patch('importlib.util.find_spec', lambda name: None), \
                self.assertRaises(Exception) as caught:
            arguments._pictures(tempfile.gettempdir())
        self.assertIn('fsyncstorage[plots]', str(caught.exception))


@unittest.skipUnless(
    importlib.util.find_spec('matplotlib'), 'matplotlib is not installed')
class DrawingTests(unittest.TestCase):

    def setUp(self):
        # It needs matplotlib.
        self.drawing = importlib.import_module(
            'fsyncstorage.timing.reports.drawing')
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = os.path.join(directory.name, 'pictures')

    def texts(self, name):
        tree = ElementTree.parse(os.path.join(self.directory, name))
        return [''.join(one.itertext()).strip() for one in tree.iter(
            '{http://www.w3.org/2000/svg}text')]

    def test_rows_of_what_has_one_number_of_threads(self):
        self.drawing.save_all(commits(), self.directory)
        self.assertEqual(
            sorted(os.listdir(self.directory)), ['commits.png', 'commits.svg'])
        texts = self.texts('commits.svg')
        for expected in ('How many commits a second?', 'commits a second',
                         'filestorage', 'fsync:none', '220'):
            self.assertIn(expected, texts)

    def test_lines_of_what_has_several(self):
        self.drawing.save_all(document_of(*(
            reading.race(clients=clients, objects=4, access='get', **SITE)
            for clients in (1, 16))), self.directory)
        texts = self.texts('zeo-reads.svg')
        for expected in ('client processes', '1', '16', 'steamin',
                         'objects a second, all clients', 'fsync-client'):
            self.assertIn(expected, texts)

    def test_of_1200_pixels(self):
        self.drawing.save_all(commits(), self.directory)
        with open(os.path.join(self.directory, 'commits.png'), 'rb') as file:
            file.seek(16)
            self.assertEqual(int.from_bytes(file.read(4), 'big'), 1200)

    def test_a_contestant_always_looks_the_same(self):
        self.assertEqual(
            self.drawing.look('mine'), self.drawing.look('mine'))

    def test_no_two_look_the_same(self):
        names = {*contestants.CONTESTANTS, *sites.CONTESTANTS}
        self.assertEqual(
            len({self.drawing.look(name) for name in names}), len(names))
