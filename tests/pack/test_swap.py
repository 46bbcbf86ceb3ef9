"""The swap at the end of a pack: what it keeps, what a crash in it leaves,
and file systems without hard links."""

import errno
import os
import shutil
import tempfile
import threading
import time
from unittest import mock

from zc.lockfile import LockError
from zc.lockfile import LockFile
from ZODB.FileStorage import FileStorage
from ZODB.FileStorage.format import CorruptedError
from ZODB.utils import z64

from fsyncstorage import datafile
from fsyncstorage.commit import blobs
from fsyncstorage.pack import packedblobs
from fsyncstorage.pack import plan
from fsyncstorage.storage.recovery import DamagedFile

from ..support import PATIENCE
from ..support import TestCase
from ..support import Thread
from ..support import begin
from ..support import commit
from ..support import oid

# What file systems without hard links say, and those that have their limits.
NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS,
            errno.EMLINK, errno.EXDEV)


class SwapTestCase(TestCase):

    def content(self, name='Data.fs'):
        with open(self.path(name), 'rb') as file:
            return file.read()

    def names(self):
        return set(os.listdir(self.directory))

    def packable(self, **options):
        """A storage in which a pack frees an object and a blob."""
        storage = self.open(blob_dir=self.path('blobs'), **options)
        self.revise(storage)
        return storage

    def revise(self, storage):
        """The object 0 and the blob 1 get a new revision."""
        for revision in b'one', b'two':
            tid = storage.getTid(oid(0)) if oid(0) in storage._index else None
            commit(storage, {0: revision * 100}, {0: tid} if tid else {})
            self.replace_blob(storage, revision)

    def replace_blob(self, storage, content):
        transaction = begin(storage)
        self.store_blob(
            storage, transaction, 1, content,
            storage.getTid(oid(1)) if oid(1) in storage._index else z64,
            b'cZODB.blob\nBlob\n.')
        storage.tpc_vote(transaction)
        return storage.tpc_finish(transaction)

    def pack(self, storage):
        storage.pack(time.time() + 1, lambda data: [], gc=False)

    def remove_all(self):
        for name in self.names():
            path = self.path(name)
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path)
            else:
                os.remove(path)

    def check(self, storage):
        """It shows the last revisions, and can commit."""
        self.assertEqual(storage.load(oid(0))[0], b'two' * 100)
        path = storage.loadBlob(oid(1), storage.getTid(oid(1)))
        with open(path, 'rb') as file:
            self.assertEqual(file.read(), b'two')
        commit(storage, {9: b'x'}, {9: storage.getTid(oid(9))}
               if oid(9) in storage._index else {})

    def blobs_below(self, name):
        return sorted(file for _, _, files in os.walk(self.path(name))
                      for file in files if file.endswith('.blob'))

    def no_links(self, number=errno.EPERM):
        """The disk has no hard links."""
        return mock.patch.object(
            datafile.disk, 'link',
            side_effect=OSError(number, os.strerror(number)))


class WhatAPackKeeps(SwapTestCase):

    def test_damage_costs_neither_the_old_file_nor_the_old_blobs(self):
        storage = self.packable()
        self.pack(storage)
        self.revise(storage)
        old, blobs = self.content('Data.fs.old'), self.blobs_below('blobs.old')
        self.assertEqual(len(blobs), 2)
        position = self.content().rindex(b'one')
        with open(self.path(), 'r+b') as file:
            file.seek(position)
            file.write(b'ONE')
        before = self.content()
        with self.assertRaisesRegex(CorruptedError, 'nothing was changed'):
            self.pack(storage)
        self.assertEqual(self.content(), before)
        self.assertEqual(self.content('Data.fs.old'), old)
        self.assertEqual(self.blobs_below('blobs.old'), blobs)

    def test_a_pack_that_frees_nothing_costs_nothing(self):
        storage = self.packable()
        self.pack(storage)
        old, blobs = self.content('Data.fs.old'), self.blobs_below('blobs.old')
        self.pack(storage)
        self.assertEqual(self.content('Data.fs.old'), old)
        self.assertEqual(self.blobs_below('blobs.old'), blobs)
        self.assertFalse(os.path.exists(self.path('blobs/.removed')))

    def test_the_next_one_takes_their_place(self):
        storage = self.packable()
        self.pack(storage)
        self.revise(storage)
        before = self.content()
        self.pack(storage)
        self.assertEqual(self.content('Data.fs.old'), before)
        self.assertEqual(len(self.blobs_below('blobs.old')), 3)
        self.assertEqual(len(self.blobs_below('blobs')), 1)
        self.check(storage)

    def test_not_to_keep_them_removes_those_that_are_there(self):
        storage = self.packable()
        self.pack(storage)
        storage.close()
        storage = self.packable(pack_keep_old=False)
        self.pack(storage)
        self.assertEqual(
            self.names(), {'Data.fs', 'Data.fs.index', 'Data.fs.lock',
                           'blobs'})
        self.assertEqual(len(self.blobs_below('blobs')), 1)
        self.check(storage)

    def test_what_is_in_the_way_is_noticed_at_the_beginning(self):
        storage = self.packable()
        before = self.content()
        os.mkdir(self.path('Data.fs.old'))
        with self.assertRaisesRegex(OSError, 'Data.fs.old is a directory'):
            self.pack(storage)
        os.rmdir(self.path('Data.fs.old'))
        os.symlink(self.path('blobs'), self.path('blobs.old'))
        with self.assertRaisesRegex(OSError, 'blobs.old is no directory'):
            self.pack(storage)
        self.assertEqual(self.content(), before)
        os.remove(self.path('blobs.old'))
        self.pack(storage)
        self.check(storage)

    def test_of_a_symbolic_link_the_link_is_kept(self):
        """As with FileStorage: the new file is where the link was."""
        self.packable().close()
        os.mkdir(self.path('elsewhere'))
        shutil.move(self.path(), self.path('elsewhere'))
        os.symlink('elsewhere/Data.fs', self.path())
        before = self.content()
        storage = self.open(blob_dir=self.path('blobs'))
        self.pack(storage)
        self.assertFalse(os.path.islink(self.path()))
        self.assertTrue(os.path.islink(self.path('Data.fs.old')))
        self.assertEqual(self.content('Data.fs.old'), before)
        self.check(storage)


class NothingIsEmptied(SwapTestCase):
    """No file that is made empties another that has its name."""

    def test_by_a_pack(self):
        for suffix in '.pack', '.pack.index', '.index.index_tmp':
            for make in os.link, os.symlink:
                with self.subTest(suffix, make=make):
                    storage = self.packable()
                    precious = self.path('precious')
                    make(self.path(), self.path('Data.fs' + suffix))
                    os.link(self.path(), precious)
                    before = self.content()
                    storage.journal.checkpoints.write()
                    self.pack(storage)
                    self.assertEqual(self.content('precious'), before)
                    self.check(storage)
                    storage.close()
                    self.check(self.packable())
                    self.remove_all()

    def test_by_a_torn_tail_that_is_kept(self):
        self.packable().close()
        with open(self.path(), 'ab') as file:
            file.write(b'torn')
        os.symlink(self.path('nowhere'), self.path('Data.fs.tr0'))
        with self.assertLogs('fsyncstorage', 'WARNING'):
            self.check(self.open(blob_dir=self.path('blobs')))
        self.assertEqual(self.content('Data.fs.tr1'), b'torn')
        self.assertFalse(os.path.exists(self.path('nowhere')))

    def test_by_what_is_not_ours(self):
        """Stock opens Data.fs.tmp with truncation, zc.lockfile writes into
        its file."""
        self.packable().close()
        before = self.content()
        for suffix in '.tmp', '.lock':
            for make in os.link, os.symlink:
                with self.subTest(suffix, make=make):
                    name = self.path('Data.fs' + suffix)
                    if os.path.lexists(name):
                        os.remove(name)
                    make(self.path(), name)
                    with self.assertRaisesRegex(
                            DamagedFile, 'another name of'):
                        self.open(blob_dir=self.path('blobs'))
                    self.assertEqual(self.content(), before)
                    os.remove(name)
        self.check(self.open(blob_dir=self.path('blobs')))


class Halves(SwapTestCase):
    """Where a rename is not atomic, a power cut can leave half of it."""

    def interrupted(self, **options):
        """What is there when the power goes before the new file has its name.
        """
        storage = self.packable(**options)
        real, after = datafile.disk.replace, self.path('after')

        def replace(source, target):
            if source == self.path('Data.fs.pack'):
                shutil.copytree(self.directory, after)
            real(source, target)

        with mock.patch.object(datafile.disk, 'replace', replace):
            self.pack(storage)
        storage.close()
        with tempfile.TemporaryDirectory() as other:
            os.rename(after, other)
            self.remove_all()
            shutil.copytree(other, self.directory, dirs_exist_ok=True)

    def reopened(self):
        return self.open(blob_dir=self.path('blobs'))

    def test_both_names_of_which_the_file_system_knows_one(self):
        """To remove one would lose the file."""
        self.interrupted()
        os.remove(self.path('Data.fs.pack'))
        os.link(self.path(), self.path('Data.fs.pack'))
        real = os.stat

        def stat(path, *args, **kw):
            result = real(path, *args, **kw)
            if result.st_nlink == 2:
                result = os.stat_result(
                    (*result[:3], 1, *result[4:]))
            return result

        with mock.patch('fsyncstorage.storage.leftovers.os.stat', stat):
            with self.assertRaisesRegex(DamagedFile, 'check the file system'):
                self.reopened()
        self.assertIn('Data.fs.pack', self.names())
        self.check(self.reopened())

    def test_the_old_name_is_gone(self):
        """Its second name is there, and is said."""
        for keep_old in True, False:
            with self.subTest(keep_old=keep_old):
                self.interrupted(pack_keep_old=keep_old)
                os.remove(self.path())
                before = {name: self.content(name) for name in self.names()
                          if os.path.isfile(self.path(name))}
                with self.assertRaisesRegex(
                        DamagedFile, 'rename .*Data.fs.old to .*Data.fs'):
                    self.reopened()
                for name, content in before.items():
                    self.assertEqual(self.content(name), content)
                os.rename(self.path('Data.fs.old'), self.path())
                storage = self.reopened()
                self.check(storage)
                storage.close()
                self.remove_all()

    def test_what_an_earlier_pack_kept_is_not_the_last_state(self):
        """A pack that was killed while it copied leaves it, too."""
        storage = self.packable()
        self.pack(storage)
        self.revise(storage)
        storage.close()
        with open(self.path('Data.fs.pack'), 'wb') as file:
            file.write(b'begun')
        os.rename(self.path(), self.path('away'))
        with self.assertRaisesRegex(
                DamagedFile, 'older than the last commit, an earlier'
                ' pack has kept it'):
            self.reopened()


class BlobsLeft(Halves):
    """By a crash before the blobs that go were taken away."""

    def reopened_after(self, interrupt, **options):
        interrupt(**options)
        storage = self.open(blob_dir=self.path('blobs'), **options)
        self.check(storage)
        self.assertFalse(os.path.exists(self.path('blobs/.removed')))
        return storage

    def interrupted_behind_the_swap(self, **options):
        with mock.patch.object(packedblobs, 'take_away'):
            storage = self.packable(**options)
            self.pack(storage)
            storage.close()

    def test_the_next_start_takes_them_away(self):
        for keep_old in True, False:
            with self.subTest(keep_old=keep_old):
                with self.assertLogs('fsyncstorage', 'WARNING') as logs:
                    storage = self.reopened_after(
                        self.interrupted_behind_the_swap,
                        pack_keep_old=keep_old)
                self.assertIn('are taken away now', logs.output[0])
                self.assertEqual(len(self.blobs_below('blobs')), 1)
                self.assertEqual(
                    len(self.blobs_below('blobs.old')), 2 * keep_old)
                storage.close()
                self.remove_all()

    def test_a_pack_that_cannot_take_them_away(self):
        """It has succeeded; the next start tries it again."""
        remove = datafile.disk.remove

        def failing(path):
            if path.endswith('.blob'):
                raise OSError(errno.EACCES, os.strerror(errno.EACCES))
            remove(path)

        def interrupted(**options):
            storage = self.packable(**options)
            with mock.patch.object(datafile.disk, 'remove', failing), \
                    self.assertLogs('fsyncstorage', 'ERROR') as logs:
                self.pack(storage)
            self.assertIn('could not be taken away', logs.output[0])
            self.assertEqual(len(self.blobs_below('blobs')), 2)
            storage.close()

        self.reopened_after(interrupted, pack_keep_old=False)
        self.assertEqual(len(self.blobs_below('blobs')), 1)

    def test_those_of_a_pack_that_has_not_made_the_file_stay(self):
        storage = self.reopened_after(self.interrupted)
        self.assertEqual(len(self.blobs_below('blobs')), 2)
        storage.close()


class Leftovers(SwapTestCase):

    OURS = ('blobs/.removed', 'Data.fs.pack', 'Data.fs.pack.index',
            'Data.fs.index.index_tmp', 'Data.fs.tmp',
            f'blobs/tmp/{blobs.UPLOAD}1',
            f'blobs/tmp/{blobs.UPLOAD}1.given')
    OF_OTHERS = ('blobs/tmp/BUCx', 'blobs/tmp/tmpx', 'Data.fs.tr0',
                 'Data.fs.pack2', 'Data.fs.old', 'blobs/0x00/x.tmp')

    def leave(self):
        self.packable().close()
        for name in self.OURS + self.OF_OTHERS:
            with open(self.path(name), 'wb') as file:
                file.write(b'x')

    def there(self, names):
        return [name for name in names if os.path.exists(self.path(name))]

    def test_are_removed_at_the_next_start(self):
        self.leave()
        with self.assertLogs('fsyncstorage', 'INFO') as logs:
            self.check(self.open(blob_dir=self.path('blobs')))
        for name in self.OURS:
            if not name.startswith('blobs/.'):
                self.assertIn(
                    f'removed {self.path(name)}, which was left behind',
                    ' '.join(logs.output))
        self.assertEqual(self.there(self.OURS), [])
        self.assertEqual(self.there(self.OF_OTHERS), list(self.OF_OTHERS))

    def test_only_by_whoever_may_write(self):
        self.leave()
        self.open(blob_dir=self.path('blobs'), read_only=True)
        lock = LockFile(self.path('Data.fs.lock'))
        with self.assertRaises(LockError):
            self.open(blob_dir=self.path('blobs'))
        self.assertEqual(self.there(self.OURS), list(self.OURS))
        lock.close()

    def test_stay_where_the_file_is_refused(self):
        self.leave()
        with open(self.path(), 'r+b') as file:
            file.seek(30)
            file.write(b'damage')
        os.remove(self.path('Data.fs.index'))
        with self.assertRaises(DamagedFile):
            self.open(blob_dir=self.path('blobs'))
        self.assertEqual(self.there(self.OURS), list(self.OURS))

    def test_what_is_later_than_the_file_stays(self):
        """Here, stock began an empty file where a power cut had left nothing
        but the packed one."""
        storage = self.packable(pack_keep_old=False)
        self.pack(storage)
        storage.close()
        os.rename(self.path(), self.path('Data.fs.pack'))
        FileStorage(self.path()).close()
        with self.assertLogs('fsyncstorage', 'WARNING') as logs:
            self.open(blob_dir=self.path('blobs')).close()
        self.assertIn('is left: its last transaction', logs.output[0])
        os.rename(self.path('Data.fs.pack'), self.path())
        self.check(self.open(blob_dir=self.path('blobs')))


class ClosedInAPack(SwapTestCase):
    """The file is open again, and packed, while the first pack goes on."""

    def test_it_takes_no_name_from_the_next_pack(self):
        """Else that one would put a part of a file in the place of Data.fs."""
        first = self.packable()
        begun, go_on = threading.Event(), threading.Event()
        survey = plan.survey

        def survey_and_wait(*args):
            found = survey(*args)
            if not begun.is_set():
                begun.set()
                go_on.wait(PATIENCE)
            return found

        real = datafile.disk.replace
        thread = None

        def replace(source, target):
            if source == self.path('Data.fs.pack.index'):
                go_on.set()
                with self.assertRaisesRegex(ValueError, 'closed'):
                    thread.result()
            real(source, target)

        with mock.patch.object(plan, 'survey', survey_and_wait):
            thread = Thread(self.pack, first)
            self.assertTrue(begun.wait(PATIENCE))
            first.close()
            second = self.open(blob_dir=self.path('blobs'))
            with mock.patch.object(datafile.disk, 'replace', replace):
                self.pack(second)
        self.check(second)


class NoHardLinks(SwapTestCase):

    def test_the_old_file_cannot_be_kept(self):
        """This is said at the beginning, and what to do."""
        for number in NO_LINKS:
            with self.subTest(errno.errorcode[number]):
                storage = self.packable()
                before = self.content()
                with self.no_links(number), self.assertRaisesRegex(
                        OSError, 'set pack-keep-old to false'):
                    self.pack(storage)
                self.assertEqual(self.content(), before)
                self.assertNotIn('Data.fs.pack', self.names())
                storage.pack_keep_old = False
                with self.no_links(number):
                    self.pack(storage)
                self.assertLess(len(self.content()), len(before))
                self.assertNotIn('Data.fs.old', self.names())
                self.check(storage)
                storage.close()
                self.check(self.open(blob_dir=self.path('blobs')))
                self.remove_all()

    def test_another_error_is_an_error(self):
        storage = self.packable()
        before = self.content()
        with self.no_links(errno.ENOSPC):
            with self.assertRaisesRegex(OSError, 'No space left'):
                self.pack(storage)
        self.assertEqual(self.content(), before)
        self.check(storage)

    def test_a_rename_that_fails(self):
        """Nothing is lost, and commits go on."""
        storage = self.packable()
        before = self.content()
        replace = datafile.disk.replace

        def failing(source, target):
            if source.endswith('.pack'):
                raise OSError(errno.EIO, 'Input/output error')
            replace(source, target)

        with mock.patch.object(datafile.disk, 'replace', failing):
            with self.assertRaisesRegex(OSError, 'Input/output error'):
                self.pack(storage)
        self.assertEqual(self.content(), before)
        self.assertEqual(
            self.names() & {'Data.fs.pack', 'Data.fs.old'}, set())
        self.check(storage)
        storage.close()
        self.check(self.open(blob_dir=self.path('blobs')))

    def test_blobs_of_a_file_system_of_their_own(self):
        """blobs.old is on another one: they are copied there."""
        storage = self.packable()

        def elsewhere(name):
            real = getattr(datafile.disk, name)

            def call(source, target):
                if target.startswith(self.path('blobs.old')):
                    raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
                real(source, target)

            return mock.patch.object(datafile.disk, name, call)

        with elsewhere('link'), elsewhere('replace'), \
                self.assertLogs('fsyncstorage', 'WARNING') as logs:
            self.pack(storage)
        self.assertIn('the others are in', logs.output[0])
        self.assertEqual(len(self.blobs_below('blobs.old')), 1)
        self.assertEqual(len(self.blobs_below('blobs')), 1)
        self.check(storage)
