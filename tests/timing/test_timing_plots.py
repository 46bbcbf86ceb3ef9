"""The pictures of `fsync-time`: what is in them, and that they are drawn."""

import importlib
import importlib.util
import itertools
import os
import tempfile
import unittest
from xml.etree import ElementTree

from fsyncstorage.timing.blobs import commandline as blobs
from fsyncstorage.timing.blobs import work as blobwork
from fsyncstorage.timing.disk import probing
from fsyncstorage.timing.options import contestants
from fsyncstorage.timing.reports import pictures
from fsyncstorage.timing.results import document as documents
from fsyncstorage.timing.servers import zeosites as sites
from fsyncstorage.timing.zeo import reading
from fsyncstorage.timing.zeo import writing
from tests.timing.test_timing_results import made_document
from tests.timing.test_timing_results import txn

SITE = {'loop': 'asyncio', 'socket': False,
        'sync_latency': 0.0}


def document_of(*races, names=('zeo', 'fsync-client')):
    """A document with two rounds and all compared figures."""
    made = made_document([], contestants=('filestorage',))
    made.update(
        command='a_script', added='Nothing added to the syncs.',
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
    """Two contestants, and samples that have these figures, too."""
    return made_document([
        ('filestorage', 1, txn(100, **figures)),
        ('fsync:none', 1, txn(150, **figures)),
        ('filestorage', 2, txn(120, **figures)),
        ('fsync:none', 2, txn(290, **figures))])


class PicturesTests(unittest.TestCase):

    level = 2

    def test_of_commits(self):
        picture, = pictures.of(commits())
        self.assertEqual(picture.name, 'commits')
        self.assertEqual(
            picture.conditions,
            'one tree a thread, threads that commit: 8')
        panel, = picture.panels
        self.assertEqual(panel.title, '5 ms added to each sync')
        self.assertEqual(panel.series, {
            'filestorage': [(8, 110, 100, 120)],
            'fsync:none': [(8, 220, 150, 290)]})
        for expected in '2 rounds', 'one sync':
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
        # In the order of the clients, not in that of the races.
        self.assertEqual(
            found[0].panels[0].series['zeo'],
            [(1, 3, 2, 4), (16, 1.5, 1, 2)])
        self.assertIn('asyncio, over TCP', found[0].conditions)

    def test_in_units_that_can_be_read(self):
        picture, = pictures.of(document_of(
            reading.beside_race(seconds=2, **SITE)))
        self.assertEqual(picture.question.up, 'milliseconds a read')
        self.assertEqual(
            picture.panels[0].series['zeo'], [(0, 1500, 1000, 2000)])

    def test_of_a_disk(self):
        picture, = pictures.of(document_of(probing.race(seconds=1)))
        self.assertEqual(picture.name, 'syncs')

    def test_what_is_on_no_axis_is_among_the_conditions(self):
        one, two = (
            writing.race(clients=clients, objects=4, seconds=1, **SITE)
            for clients in (1, 2))
        self.assertIn(
            'client processes: 1', pictures.of(document_of(one))[0].conditions)
        self.assertNotIn(
            'client processes',
            pictures.of(document_of(one, two))[0].conditions)

    def test_not_of_what_was_not_measured(self):
        self.assertEqual(pictures.of(made_document([])), [])

    def test_not_of_another_measurement_with_the_same_name(self):
        document = document_of(reading.beside_race(seconds=2, **SITE))
        document['races'][0]['workload'] = 'write'
        self.assertEqual(
            [one.name for one in pictures.of(document)],
            ['zeo-commit-times'])


@unittest.skipUnless(
    importlib.util.find_spec('matplotlib'), 'matplotlib is not installed')
class DrawingTests(unittest.TestCase):

    level = 2

    def setUp(self):
        # It needs matplotlib.
        self.drawing = importlib.import_module(
            'fsyncstorage.timing.reports.drawing')
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = os.path.join(directory.name, 'pictures')

    def save_all(self, document, *formats):
        os.mkdir(self.directory)
        for picture in pictures.of(document):
            for form in formats:
                self.drawing.save(picture, form, os.path.join(
                    self.directory, f'{picture.name}.{form}'))

    def texts(self, name):
        tree = ElementTree.parse(os.path.join(self.directory, name))
        return [''.join(one.itertext()).strip() for one in tree.iter(
            '{http://www.w3.org/2000/svg}text')]

    def test_rows_of_what_has_one_number_of_threads(self):
        self.save_all(commits(), 'png', 'svg')
        self.assertEqual(
            sorted(os.listdir(self.directory)), ['commits.png', 'commits.svg'])
        texts = self.texts('commits.svg')
        for expected in ('How many commits a second?', 'commits a second',
                         'filestorage', 'fsync:none', '220'):
            self.assertIn(expected, texts)

    def test_lines_of_what_has_several(self):
        self.save_all(document_of(*(
            reading.race(clients=clients, objects=4, access='get', **SITE)
            for clients in (1, 16))), 'svg')
        texts = self.texts('zeo-reads.svg')
        for expected in ('client processes', '1', '16', 'steamin',
                         'objects a second, all clients', 'fsync-client'):
            self.assertIn(expected, texts)

    def test_of_1200_pixels(self):
        self.save_all(commits(), 'png')
        with open(os.path.join(self.directory, 'commits.png'), 'rb') as file:
            file.seek(16)
            self.assertEqual(int.from_bytes(file.read(4), 'big'), 1200)

    def test_a_contestant_looks_the_same_in_all_pictures(self):
        races = [
            writing.race(clients=1, objects=4, seconds=1, **SITE),
            reading.race(clients=1, objects=4, access='get', **SITE)]
        document = document_of(*races, names=('mine', 'yours'))
        # Only one of them has a place in the first picture.
        document['samples'] = [
            sample for sample in document['samples']
            if (sample['race'], sample['contestant']) != (0, 'mine')]
        documents.summarise(document)
        self.save_all(document, 'svg')
        to_hex = importlib.import_module('matplotlib.colors').to_hex
        colours = {
            name: to_hex(look['color']) for name, look in
            self.drawing.looks_of(['mine', 'yours']).items()}
        for name, contestants_, others in [
                ('zeo-commits.svg', ['yours'], ['mine']),
                ('zeo-reads.svg', ['mine', 'yours'], [])]:
            with open(os.path.join(self.directory, name)) as file:
                svg = file.read()
            for contestant in contestants_:
                self.assertIn(colours[contestant], svg)
            for contestant in others:
                self.assertNotIn(colours[contestant], svg)

    def test_no_two_look_the_same(self):
        names = {*contestants.CONTESTANTS, *sites.CONTESTANTS,
                 *blobs.CONTESTANTS,
                 *(f'mine{number}' for number in range(20))}
        looks = self.drawing.looks_of(names).values()
        self.assertEqual(
            len({(look['color'], look['marker']) for look in looks}),
            len(names))

    def test_storages_of_the_user_have_colours_of_their_own(self):
        looks = self.drawing.looks_of(['zeo', 'one', 'two', 'three'])
        self.assertEqual(
            len({look['color'] for look in looks.values()}), 4)

    def assertNothingTouches(self, picture):
        """No two texts touch each other, and none touches the border."""
        matplotlib = importlib.import_module('matplotlib')
        agg = importlib.import_module('matplotlib.backends.backend_agg')
        with matplotlib.rc_context(self.drawing._STYLE):
            figure = self.drawing.draw(picture)
            canvas = agg.FigureCanvasAgg(figure)
            canvas.draw()
            boxes = [text.get_window_extent(canvas.get_renderer())
                     for text in self.texts_of(figure)]
        for box in boxes:
            self.assertLess(0, box.x0)
            self.assertLess(box.x1, figure.bbox.x1)
        for one, other in itertools.combinations(boxes, 2):
            self.assertFalse(one.overlaps(other), picture.name)

    def texts_of(self, figure):
        for axes in figure.axes:
            yield from axes.texts
            yield axes.title
            low, high = axes.get_xlim()
            for at, label in zip(axes.get_xticks(), axes.get_xticklabels()):
                if low <= at <= high:
                    yield label
        for legend in figure.legends:
            yield from legend.get_texts()

    def test_there_is_room_for_long_names(self):
        names = [f'{number}{"-name" * number}' for number in range(8)]
        picture, = pictures.of(document_of(*(
            writing.race(clients=clients, objects=4, seconds=1, **SITE)
            for clients in (1, 2)), names=names))[:1]
        self.assertNothingTouches(picture)

    def test_there_is_room_for_all_that_is_written(self):
        sizes = [5 << 10, 50 << 10, 500 << 10, 5000 << 10, 50000 << 10]
        amounts = {'requests': 1, 'volume': 1, 'loop': 'uvloop'}
        for races in [
                [blobwork.read_race(
                    size=size, clients=1, **{**amounts, **SITE})
                 for size in sizes],
                [reading.race(clients=clients, objects=4, access='get', **SITE)
                 for clients in (1, 2, 4, 8, 16)]]:
            for picture in pictures.of(document_of(*races)):
                self.assertNothingTouches(picture)

    def test_there_is_room_for_large_numbers(self):
        name = 'relstorage:sqlite-normal'
        for most in 140e3, 2.5e6:
            picture = pictures.of(document_of(
                writing.race(clients=1, objects=4, seconds=1, **SITE),
                names=(name, 'zeo')))[0]
            picture.panels[0].series[name] = [
                pictures.Point(1, most, 0, most)]
            self.assertNothingTouches(picture)
