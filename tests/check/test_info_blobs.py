"""`fsync-info --blobs`: the files of a blob directory, whatever is in it."""

import contextlib
import os
import shutil
from unittest import mock

import transaction
import ZODB
from ZODB.blob import Blob
from ZODB.blob import FilesystemHelper
from ZODB.tests.MinPO import MinPO

from fsyncstorage.check.info import moments

from ..format.sealing import write
from ..support import oid
from .infocase import InfoCase
from .test_check import encrypt

NOTHING = {'files': 0, 'bytes': 0}


class BlobCase(InfoCase):
    """An object refers to a blob, which was written twice."""

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

    def files(self, helper=None):
        """Of the oldest blob first."""
        return sorted(
            os.path.join(path, name)
            for _, path in (helper or self.helper).listOIDs()
            for name in os.listdir(path))

    def stray(self, last, key=1000):
        path = self.helper.getBlobFilename(oid(key), last)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        write(path, b'stray')
        return path

    def blob_report(self, *options, status=0):
        return self.report(
            '--blobs', self.blobs, *options, status=status)['blobs']

    def words(self):
        return super().words('--blobs', self.blobs)

    def assert_files(self, report, now, old, orphans):
        self.assertEqual(
            [report[kind]['files'] for kind in ('now', 'old', 'orphans')],
            [now, old, orphans])


class RecordTests(BlobCase):

    def test_all(self):
        self.assertEqual(self.blob_report(), {
            'now': {'files': 1, 'bytes': 6}, 'old': {'files': 1, 'bytes': 3},
            'orphans': NOTHING, 'others': NOTHING, 'without_file': 0,
            'some_belong': True, 'packed': False,
            'unread': {'count': 0, 'listed': []},
            'orphans_listed': []})

    def test_orphans_and_other_files(self):
        last = self.db.lastTransaction()
        orphan = self.stray(last)
        under_way = self.stray(b'\x7f' * 8)
        write(orphan + '.tmp', b'12')
        write(orphan[:-8] + 'z.blob', b'3')
        write(os.path.join(self.blobs, 'tmp', 'UPLOAD-1'), b'456')
        report = self.blob_report()
        self.assertEqual(report['orphans'], {'files': 1, 'bytes': 5})
        self.assertEqual(report['orphans_listed'], [
            {'oid': oid(1000).hex(), 'tid': last.hex(), 'bytes': 5,
             'file': orphan}])
        self.assertEqual(report['others'], {'files': 4, 'bytes': 5 + 6})
        self.assertTrue(os.path.exists(under_way))
        self.assertIn(f'orphan: {orphan}', self.words())

    def test_the_current_file_is_missing(self):
        """An older one does not take its place."""
        first, current = self.files()
        os.remove(current)
        report = self.blob_report()
        self.assert_files(report, 0, 1, 0)
        self.assertEqual(report['without_file'], 1)

    def test_a_blob_whose_creation_was_undone(self):
        with self.db.transaction() as connection:
            connection.root()['more'] = Blob(b'123')
        self.db.undo(self.db.undoLog(0, 1)[0]['id'])
        transaction.commit()
        report = self.blob_report()
        self.assertEqual(report['without_file'], 0)
        self.assertEqual(report['now'], {'files': 1, 'bytes': 6})
        self.assertEqual(report['old'], {'files': 2, 'bytes': 6})

    def test_since(self):
        tids = [each.tid for each in self.db.storage.iterator()]
        for first, now, old in (
                (tids[1], {'files': 1, 'bytes': 6}, {'files': 1, 'bytes': 3}),
                (tids[2], {'files': 1, 'bytes': 6}, NOTHING),
                (tids[3], NOTHING, NOTHING)):
            with mock.patch.object(moments, 'tid_of', lambda _: first):
                report = self.blob_report('--since', '2020-01-01')
            self.assertEqual((report['now'], report['old']), (now, old))
            self.assertEqual(report['orphans'], NOTHING)


class UnsureTests(BlobCase):
    """What is not known is not said."""

    def setUp(self):
        super().setUp()
        self.undone = self.db.lastTransaction()
        self.db.close()

    def test_encrypted(self):
        encrypt(self.path())
        self.assert_files(self.blob_report(), 1, 1, 0)
        words = self.words()
        for untrue in 'pack removes', 'no file', 'orphan:':
            self.assertNotIn(untrue, words)
        orphans = [self.stray(self.undone, key) for key in (2, 1000)]
        self.assertEqual(
            {each['file'] for each in self.blob_report()['orphans_listed']},
            set(orphans))
        shutil.rmtree(os.path.dirname(self.files()[0]))
        self.assertEqual(self.blob_report()['without_file'], 0)


class DirectoryTests(BlobCase):
    """What `--blobs` names may be anything."""

    def test_a_pack_is_about_to_remove_files(self):
        self.stray(self.db.lastTransaction())
        removed = os.path.join(self.blobs, '.removed')
        write(removed, b'')
        self.assertIn('A pack is under way, or was killed', self.words())
        report = self.blob_report()
        self.assert_files(report, 1, 1, 1)
        self.assertEqual(report['orphans_listed'], [])
        self.assertTrue(report['packed'])
        os.remove(removed)
        self.assertFalse(self.blob_report()['packed'])

    def other_database(self):
        with contextlib.closing(ZODB.DB(self.open(
                'other.fs', blob_dir=self.path('other')))) as db:
            with db.transaction() as connection:
                connection.root()['blob'] = Blob(b'other')
                connection.root()['more'] = Blob(b'more')

    def test_of_another_database(self):
        self.other_database()
        with self.db.transaction() as connection:
            connection.root()['last'] = 1   # later than its blobs
        self.blobs = self.path('other')
        report = self.blob_report()
        self.assertEqual(report['orphans']['files'], 2)
        self.assertEqual(report['orphans_listed'], [])
        self.assertFalse(report['some_belong'])
        self.assertIn('No file belongs to a record', self.words())

    def test_directories_that_are_none(self):
        for path in self.path(), self.path('nothing'), '':
            self.assert_cannot_run('is no directory', '--blobs', path)

    def test_markers_that_are_none(self):
        marker = os.path.join(self.blobs, '.layout')
        for content in b'strange', b'\xff\0\x1b' * 1000:
            write(marker, content)
            self.assert_cannot_run('unknown layout', '--blobs', self.blobs)
        os.remove(marker)
        os.mkfifo(marker)
        self.assert_cannot_run(
            f'{marker} is no regular file', '--blobs', self.blobs)

    def assert_unread(self, path, reason):
        report = self.blob_report(status=1)
        self.assertEqual(report['unread'], {
            'count': 1, 'listed': [{'file': path, 'reason': reason}]})
        self.assertIn(f'could not be read: {path}: {reason}', self.words())
        return report

    def refusing(self, function, refused, error):
        real = getattr(os, function)

        def refuse(path, *args, **options):
            if path == refused:
                raise OSError(*error, path)
            return real(path, *args, **options)

        return mock.patch.object(os, function, refuse)

    PERMISSION = 13, 'Permission denied'
    VANISHED = 2, 'No such file or directory'

    def test_what_cannot_be_read(self):
        path = self.files()[0]
        directory = os.path.dirname(path)
        for function, refused, files in (
                ('scandir', directory, (0, 0, 0)), ('stat', path, (1, 0, 0))):
            with self.refusing(function, refused, self.PERMISSION):
                self.assert_files(self.assert_unread(
                    refused, 'Permission denied'), *files)
        circle = os.path.join(directory, '0x12.blob')
        for link, target, reason in (
                (circle, circle, 'Too many levels of symbolic links'),
                (os.path.join(self.blobs, 'link'), self.blobs,
                 'it is a symbolic link')):
            os.symlink(target, link)
            self.assert_files(self.assert_unread(link, reason), 1, 1, 0)
            os.remove(link)

    def test_what_vanishes(self):
        """A pack removes files and directories."""
        path = self.files()[0]
        for function, vanished in (
                ('stat', path), ('scandir', os.path.dirname(path))):
            with self.refusing(function, vanished, self.VANISHED):
                self.assertEqual(self.blob_report()['unread']['count'], 0)
        with self.refusing('scandir', self.helper.base_dir, self.VANISHED):
            self.assert_cannot_run('No such file', '--blobs', self.blobs)
