"""`fsync-info`: figures that are right to the byte, paths that lead there."""

import base64
import contextlib
import io
import json
import os
from unittest import mock

import transaction
import ZODB
from ZODB.blob import FilesystemHelper
from ZODB.tests.MinPO import MinPO
from ZODB.utils import z64

from fsyncstorage.check.info import commandline
from fsyncstorage.check.info import document
from fsyncstorage.check.info import survey
from fsyncstorage.format import scan

from ..format.sealing import read
from ..format.sealing import window_of
from ..support import begin
from ..support import commit
from ..support import oid
from .infocase import ALONE
from .infocase import FOLDER
from .infocase import LARGE
from .infocase import ROOT
from .infocase import SMALL
from .infocase import FiguresCase
from .infocase import InfoCase
from .infocase import record
from .infocase import tid


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
            'others': {'objects': 0, 'current': 0, 'records': 0, 'all': 0},
            'without_name': 0})
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
            'reached': True,
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
        for unreached in (
                [row['oid'] for row in rows if row['path'] is None],
                [row['oid'] for row in rows if row['reached'] is False]):
            self.assertEqual(unreached, [oid(4).hex()])
        self.assertIn(' 0x04  not reached', self.run_info()[1])

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
        for time, expected in (
                ('2020-01-31 23:59:59', 2), ('2020-02-01T00:00', 1),
                ('2020-02-01T00:00:01', 0)):
            self.assertEqual(
                self.report('--since', time)['transactions'], expected)

    def test_words(self):
        status, out, err = self.run_info()
        self.assertEqual((status, err), (0, ''))
        for expected in (
                f'{os.stat(self.path()).st_size:,} bytes', '3 transactions',
                '5 objects, 7 records', 'module.Page',
                'Root(0x00) > Page(0x02)',
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
        FilesystemHelper(self.path('blobs')).getPathForOID(oid(1), create=True)
        terminal = io.StringIO()
        terminal.isatty = lambda: True
        with (contextlib.redirect_stderr(terminal),
              contextlib.redirect_stdout(io.StringIO()),
              mock.patch.dict(os.environ, TERM='xterm')):
            commandline.main([self.path(), '--blobs', self.path('blobs')])
        for words in commandline.STAGES.values():
            self.assertIn(words, terminal.getvalue())

    def test_references_are_read_only_for_what_needs_them(self):
        with mock.patch.object(
                survey.Survey, 'read_references', autospec=True,
                side_effect=survey.Survey.read_references) as reads:
            for by in 'class', 'day':
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

    def test_a_reference_to_an_object_whose_creation_was_undone(self):
        """Nothing is reached through it."""
        storage = self.open('other')
        first = commit(storage, {0: record('Root', 1), 2: record('A')})
        created = commit(storage, {1: record('A', 2)}, {0: first})
        undo = begin(storage)
        storage.undo(base64.encodebytes(created), undo)
        storage.tpc_vote(undo)
        storage.tpc_finish(undo)
        found = json.loads(self.run_info(
            '--json', path=self.path('other'))[1])
        self.assertEqual(found['objects'], 2)
        self.assertEqual(found['unreachable']['objects'], 1)
        self.assertEqual(
            {row['oid'] for row in found['largest'] if row['path'] is None},
            {oid(2).hex()})

    def test_an_object_that_was_deleted(self):
        storage = self.open('other')
        first = commit(storage, {0: record('Root', 1), 1: record('A')})
        deletion = begin(storage)
        storage.deleteObject(oid(1), first, deletion)
        storage.tpc_vote(deletion)
        storage.tpc_finish(deletion)
        found = json.loads(self.run_info(
            '--json', path=self.path('other'))[1])
        self.assertEqual((found['objects'], found['records']), (1, 3))
        rows = {row['class']: row for row in found['classes']['listed']}
        self.assertEqual(rows['module.A'], {
            'class': 'module.A', 'objects': 0, 'current': 0, 'records': 2,
            'all': len(record('A'))})

    def test_bytes_add_up(self):
        for number in range(5):
            with self.db.transaction() as connection:
                connection.root()[number] = MinPO('x' * number)
            self.undo()
        sizes = self.report()['bytes']
        whole = sizes.pop('all')
        self.assertEqual(sum(sizes.values()), whole)
        self.assertEqual(whole + scan.FIRST, os.stat(self.path()).st_size)
        found = [each for transaction in scan.transactions(
            window_of(read(self.path()))) for each in transaction.records]
        self.assertTrue(any(each.back for each in found))
        self.assertEqual(sizes['record_headers'], sum(
            each.end - each.position - each.length for each in found))
