"""`fsync-info`: figures that are right to the byte, paths that lead there."""

import collections
import contextlib
import io
import os
import random
import time
from datetime import datetime
from datetime import timedelta
from datetime import timezone
from unittest import mock

import transaction
import ZODB
from ZODB.blob import Blob
from ZODB.blob import FilesystemHelper
from ZODB.FileStorage import FileStorage
from ZODB.scripts import analyze
from ZODB.serialize import referencesf
from ZODB.tests.MinPO import MinPO
from ZODB.utils import z64

from fsyncstorage import FsyncStorage
from fsyncstorage.check.info import blobfiles
from fsyncstorage.check.info import commandline
from fsyncstorage.check.info import document
from fsyncstorage.check.info import moments
from fsyncstorage.check.info import survey
from fsyncstorage.format import scan

from ..format.sealing import changed
from ..format.sealing import positions
from ..format.sealing import read
from ..format.sealing import sealed
from ..format.sealing import window_of
from ..format.sealing import write
from ..support import Thread
from ..support import commit
from ..support import oid
from .infocase import InfoCase
from .infocase import record
from .infocase import tid
from .infocase import write_timed

ROOT = record('Root', 1, 2)
FOLDER = record('Folder', 3)
SMALL = record('Page')
LARGE = record('Page', more=b'C\xff' + bytes(255))
ALONE = record('Draft', 3)


class FiguresCase(InfoCase):
    """Three days: an object is written three times, one cannot be reached."""

    def setUp(self):
        super().setUp()
        write_timed(
            self.path(),
            ('2020-01-30 10:00', {0: ROOT, 1: FOLDER, 2: SMALL, 3: SMALL},
             b'/ admin', b'/site/install\nmore'),
            ('2020-01-31 23:59:59', {2: LARGE}, b'/ anna', b'/site/edit x'),
            ('2020-02-01 00:00', {2: SMALL, 4: ALONE}, b'/ anna',
             b'/site/edit'))

    def transactions(self):
        """The bytes of each."""
        ends = positions(read(self.path()))
        return [end - begin for begin, end in zip(ends, ends[1:])]


class FiguresTests(FiguresCase):

    def test_the_whole(self):
        report = self.report()
        data = sum(map(len, (ROOT, FOLDER, SMALL, SMALL, LARGE, SMALL, ALONE)))
        current = data - len(LARGE) - len(SMALL)
        whole = sum(self.transactions())
        self.assertEqual(report['bytes'], {
            'all': whole, 'current': current, 'old': data - current,
            'record_headers': 7 * scan.RECORD_HEADER,
            'transactions': whole - data - 7 * scan.RECORD_HEADER})
        self.assertEqual(report['size'], whole + scan.FIRST)
        self.assertEqual(
            [report[name] for name in (
                'file', 'since', 'end', 'damage', 'transactions', 'records',
                'objects', 'unread', 'blobs')],
            [self.path(), None, report['size'], None, 3, 7, 5, 0, None])
        self.assertEqual(report['first'], {
            'tid': tid('2020-01-30 10:00').hex(),
            'time': '2020-01-30 10:00:00'})
        self.assertEqual(report['last']['time'], '2020-02-01 00:00:00')

    def test_by_class(self):
        report = self.report('--by', 'class')
        pages = 3 * len(SMALL) + len(LARGE)
        self.assertEqual(report['classes'], {'count': 4, 'listed': [
            {'class': 'module.Page', 'objects': 2, 'current': 2 * len(SMALL),
             'records': 4, 'all': pages},
            {'class': 'module.Root', 'objects': 1, 'current': len(ROOT),
             'records': 1, 'all': len(ROOT)},
            *sorted([
                {'class': 'module.Draft', 'objects': 1,
                 'current': len(ALONE), 'records': 1, 'all': len(ALONE)},
                {'class': 'module.Folder', 'objects': 1,
                 'current': len(FOLDER), 'records': 1, 'all': len(FOLDER)},
            ], key=lambda row: -row['all'])],
            'others': {'objects': 0, 'current': 0, 'records': 0, 'all': 0}})
        self.assertEqual(
            {name for name in document.ALL_PARTS if report[name] is not None},
            {'classes'})

    def test_what_is_not_listed_is_added_up(self):
        part = self.report('--by', 'class', '--top', '1')['classes']
        self.assertEqual(len(part['listed']), 1)
        self.assertEqual(part['others'], {
            'objects': 3, 'records': 3,
            'current': len(ROOT) + len(FOLDER) + len(ALONE),
            'all': len(ROOT) + len(FOLDER) + len(ALONE)})
        self.assertIn('3 more', self.run_info('--top', '1')[1])

    def test_objects(self):
        report = self.report('--by', 'oid', '--top', '2')
        page = {
            'oid': oid(2).hex(), 'class': 'module.Page',
            'current': len(SMALL), 'revisions': 3,
            'all': 2 * len(SMALL) + len(LARGE),
            'path': [{'oid': oid(0).hex(), 'class': 'module.Root'},
                     {'oid': oid(2).hex(), 'class': 'module.Page'}],
            'path_left_out': 0}
        self.assertEqual(report['largest'][0], page)
        # The others were written once.
        self.assertEqual(report['most_revised'], [page])
        self.assertEqual(report['largest'][1]['class'], 'module.Root')
        self.assertEqual(
            report['largest'][1]['path'],
            [{'oid': oid(0).hex(), 'class': 'module.Root'}])
        self.assertEqual(report['unreachable'], {
            'objects': 1, 'current': len(ALONE), 'all': len(ALONE),
            'classes': {
                'count': 1, 'listed': [
                    {'class': 'module.Draft', 'objects': 1,
                     'current': len(ALONE)}],
                'others': {'objects': 0, 'current': 0}}})

    def test_an_object_that_is_not_reached_has_no_path(self):
        rows = self.report('--by', 'oid')['largest']
        self.assertEqual(
            {row['oid'] for row in rows if row['path'] is None},
            {oid(4).hex()})

    def test_by_day(self):
        first, second, third = self.transactions()
        days = [
            {'day': day, 'transactions': 1, 'records': records, 'all': size}
            for day, records, size in (
                ('2020-01-30', 4, first), ('2020-01-31', 1, second),
                ('2020-02-01', 2, third))]
        self.assertEqual(
            self.report('--by', 'day')['days'], {'count': 3, 'listed': days})
        self.assertEqual(
            self.report('--by', 'day', '--top', '2')['days'],
            {'count': 3, 'listed': days[1:]})

    def test_by_user_and_by_path(self):
        first, second, third = self.transactions()
        nothing = {'transactions': 0, 'records': 0, 'all': 0}
        for part, kind, names in (
                ('users', 'user', ('/ admin', '/ anna')),
                ('paths', 'path', ('/site/install', '/site/edit'))):
            rows = [
                {kind: names[0], 'transactions': 1, 'records': 4,
                 'all': first},
                {kind: names[1], 'transactions': 2, 'records': 3,
                 'all': second + third}]
            rows.sort(key=lambda row: -row['all'])
            self.assertEqual(
                self.report('--by', kind)[part],
                {'count': 2, 'listed': rows, 'others': nothing})

    def test_since(self):
        report = self.report('--since', '2020-01-31')
        self.assertEqual(report['since'], '2020-01-31 00:00:00')
        self.assertEqual(
            [report[name] for name in ('transactions', 'records', 'objects')],
            [2, 3, 2])
        self.assertEqual(report['bytes']['all'], sum(self.transactions()[1:]))
        self.assertEqual(
            report['bytes']['current'], len(SMALL) + len(ALONE))
        self.assertEqual(report['bytes']['old'], len(LARGE))
        self.assertEqual(
            {row['class']: row['records']
             for row in report['classes']['listed']},
            {'module.Page': 2, 'module.Draft': 1})
        self.assertEqual(report['largest'][0]['revisions'], 2)
        self.assertEqual(report['days']['count'], 2)
        # The path leads over what is older.
        self.assertEqual(len(report['largest'][0]['path']), 2)
        self.assertEqual(
            self.report('--since', '2020-02-01T00:00:01')['transactions'], 0)

    def test_words(self):
        status, out, err = self.run_info()
        self.assertEqual((status, err), (0, ''))
        for expected in (
                f'{os.stat(self.path()).st_size:,} bytes', '3 transactions',
                '5 objects, 7 records', 'module.Page',
                'Root(0x00) > Page(0x02)', '/ anna', '/site/edit',
                '2020-01-31', 'cannot be reached from the root'):
            self.assertIn(expected, out)

    def test_nothing_is_changed(self):
        before = read(self.path()), sorted(os.listdir(self.directory))
        os.chmod(self.path(), 0o444)
        self.report()
        self.assertEqual(
            before, (read(self.path()), sorted(os.listdir(self.directory))))

    def test_an_empty_database(self):
        os.truncate(self.path(), scan.FIRST)
        report = self.report()
        self.assertEqual(
            (report['transactions'], report['objects'], report['first']),
            (0, 0, None))
        self.assertIn('No transactions', self.run_info()[1])


class ProgressTests(FiguresCase):

    def test_only_on_a_terminal(self):
        self.assertEqual(self.run_info()[2], '')
        terminal = io.StringIO()
        terminal.isatty = lambda: True
        with (contextlib.redirect_stderr(terminal),
              contextlib.redirect_stdout(io.StringIO()),
              mock.patch.dict(os.environ, TERM='xterm')):
            commandline.main([self.path()])
        for words in commandline.STAGES.values():
            self.assertIn(words, terminal.getvalue())

    def test_references_are_read_only_for_what_needs_them(self):
        with mock.patch.object(
                survey.Survey, 'read_references', autospec=True,
                side_effect=survey.Survey.read_references) as reads:
            for by in 'class', 'day', 'user', 'path':
                self.assertIsNone(self.report('--by', by)['unread'])
            reads.assert_not_called()
            self.assertEqual(self.report('--by', 'oid')['unread'], 0)
            reads.assert_called()


class UndoTests(InfoCase):

    def setUp(self):
        super().setUp()
        self.db = ZODB.DB(self.open())

    def undo(self):
        self.db.undo(self.db.undoLog(0, 1)[0]['id'])
        transaction.commit()

    def test_an_undo_has_no_data_of_its_own(self):
        sizes = []
        for value in 'x' * 100, 'x' * 300:
            with self.db.transaction() as connection:
                connection.root()['a'] = value
            sizes.append(len(self.db.storage.load(z64)[0]))
        first, last = sizes
        before = self.report('--by', 'oid')['largest'][0]
        self.assertEqual(before['current'], last)
        for current in first, last, first:
            self.undo()
            row, = self.report('--by', 'oid')['largest']
            self.assertEqual(row['current'], current)
            self.assertEqual(row['all'], before['all'])
        self.assertEqual(row['revisions'], before['revisions'] + 3)

    def test_an_object_whose_creation_was_undone(self):
        with self.db.transaction() as connection:
            connection.root()['a'] = MinPO()
        for expected in 1, 2, 1:
            self.undo()
            report = self.report()
            self.assertEqual(report['objects'], expected)
            self.assertEqual(report['unreachable']['objects'], 0)

    def test_bytes_add_up(self):
        for number in range(5):
            with self.db.transaction() as connection:
                connection.root()[number] = MinPO('x' * number)
            self.undo()
        sizes = self.report()['bytes']
        whole = sizes.pop('all')
        self.assertEqual(sum(sizes.values()), whole)
        self.assertEqual(whole + scan.FIRST, os.stat(self.path()).st_size)


class StockTests(InfoCase):
    """As the tools of ZODB find it, in random histories."""

    def history(self, seed, undo=False):
        """Objects of several classes, that refer to each other."""
        other = random.Random(seed)
        with contextlib.closing(FileStorage(self.path())) as storage:
            serials = {}
            for _ in range(60):
                keys = other.sample(range(40), 3) if serials else range(40)
                made = {key: record(
                    f'Class{key % 5}',
                    *other.sample(range(50), other.choice([0, 0, 1, 2])),
                    more=b'C' + bytes([size]) + bytes(size))
                    for key in keys for size in [other.randrange(200)]}
                last = commit(storage, made, serials)
                serials.update(dict.fromkeys(made, last))

    def stock(self):
        found = analyze.Report()
        with contextlib.closing(
                FileStorage(self.path(), read_only=True)) as storage:
            for each in storage.iterator():
                analyze.analyze_trans(found, each)
        return found

    def test_totals(self):
        for seed in range(5):
            self.history(seed)
            report = self.report('--top', '100')
            stock = self.stock()
            self.assertEqual(
                [report['transactions'], report['records'],
                 report['objects'], report['bytes']['current'],
                 report['bytes']['old']],
                [stock.TIDS, stock.OIDS, stock.COIDS, stock.CBYTES,
                 stock.FBYTES])
            rows = report['classes']['listed']
            self.assertEqual(
                {row['class']: row['records'] for row in rows},
                stock.TYPEMAP)
            self.assertEqual(
                {row['class']: row['all'] for row in rows}, stock.TYPESIZE)
            os.remove(self.path())

    def test_totals_after_undos(self):
        """Stock counts the data that an undo points to once more."""
        db = ZODB.DB(self.open())
        other = random.Random(1)
        first = db.undoLog(0, 1)
        for _ in range(40):
            log = [each for each in db.undoLog(0, 10) if each not in first]
            if log and other.random() < .4:
                with contextlib.suppress(ZODB.POSException.UndoError):
                    db.undo(other.choice(log)['id'])
                    transaction.commit()
                transaction.abort()
            else:
                with db.transaction() as connection:
                    connection.root()[other.randrange(5)] = MinPO(
                        'x' * other.randrange(99))
        db.close()
        stock = self.stock()
        report = self.report()
        self.assertEqual(
            [report['transactions'], report['records']],
            [stock.TIDS, stock.OIDS])
        data = scan_data(read(self.path()))
        self.assertEqual(
            report['bytes']['current'] + report['bytes']['old'], data)
        self.assertLess(data, stock.DBYTES)

    def test_paths_and_what_is_not_reached(self):
        found_lost = found_long = 0
        for seed in range(20):
            self.history(seed)
            with contextlib.closing(
                    FileStorage(self.path(), read_only=True)) as storage:
                refers = {key: set(referencesf(storage.load(key)[0]))
                          for key in map(oid, range(40))}
            distances = {z64: 0}
            row = collections.deque([z64])
            while row:
                key = row.popleft()
                for target in refers[key]:
                    if target in refers and target not in distances:
                        distances[target] = distances[key] + 1
                        row.append(target)
            report = self.report('--by', 'oid', '--top', '100')
            self.assertEqual(len(report['largest']), 40)
            for each in report['largest']:
                key = bytes.fromhex(each['oid'])
                if key not in distances:
                    self.assertIsNone(each['path'])
                    continue
                path = [bytes.fromhex(step['oid']) for step in each['path']]
                self.assertEqual((path[0], path[-1]), (z64, key))
                self.assertEqual(len(path) - 1, distances[key])
                for before, after in zip(path, path[1:]):
                    self.assertIn(after, refers[before])
                found_long = max(found_long, len(path))
            self.assertEqual(
                report['unreachable']['objects'], 40 - len(distances))
            found_lost += 40 - len(distances)
            os.remove(self.path())
        self.assertGreater(found_lost, 0)
        self.assertGreater(found_long, 4)

    def test_a_long_path_is_shortened(self):
        with contextlib.closing(FileStorage(self.path())) as storage:
            commit(storage, {
                **{key: record('Step', key + 1) for key in range(99)},
                99: LARGE})
        row = self.report('--by', 'oid', '--top', '1')['largest'][0]
        numbers = [int(step['oid'], 16) for step in row['path']]
        self.assertEqual(numbers, [*range(10), *range(90, 100)])
        self.assertEqual(row['path_left_out'], 80)
        self.assertIn('(80 more)', self.run_info('--by', 'oid')[1].replace(
            '\n', ' '))


def scan_data(data):
    return sum(each.length for found in scan.transactions(window_of(data))
               for each in found.records)


class BlobTests(InfoCase):

    def setUp(self):
        super().setUp()
        self.blobs = self.path('blobs')
        self.db = ZODB.DB(self.open(blob_dir=self.blobs))
        for content in b'one', b'twelve':
            with self.db.transaction() as connection:
                root = connection.root()
                root.setdefault('a', MinPO()).value = root.setdefault(
                    'blob', Blob())
                with root['blob'].open('w') as file:
                    file.write(content)
        with self.db.transaction() as connection:
            del connection.root()['blob']
        self.helper = FilesystemHelper(self.blobs)

    def stray(self, last):
        path = self.helper.getBlobFilename(oid(1000), last)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        write(path, b'stray')
        return path

    def test_all(self):
        blobs = self.report('--blobs', self.blobs)['blobs']
        self.assertEqual(blobs, {
            'now': {'files': 1, 'bytes': 6}, 'old': {'files': 1, 'bytes': 3},
            'orphans': {'files': 0, 'bytes': 0}, 'without_file': 0,
            'classes': {
                'count': 1, 'listed': [
                    {'class': 'ZODB.tests.MinPO.MinPO', 'files': 1,
                     'bytes': 6}],
                'others': {'files': 0, 'bytes': 0}},
            'orphans_listed': []})

    def test_orphans(self):
        last = self.db.lastTransaction()
        orphan = self.stray(last)
        # Of a transaction that is not finished; and other files.
        under_way = self.stray(b'\x7f' * 8)
        write(orphan + '.tmp', b'')
        write(orphan[:-8] + 'z.blob', b'')
        blobs = self.report('--blobs', self.blobs)['blobs']
        self.assertEqual(blobs['orphans'], {'files': 1, 'bytes': 5})
        self.assertEqual(blobs['orphans_listed'], [
            {'oid': oid(1000).hex(), 'tid': last.hex(), 'bytes': 5,
             'file': orphan}])
        self.assertTrue(os.path.exists(under_way))
        _, out, _ = self.run_info('--blobs', self.blobs)
        self.assertIn(f'orphan: {orphan}', out)

    def test_missing_files(self):
        for name in os.listdir(self.blobs):
            if name.startswith('0x'):
                os.rename(os.path.join(self.blobs, name), self.path('away'))
        blobs = self.report('--blobs', self.blobs)['blobs']
        self.assertEqual(blobs['without_file'], 2)
        self.assertIn('2 records of blobs have no file',
                      self.run_info('--blobs', self.blobs)[1])

    def test_since(self):
        time = moments.second_name(self.db.lastTransaction())
        with mock.patch.object(moments, 'tid_of', lambda _: last):
            last = self.db.lastTransaction()
            blobs = self.report(
                '--blobs', self.blobs, '--since', time)['blobs']
        self.assertEqual(blobs['now'], {'files': 0, 'bytes': 0})
        self.assertEqual(blobs['old'], {'files': 0, 'bytes': 0})
        self.assertEqual(blobs['orphans'], {'files': 0, 'bytes': 0})

    def test_a_file_that_is_just_removed(self):
        (_, directory), = self.helper.listOIDs()
        removed, _ = sorted(os.listdir(directory))
        real = os.stat

        def stat(path, *args, **kw):
            if os.path.basename(path) == removed:
                raise FileNotFoundError
            return real(path, *args, **kw)

        with mock.patch.object(blobfiles.os, 'stat', stat):
            blobs = self.report('--blobs', self.blobs)['blobs']
        self.assertEqual(
            (blobs['now']['files'], blobs['old']['files']), (1, 0))

    def test_packed_meanwhile(self):
        real = blobfiles.BlobFiles.read

        def packed(*args):
            os.replace(self.path('copy'), self.path())
            return real(*args)

        write(self.path('copy'), read(self.path()))
        with mock.patch.object(blobfiles.BlobFiles, 'read', packed):
            self.assert_cannot_run(
                'was packed while it was read', '--blobs', self.blobs)

    def test_directories_that_are_none(self):
        self.assert_cannot_run('is no directory', '--blobs', self.path())
        self.assert_cannot_run(
            '--blobs has nothing to add to --by day',
            '--blobs', self.blobs, '--by', 'day')


class WhileWrittenTests(InfoCase):

    def test_beside_a_storage_that_commits(self):
        storage = self.open()
        commit(storage, {0: record('Root')})
        seen = []

        def work():
            last = storage.lastTransaction()
            while len(seen) < 10:
                last = commit(storage, {0: record('Root')}, {0: last})

        thread = Thread(work)
        try:
            while len(seen) < 10:
                report = self.report()
                self.assertEqual(
                    report['bytes']['all'] + scan.FIRST, report['end'])
                self.assertEqual(report['objects'], 1)
                self.assertEqual(
                    report['most_revised'][0]['revisions'],
                    report['transactions'])
                seen.append(report['transactions'])
        finally:
            seen.extend([0] * 10)
        thread.result()
        self.assertEqual(seen[:10], sorted(seen[:10]))

    def test_what_is_not_finished_is_left_out(self):
        write_timed(self.path(), ('2020-01-01', {0: ROOT}, b'', b''),
                    ('2020-01-02', {0: ROOT}, b'', b''))
        data = read(self.path())
        begin = positions(data)[1]
        for torn in (changed(data, begin + 16, b'c'), data[:begin + 30],
                     data[:-1]):
            write(self.path(), torn)
            report = self.report()
            self.assertEqual(report['transactions'], 1)
            self.assertEqual(report['end'], begin)
            self.assertIn(
                f'{len(torn) - begin:,} bytes at the end',
                self.run_info()[1])


class DamageTests(FiguresCase):

    def setUp(self):
        super().setUp()
        self.data = sealed(read(self.path()))
        self.second = positions(self.data)[1]

    def test_what_comes_before_is_shown(self):
        write(self.path(), changed(self.data, self.second + 150, b'\xee'))
        report = self.report(status=1)
        self.assertEqual(report['damage'], {
            'position': self.second,
            'tid': tid('2020-01-31 23:59:59').hex(),
            'reason': 'it does not fit the checksum in its seal'})
        self.assertEqual(
            (report['transactions'], report['end']), (1, self.second))
        self.assertIsNone(report['unreachable'])
        status, out, _ = self.run_info()
        self.assertEqual(status, 1)
        self.assertIn(f'DAMAGED at {self.second}, tid', out)
        self.assertIn('fsync-check', out)
        self.assertIn('module.Page', out)

    def test_the_first_bytes(self):
        write(self.path(), b'GIF8' + self.data[4:])
        self.assertEqual(self.report(status=1)['damage']['position'], 0)


class BadInputTests(InfoCase):

    def setUp(self):
        super().setUp()
        write_timed(self.path(), ('2020-01-01', {0: ROOT}, b'', b''))

    def test_files_that_are_none(self):
        self.assert_cannot_run('No such file', path=self.path('nothing'))
        self.assert_cannot_run('is a directory', path=self.directory)
        for content in b'', b'FS21' + bytes(100), b'GIF8' + bytes(1000):
            write(self.path('other'), content)
            self.assert_cannot_run(self.path('other'), path=self.path('other'))
        with mock.patch.object(
                os, 'open', side_effect=PermissionError(
                    13, 'Permission denied', self.path())):
            self.assert_cannot_run(f'{self.path()}: Permission denied')

    def test_options_that_are_wrong(self):
        tomorrow = datetime.now(timezone.utc) + timedelta(days=1)
        for reason, *options in (
                ('a number from 1', '--top', '-1'),
                ('a number from 1', '--top', '0'),
                ('a number from 1', '--top', '1001'),
                ('a number from 1', '--top', '9' * 10_000),
                ('a number from 1', '--top', 'many'),
                ('invalid choice', '--by', 'colour'),
                ('in the future', '--since', f'{tomorrow:%Y-%m-%d}'),
                ('is no time', '--since', 'yesterday'),
                ('is no time', '--since', 'a\x1b[2J\nb'),
                ('before 1900', '--since', '1899-12-31'),
                ('before 1900', '--since', '999999999 weeks')):
            with self.subTest(options):
                self.assert_cannot_run(reason, *options)

    def test_a_disk_that_cannot_be_read(self):
        with mock.patch.object(
                os, 'pread', side_effect=OSError(5, 'Input/output error')):
            self.assert_cannot_run(f'{self.path()}: Input/output error')


class MomentTests(InfoCase):

    NOW = datetime(2026, 11, 23, 12, 0, tzinfo=timezone.utc)

    def test_what_people_write(self):
        for text, expected in {
                '2026-11-23': '2026-11-23 00:00',
                '2026-11-23 11:30': '2026-11-23 11:30',
                '2026-11-23T11:30:05': '2026-11-23 11:30:05',
                '2026-11-23T11:30Z': '2026-11-23 11:30',
                '2026-11-23 11:30+02:00': '2026-11-23 09:30',
                '3 days': '2026-11-20 12:00', '3d': '2026-11-20 12:00',
                '1 day ago': '2026-11-22 12:00', '12h': '2026-11-23 00:00',
                '2 hours': '2026-11-23 10:00', '1w': '2026-11-16 12:00',
                '2 weeks': '2026-11-09 12:00',
                '90 minutes': '2026-11-23 10:30',
                '5min': '2026-11-23 11:55'}.items():
            with self.subTest(text):
                self.assertEqual(
                    moments.parse(text, self.NOW),
                    datetime.fromisoformat(expected).replace(
                        tzinfo=timezone.utc))

    def test_what_nobody_means(self):
        for text in ('', '3', 'days', '-3 days', '3 years', '11:30',
                     '2026-13-01', '2026-11-23 25:00', '٣ days',
                     '0001-01-01T00:00+23:00', '9999-12-31T23:59-23:00'):
            with self.subTest(text), self.assertRaises(ValueError):
                moments.parse(text, self.NOW)

    def test_tids(self):
        other = random.Random(1)
        for _ in range(1000):
            moment = datetime.fromtimestamp(
                other.randrange(1 << 32), timezone.utc)
            found = moments.tid_of(moment)
            self.assertEqual(
                moments.second_name(found), f'{moment:%Y-%m-%d %H:%M:%S}')
            self.assertEqual(
                moments.day_name(moments.day_of(found)), f'{moment:%Y-%m-%d}')

    def test_of_a_storage(self):
        storage = FsyncStorage(self.path())
        self.addCleanup(storage.close)
        before = int(time.time())
        last = commit(storage, {0: ROOT})
        self.assertLessEqual(
            f'{datetime.fromtimestamp(before, timezone.utc):%F %T}',
            moments.second_name(last))
