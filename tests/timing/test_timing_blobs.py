"""The command `fsync-time blobs`: that the right thing is measured.

How fast it was is nowhere asserted.
"""

import io
import os
import tempfile
import unittest
from unittest import mock

import transaction
from persistent.mapping import PersistentMapping
from rich.console import Console
from ZODB.blob import Blob
from ZODB.FileStorage import FileStorage

from fsyncstorage.timing.blobs import commandline as blobs
from fsyncstorage.timing.blobs import work as blobwork
from fsyncstorage.timing.results import document as documents
from fsyncstorage.timing.results import tables
from fsyncstorage.timing.running import crew
from fsyncstorage.timing.running import machine
from fsyncstorage.timing.running import supervisor
from fsyncstorage.timing.servers import served

from .test_timing import Command
from .test_timing import Scratch

SETTINGS = {
    'loop': 'asyncio', 'sync_latency': 0, 'socket': False,
    'requests': 2, 'volume': 1 << 20}


class RequestTests(unittest.TestCase):

    level = 2

    def test_requests_are_as_many_as_have_room(self):
        for size, expected in [(1, 10), (100, 10), (200, 5), (5000, 3)]:
            self.assertEqual(
                blobwork.number(size, 10, 1000), expected, size)

    def test_figures(self):
        self.assertEqual(
            blobwork._figures('cold', 100, [
                crew.Stretch(10, 12, [0.5, 1.5], 3),
                crew.Stretch(11, 14, [1, 2], 4)], {'cpu_seconds': 1}),
            {'cold_per_second': 1, 'cold_cpu_seconds': 2,
             'cold_bytes_per_second': 100,
             'cold_p50_seconds': 1, 'cold_p99_seconds': 2})


class LocalTests(Scratch):
    """Jobs, in this process."""

    level = 2

    def setUp(self):
        super().setUp()
        self.site = served.Site(served.NoServer(), None, self.open)

    def open(self):
        return FileStorage(
            os.path.join(self.scratch, 'Data.fs'),
            blob_dir=os.path.join(self.scratch, 'blobs'))

    def plant(self, contents):
        """Blobs for `_reader`."""
        with crew.connected(self.site) as (manager, connection):
            connection.root()['blobs'] = PersistentMapping(all=[
                blobwork.new_blob(connection, data) for data in contents])
            manager.commit()

    def loads(self, job):
        """The result; and how many blobs were loaded, by stretch."""
        told = []
        with mock.patch.object(
                Blob, '__setstate__', autospec=True,
                side_effect=Blob.__setstate__) as load:

            def start():
                told.append(load.call_count)

            found = job(start)
            told.append(load.call_count)
        return found, [
            after - before for before, after in zip(told, told[1:])]

    def test_each_way_loads_each_blob_anew(self):
        self.plant([b'small', b'12', b'34', b'56'])
        found, loads = self.loads(
            blobwork._reader(self.site, ['cold', 'cached'], 2))
        self.assertEqual(loads, [3, 3])
        self.assertEqual(len(found), 2)
        for stretch in found:
            self.assertEqual(len(stretch.durations), 3)

    def test_each_request_is_a_transaction(self):
        self.plant([b'small', b'12', b'34'])
        with mock.patch.object(
                transaction.TransactionManager, 'begin', autospec=True,
                side_effect=transaction.TransactionManager.begin) as begin:
            blobwork._reader(self.site, ['direct'], 2)(begin.reset_mock)
        self.assertEqual(begin.call_count, 2)

    def test_a_blob_is_read_to_its_end(self):
        data = os.urandom(2 * blobwork.READ_SIZE + 1)
        self.plant([data])
        with crew.connected(self.site) as (_, connection):
            [blob] = connection.root()['blobs']['all']
            self.assertEqual(blobwork.read_file(blob), len(data))

    def test_a_wrong_length_is_an_error(self):
        self.plant([b'small', b'123'])
        with self.assertRaisesRegex(EOFError, '2 bytes was read as one of 3'):
            blobwork._reader(self.site, ['direct'], 2)(lambda: None)

    def test_a_new_blob_is_on_the_disk_that_is_measured(self):
        with crew.connected(self.site) as (_, connection):
            blob = blobwork.new_blob(connection, b'x')
            self.assertTrue(
                blob._p_blob_uncommitted.startswith(self.scratch))


class WithoutSync(Scratch):
    """A sync would wait for all that others write to the disk."""

    def setUp(self):
        super().setUp()
        self.enterContext(mock.patch.object(os, 'sync'))


class ContestantTests(WithoutSync):
    """Real processes, for a short time."""

    level = 2

    def measure(self, function, name, clients=1, size=3):
        return supervisor.run(lambda: function(
            blobs.CONTESTANTS[name], self.scratch,
            clients=clients, size=size, **SETTINGS))

    def blobs_in(self, directory):
        """The sizes of the files of blobs in a directory."""
        return sorted(
            os.path.getsize(os.path.join(path, name))
            for path, _, names in os.walk(
                os.path.join(self.scratch, directory))
            for name in names if name.endswith('.blob'))

    def caches(self):
        return sorted(
            self.blobs_in(name) for name in os.listdir(self.scratch)
            if name.startswith('cache-'))

    def assert_figures(self, race, ways, figures):
        expected = {
            f'{way}_{figure}' for way in ways for figure in blobwork.FIGURES}
        self.assertLessEqual(expected, figures.keys())
        self.assertLessEqual(
            expected, set(race(**SETTINGS, clients=1, size=1).compared))

    def test_each_client_reads_into_a_cache_of_its_own(self):
        for name in 'zeo', 'fsync-client':
            with self.subTest(name), \
                    tempfile.TemporaryDirectory() as self.scratch:
                figures = self.measure(blobwork.read, name, clients=2)
                self.assert_figures(
                    blobwork.read_race, ['cold', 'cached'], figures)
                self.assertEqual(self.blobs_in('blobs'), [3, 3, 3, 5])
                # Those of two clients, and of the one that made blobs.
                self.assertEqual(self.caches(), [[3, 3, 3, 5]] * 3)

    def test_no_cache(self):
        for name in 'zeo:shared', 'filestorage', 'fsync:group-commit':
            with self.subTest(name), \
                    tempfile.TemporaryDirectory() as self.scratch:
                figures = self.measure(blobwork.read, name)
                self.assert_figures(
                    blobwork.read_race, ['direct'], figures)
                self.assertEqual(self.blobs_in('blobs'), [3, 3, 3, 5])
                self.assertEqual(self.caches(), [])

    def test_writes(self):
        for name, clients in ('fsync-client', 2), ('filestorage', 1):
            with self.subTest(name), \
                    tempfile.TemporaryDirectory() as self.scratch:
                figures = self.measure(blobwork.write, name, clients)
                self.assert_figures(
                    blobwork.write_race, ['write'], figures)
                self.assertEqual(
                    self.blobs_in('blobs'), [3] * 3 * clients + [5] * clients)


class SuitsTests(unittest.TestCase):

    level = 2

    def suit(self, **settings):
        race = blobwork.write_race(**{**SETTINGS, 'size': 1, **settings})
        return [name for name, one in blobs.CONTESTANTS.items()
                if race.takes(one)]

    def test_a_storage_without_a_server_has_one_client(self):
        names = list(blobs.CONTESTANTS)
        self.assertEqual(self.suit(clients=1, sync_latency=0), names)
        self.assertEqual(self.suit(clients=4, sync_latency=0), [
            name for name in names
            if name not in ('filestorage', 'fsync:group-commit')])

    def test_how_much_is_written_is_known_before(self):
        settings = {**SETTINGS, 'size': 100, 'clients': 4}
        self.assertEqual(blobwork.read_race(**settings).written, 300)
        self.assertEqual(blobwork.write_race(**settings).written, 1200)

    def test_the_syncs_of_postgresql_are_not_slowed(self):
        self.assertNotIn(
            'relstorage:postgresql', self.suit(clients=1, sync_latency=1))


class CommandTests(WithoutSync, Command):

    level = 2
    command = 'blobs'

    def test_everything_for_real(self):
        with tempfile.TemporaryDirectory() as directory, \
                mock.patch.object(blobwork, 'REQUESTS', 1):
            path = os.path.join(directory, 'result.json')
            code, out, err = self.run_main(
                'fsync-client', 'filestorage', '--rounds', '1',
                '--clients', '1', '--sizes', '1KB,2KB', '--json', path)
            document = documents.load(path)
        self.assertEqual((code, err), (0, ''))
        self.assertEqual(os.listdir(self.scratch), [])
        self.assertTrue(document['complete'])
        self.assertEqual(
            [(race['workload'], race['settings']['size'])
             for race in document['races']],
            [('blob-read', 1024), ('blob-read', 2048),
             ('blob-write', 1024), ('blob-write', 2048)])
        text = ' '.join(out.split())
        for expected in ('a second? cold: the blob cache is empty (1 client,',
                         'cached: the', 'direct: the', 'written a second? (1',
                         'size of a blob 1 KB 2 KB', 'MB/s'):
            self.assertIn(expected, text)

    def test_races(self):
        options = mock.Mock(
            quick=True, clients=[1, 2], sizes=[7], sync_latency=[0, 1],
            workload=['read', 'write'])
        found = [
            (race.workload, race.settings['sync_latency'],
             race.settings['clients']) for race in blobs.races(options)]
        self.assertEqual(found, [
            ('blob-read', 0, 1), ('blob-read', 0, 2),
            ('blob-write', 0, 1), ('blob-write', 0, 2),
            ('blob-write', 1, 1), ('blob-write', 1, 2)])

    def test_bad_input_is_one_line(self):
        for arguments_, expected in [
                (['postgres'], "there is no 'postgres'; allowed are zeo,"),
                (['--workload', 'undo'], 'invalid choice'),
                (['--clients', '0'], 'whole number'),
                (['--sizes', '0'], 'up to 2048MB'),
                (['--sizes', '3GB'], 'up to 2048MB'),
                (['--sizes', 'large'], 'numbers of bytes'),
                (['--sizes', '1KB,'], 'numbers of bytes'),
        ]:
            with self.subTest(arguments_):
                code, out, err = self.run_main(*arguments_)
                self.assertEqual((code, out), (2, ''))
                self.assertEqual(len(err.splitlines()), 1)
                self.assertIn(expected, err)


class TablesTests(unittest.TestCase):

    level = 2

    def test_reads(self):
        contestants = [blobs.CONTESTANTS[name]
                       for name in ('zeo', 'fsync-client', 'filestorage')]
        races = [blobwork.read_race(size=size, clients=2, **SETTINGS)
                 for size in (5 << 10, 50 << 20)]
        document = documents.new(
            'blobs', races, contestants, 1, 'zeo',
            machine.describe(tempfile.gettempdir()))
        document['samples'] = [
            {'race': race, 'contestant': name, 'round': 1, 'figures': {
                'cold_per_second': speed, 'cold_p50_seconds': 1 / speed,
                'cold_bytes_per_second': speed * (5 << 10),
                'cold_p99_seconds': 3 / speed}}
            for race in (0, 1)
            for name, speed in (('zeo', 1000), ('fsync-client', 4000))]
        documents.summarise(document)
        console = Console(file=io.StringIO(), width=80)
        tables.show(document, console)
        text = ' '.join(console.file.getvalue().split())
        for expected in ('cold: ', '2 clients', '5 KB 50 MB', '4,000',
                         '4.00x', '4.88 MB/s', 'p50 1 ms', 'p99 750 us'):
            self.assertIn(expected, text)
        for unexpected in 'cached: ', 'written', 'filestorage':
            self.assertNotIn(unexpected, text)
