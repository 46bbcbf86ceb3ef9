"""`fsync-info`: figures that are right to the byte, paths that lead there."""

import contextlib
import io
import os
from unittest import mock

import transaction
import ZODB
from ZODB.blob import Blob
from ZODB.blob import FilesystemHelper
from ZODB.tests.MinPO import MinPO
from ZODB.utils import z64

from fsyncstorage.check.info import blobfiles
from fsyncstorage.check.info import commandline
from fsyncstorage.check.info import moments
from fsyncstorage.check.info import survey
from fsyncstorage.format import scan

from ..format.sealing import read
from ..format.sealing import write
from ..support import oid
from .infocase import FiguresCase
from .infocase import InfoCase


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
