"""`fsync-info`: figures that are right to the byte, of any file."""

import os
import random
from datetime import datetime
from datetime import timedelta
from datetime import timezone
from unittest import mock

import transaction
import ZODB
from ZODB.tests.MinPO import MinPO
from ZODB.utils import z64

from fsyncstorage.check.info import commandline
from fsyncstorage.check.info import moments
from fsyncstorage.format import scan

from ..format.sealing import changed
from ..format.sealing import positions
from ..format.sealing import read
from ..format.sealing import sealed
from ..format.sealing import write
from ..support import begin
from ..support import commit
from ..support import oid
from .infocase import DRAFT
from .infocase import FOLDER
from .infocase import LARGE
from .infocase import ROOT
from .infocase import SMALL
from .infocase import InfoCase
from .infocase import record
from .infocase import tid
from .infocase import write_timed


class FiguresCase(InfoCase):
    """Three days; an object is written three times."""

    def setUp(self):
        super().setUp()
        write_timed(
            self.path(),
            ('2020-01-30 10:00', {0: ROOT, 1: FOLDER, 2: SMALL, 3: SMALL}),
            ('2020-01-31 23:59:59', {2: LARGE}),
            ('2020-02-01 00:00', {2: SMALL, 4: DRAFT}))
        self.data = read(self.path())
        self.ends = positions(self.data)


class FiguresTests(FiguresCase):

    def test_the_whole(self):
        report = self.report()
        data = sum(map(len, (ROOT, FOLDER, SMALL, SMALL, LARGE, SMALL, DRAFT)))
        current = data - len(LARGE) - len(SMALL)
        whole = len(self.data) - scan.FIRST
        self.assertEqual(report['bytes'], {
            'all': whole, 'current': current, 'old': data - current,
            'record_headers': 7 * scan.RECORD_HEADER,
            'transactions': whole - data - 7 * scan.RECORD_HEADER})
        self.assertEqual(
            [report[name] for name in (
                'file', 'since', 'size', 'end', 'damage', 'transactions',
                'records', 'objects', 'blobs', 'replaced')],
            [self.path(), None, len(self.data), len(self.data), None, 3, 7, 5,
             None, False])
        self.assertEqual(report['first'], {
            'tid': tid('2020-01-30 10:00').hex(),
            'time': '2020-01-30 10:00:00'})
        self.assertEqual(report['last']['time'], '2020-02-01 00:00:00')

    def test_by_class(self):
        found = self.report()['classes']
        rows = {row.pop('class'): [*row.values()] for row in found['listed']}
        self.assertEqual(next(iter(rows)), 'module.Page')   # the largest
        self.assertEqual(rows, {
            'module.Page': [
                2, 2 * len(SMALL), 4, 3 * len(SMALL) + len(LARGE)],
            **{f'module.{name}': [1, len(data), 1, len(data)]
               for name, data in {
                   'Root': ROOT, 'Draft': DRAFT, 'Folder': FOLDER}.items()}})
        self.assertEqual((found['count'], found['without_name']), (4, 0))
        rest = len(ROOT) + len(FOLDER) + len(DRAFT)
        # Zeros before a number do not matter.
        found = self.report('--top', '0001')['classes']
        self.assertEqual(len(found['listed']), 1)
        self.assertEqual(found['others'], {
            'objects': 3, 'records': 3, 'current': rest, 'all': rest})
        self.assertIn('3 more', self.words('--top', '1'))

    def test_since(self):
        report = self.report('--since', '2020-01-31')
        self.assertEqual(
            [report[name] for name in (
                'since', 'transactions', 'records', 'objects')],
            ['2020-01-31 00:00:00', 2, 3, 2])
        sizes = report['bytes']
        self.assertEqual(
            [sizes[name] for name in ('all', 'current', 'old')],
            [len(self.data) - self.ends[1], len(SMALL) + len(DRAFT),
             len(LARGE)])
        self.assertEqual(
            {row['class']: row['records']
             for row in report['classes']['listed']},
            {'module.Page': 2, 'module.Draft': 1})
        for time, expected in (
                ('2020-01-31 23:59:59', 2), ('2020-02-01T00:00', 1),
                ('2020-02-01T00:00:01', 0)):
            self.assertEqual(
                self.report('--since', time)['transactions'], expected)

    def test_words(self):
        before = sorted(os.listdir(self.directory))
        os.chmod(self.path(), 0o444)
        status, out, err = self.run_info()
        self.assertEqual((status, err), (0, ''))
        for expected in (
                f'{len(self.data):,} bytes', '3 transactions',
                '5 objects, 7 records', 'module.Page'):
            self.assertIn(expected, out)
        # Nothing was changed.
        self.assertEqual(
            (read(self.path()), sorted(os.listdir(self.directory))),
            (self.data, before))


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
        before, = self.report()['classes']['listed']
        self.assertEqual(before['current'], last)
        for records, current in enumerate((first, last, first), 1):
            self.undo()
            row, = self.report()['classes']['listed']
            self.assertEqual(row, {
                **before, 'current': current,
                'records': before['records'] + records})

    def test_objects_that_are_gone(self):
        with self.db.transaction() as connection:
            connection.root()['a'] = MinPO()
        for expected in 1, 2, 1:    # undone, done again, undone again
            self.undo()
            self.assertEqual(self.report()['objects'], expected)
        self.db.close()
        for name in os.listdir(self.directory):
            os.remove(self.path(name))
        storage = self.open()
        first = commit(storage, {0: record('Root'), 1: record('A')})
        deletion = begin(storage)
        storage.deleteObject(oid(1), first, deletion)
        storage.tpc_vote(deletion)
        storage.tpc_finish(deletion)
        report = self.report()
        self.assertEqual((report['objects'], report['records']), (1, 3))
        rows = {row['class']: row for row in report['classes']['listed']}
        self.assertEqual(rows['module.A'], {
            'class': 'module.A', 'objects': 0, 'current': 0, 'records': 2,
            'all': len(record('A'))})


class OtherFilesTests(FiguresCase):
    """Files that are written, packed, damaged, or no Data.fs."""

    def test_what_is_not_finished_is_left_out(self):
        last = self.ends[-2]
        for torn in (changed(self.data, last + 16, b'c'),
                     self.data[:last + 30], self.data[:-1]):
            write(self.path(), torn)
            report = self.report()
            self.assertEqual(
                (report['transactions'], report['end']), (2, last))
            self.assertIn(
                f'{len(torn) - last:,} bytes at the end', self.words())

    def test_packed_or_removed_meanwhile(self):
        real = commandline.look_into

        def look_into(*args):
            change()
            return real(*args)

        def pack():
            write(self.path('packed'), b'FS30')
            os.replace(self.path('packed'), self.path())

        with mock.patch.object(commandline, 'look_into', look_into):
            for change in pack, lambda: os.remove(self.path()):
                write(self.path(), self.data)
                report = self.report()
                self.assertTrue(report['replaced'])
                self.assertEqual(report['size'], len(self.data))
            write(self.path(), self.data)
            change = pack
            self.assertIn('the figures of the file before', self.words())

    def test_what_comes_before_damage_is_shown(self):
        data, second = sealed(self.data), positions(sealed(self.data))[1]
        write(self.path(), changed(data, second + 150, b'\xee'))
        report = self.report(status=1)
        self.assertEqual(report['damage'], {
            'position': second,
            'tid': tid('2020-01-31 23:59:59').hex(),
            'reason': 'it does not fit the checksum in its seal'})
        self.assertEqual((report['transactions'], report['end']), (1, second))
        status, out, _ = self.run_info()
        self.assertEqual(status, 1)
        for expected in (
                f'DAMAGED at {second}, tid', 'fsync-check', 'module.Page'):
            self.assertIn(expected, out)
        write(self.path(), b'GIF8' + self.data[4:])
        self.assertEqual(self.report(status=1)['damage']['position'], 0)

    def test_files_that_are_none(self):
        self.assert_cannot_run('No such file', path=self.path('nothing'))
        self.assert_cannot_run('is a directory', path=self.directory)
        for content in b'', b'FS21' + bytes(100), b'GIF8' + bytes(1000):
            write(self.path('other'), content)
            self.assert_cannot_run(self.path('other'), path=self.path('other'))
        with mock.patch.object(
                os, 'pread', side_effect=OSError(5, 'Input/output error')):
            self.assert_cannot_run(f'{self.path()}: Input/output error')

    def test_options_that_are_wrong(self):
        tomorrow = datetime.now(timezone.utc) + timedelta(days=1)
        for reason, option, *values in (
                ('a number from 1', '--top', '-1', '0', '1001', '9' * 10_000,
                 '0001099999', 'many'),
                ('in the future', '--since', f'{tomorrow:%Y-%m-%d}'),
                ('is no time', '--since', 'yesterday', 'a\x1b[2J\nb'),
                ('before 1900', '--since', '1899-12-31',
                 '999999999 weeks')):
            for value in values:
                with self.subTest(option, value=value):
                    self.assert_cannot_run(reason, option, value)


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
        for _ in range(300):
            moment = datetime.fromtimestamp(
                other.randrange(1 << 32), timezone.utc)
            self.assertEqual(
                moments.name(moments.tid_of(moment)),
                f'{moment:%Y-%m-%d %H:%M:%S}')
