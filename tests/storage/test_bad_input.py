"""What a person or a program may get wrong, and what it is told."""

import os
import pathlib
import time
import unittest
from base64 import encodebytes
from unittest import mock

import zc.lockfile
from ZODB.Connection import TransactionMetaData
from ZODB.FileStorage import FileStorage
from ZODB.FileStorage.FileStorage import FileStorageFormatError
from ZODB.POSException import POSKeyError
from ZODB.POSException import ReadOnlyError
from ZODB.POSException import StorageError
from ZODB.POSException import StorageTransactionError
from ZODB.POSException import UndoError
from ZODB.serialize import referencesf

from fsyncstorage import FsyncStorage
from fsyncstorage.commit import policies
from fsyncstorage.storage import commits
from fsyncstorage.storage import undo

from ..server.serving import record
from ..support import TestCase
from ..support import begin
from ..support import commit
from ..support import oid


class Settings(unittest.TestCase):

    def test_what_is_refused(self):
        for name, values in {
                'durability': ('fsync', None),
                'sync_interval': (
                    0, '0', '0s', -1, '-1s', '2h', 'soon', '', None, '1x'),
                'group_commit_delay': (-1, '2s', 'never', '', None, True),
                'scrub_rate': (
                    0, 1, -1, '0', '2', '63KB', '2MB/s', 'on', '', None, True,
                    1.5e6, '1.5MB', 'off on'),
                'index_checkpoint': (
                    0, '1KB', '-1', 'big', '', '1.5MB', None),
                'pack_rate': (
                    0, '1KB', '-1', 'fast', '', '1.5MB', 'off', 1e6),
                'slow_commit_log': (-1, '2h', 'off', '', None, True),
                'quota': ('', 'none', '5 MB a day', -1),
                **dict.fromkeys((
                    'read_only', 'create', 'pack_gc', 'pack_keep_old',
                    'pack_process', 'checksums', 'local_reads'), ('off',)),
                'local_reads_mode': ('0660', 0o666),
                }.items():
            for wrong in values:
                with self.subTest(name, wrong=wrong):
                    with self.assertRaisesRegex(
                            ValueError, name.replace('_', '-')):
                        FsyncStorage('/nowhere/Data.fs', **{name: wrong})

    def test_right_ones(self):
        for text, seconds in [('200ms', 0.2), ('2s', 2), (' 2 S ', 2),
                              ('1.5ms', 0.0015), (2, 2), (0.25, 0.25),
                              ('1h', 3600), ('10m', 600)]:
            with self.subTest(text):
                self.assertAlmostEqual(policies.sync_interval(text), seconds)
        for text, rate in [('2MB', 2 << 20), (' 64 kb ', 64 << 10),
                           ('1GB', 1 << 30), (100_000, 100_000),
                           ('off', None), ('OFF', None)]:
            with self.subTest(text):
                self.assertEqual(policies.scrub_rate(text), rate)
        self.assertIsNone(policies.group_commit_delay('auto'))
        self.assertEqual(policies.group_commit_delay(0), 0)



class Files(TestCase):

    def nothing_is_left(self, *but):
        left = set(os.listdir(self.directory)) - set(but)
        self.assertEqual(left - {'Data.fs.lock'}, set())
        # The lock is free again.
        zc.lockfile.LockFile(self.path('Data.fs.lock')).close()

    def test_no_data_file(self):
        for content in b'hello world', b'FS2', b'\x1f\x8b\x08' * 50:
            with self.subTest(content):
                with open(self.path(), 'wb') as file:
                    file.write(content)
                with self.assertRaisesRegex(FileStorageFormatError,
                                            'nothing was changed'):
                    self.open()
                with open(self.path(), 'rb') as file:
                    self.assertEqual(file.read(), content)
                self.nothing_is_left('Data.fs')

    def test_a_directory(self):
        os.mkdir(self.path())
        with self.assertRaisesRegex(IsADirectoryError, 'is a directory'):
            self.open()
        self.nothing_is_left('Data.fs')

    def test_what_is_no_file(self):
        os.mkfifo(self.path())
        for path in self.path(), '/dev/null':
            for read_only in True, False:
                with self.assertRaisesRegex(OSError, 'not a regular file'):
                    FsyncStorage(path, read_only=read_only)
        self.nothing_is_left('Data.fs')

    def test_no_such_directory(self):
        """It is named, and not the lock file that would be in it."""
        with self.assertRaisesRegex(
                FileNotFoundError,
                f"No such directory: '{self.path('missing')}'"):
            self.open('missing/Data.fs')

    def test_paths_that_are_objects(self):
        blobs = pathlib.Path(self.path('blobs'))
        for read_only in False, True:
            storage = FsyncStorage(pathlib.Path(self.path()),
                                   blob_dir=blobs, read_only=read_only)
            self.assertEqual(storage.getName(), self.path())
            self.assertEqual(storage.blob_dir, str(blobs))
            storage.close()
        os.remove(self.path())
        with self.assertRaisesRegex(StorageError, 'is missing'):
            FsyncStorage(pathlib.Path(self.path()), blob_dir=blobs)

    def test_reading_a_missing_file(self):
        with self.assertRaisesRegex(FileNotFoundError, 'Data.fs'):
            self.open(read_only=True)
        self.assertEqual(os.listdir(self.directory), [])

    def test_a_link_to_nothing(self):
        """The file is made where it points, as by FileStorage."""
        os.symlink('elsewhere.fs', self.path())
        commit(self.open(), {1: b'x'})
        self.assertTrue(os.path.islink(self.path()))
        self.assertGreater(os.path.getsize(self.path('elsewhere.fs')), 4)

    def test_arguments_that_contradict_each_other(self):
        self.open().close()
        for text, options in (
            ('create a read-only', {'create': True, 'read_only': True}),
            ('time-travel only', {'stop': b'\x7f' * 8}),
        ):
            with self.assertRaisesRegex(ValueError, text):
                self.open(**options)
        self.assertEqual(len(self.open(read_only=True, stop=b'\x7f' * 8)), 0)

    def test_two_storages_on_one_file(self):
        storage = self.open()
        tid = commit(storage, {1: b'x'})
        with self.assertRaisesRegex(
                zc.lockfile.LockError,
                f'open for writing in process {os.getpid()}.*Only one'):
            self.open()
        with self.assertRaises(zc.lockfile.LockError):
            FileStorage(self.path())
        self.assertEqual(storage.load(oid(1)), (b'x', tid))
        commit(storage, {2: b'y'})
        self.assertEqual(
            self.open(read_only=True).load(oid(2))[0], b'y')

    def test_two_names_of_one_file(self):
        """Each has a lock file of its own; so the file is locked, too."""
        storage = self.open()
        commit(storage, {1: b'x'})
        for make in os.link, os.symlink:
            make(self.path(), self.path('other'))
            with self.subTest(make):
                with self.assertRaisesRegex(
                        zc.lockfile.LockError, 'under another name'):
                    self.open('other')
                self.open('other', read_only=True).close()
            os.remove(self.path('other'))
        commit(storage, {2: b'y'})

    def test_two_names_of_a_packed_file(self):
        storage = self.open()
        first = commit(storage, {0: record('x')})
        commit(storage, {0: record('y')}, {0: first})
        before = os.stat(self.path()).st_ino
        storage.pack(time.time() + 1, referencesf)
        self.assertNotEqual(os.stat(self.path()).st_ino, before)
        os.link(self.path(), self.path('other'))
        with self.assertRaises(zc.lockfile.LockError):
            self.open('other')
        self.open('Data.fs.old')    # which nobody writes any more

    def test_a_failure_late_in_opening_leaves_nothing(self):
        disk = self.controlled_disk()
        for name in 'sync', 'sync_directory':
            with self.subTest(name):
                def fail(*args):
                    raise OSError(5, 'Input/output error')
                setattr(disk, name, fail)
                with self.assertRaisesRegex(OSError, 'Input/output'):
                    self.open()
                delattr(disk, name)
                zc.lockfile.LockFile(self.path('Data.fs.lock')).close()
        commit(self.open(), {1: b'x'})


class Calls(TestCase):

    def setUp(self):
        super().setUp()
        self.storage = self.open()
        self.first = commit(self.storage, {1: b'first'})

    def still_works(self):
        self.assertTrue(self.storage._commit_lock.acquire(timeout=30))
        self.storage._commit_lock.release()
        commit(self.storage, {1: b'second'}, {1: self.first})
        self.assertEqual(len(list(self.storage.iterator())), 2)

    def test_oids_of_the_wrong_length(self):
        storage = self.storage
        for wrong in b'', b'1', b'123456789':
            for call in (
                lambda: storage.load(wrong),
                lambda: storage.loadBefore(wrong, b'\x7f' * 8),
                lambda: storage.loadSerial(wrong, self.first),
                lambda: storage.getTid(wrong),
                lambda: storage.history(wrong),
            ):
                with self.assertRaisesRegex(ValueError, 'an oid is 8 bytes'):
                    call()
            transaction = begin(storage)
            for call in (
                lambda: storage.store(wrong, self.first, b'', '', transaction),
                lambda: storage.deleteObject(wrong, self.first, transaction),
                lambda: storage.restore(wrong, self.first, b'', '', None,
                                        transaction),
            ):
                with self.assertRaisesRegex(ValueError, 'an oid is 8 bytes'):
                    call()
            storage.tpc_abort(transaction)
        with self.assertRaises(TypeError):
            storage.load(1)
        self.still_works()

    def test_a_record_without_data(self):
        """It would be read as one that points back, and the file as damaged:
        by the next opening without an index, and by each pack."""
        transaction = begin(self.storage)
        for call in (
            lambda: self.storage.store(
                oid(2), b'\0' * 8, b'', '', transaction),
            lambda: self.storage.restore(
                oid(2), self.storage._tid, b'', '', None, transaction),
        ):
            with self.assertRaisesRegex(StorageError, 'without data'):
                call()
        self.storage.tpc_vote(transaction)
        self.storage.tpc_finish(transaction)
        self.check_what_is_in_the_file(2)

    def test_a_serial_that_is_not_8_bytes(self):
        """The file would have another one than is remembered of the record:
        each later store of the object would conflict."""
        transaction = begin(self.storage)
        for serial in b'short', b'much too long', bytearray(8), None:
            with self.assertRaisesRegex(ValueError, 'a serial is 8 bytes'):
                self.storage.restore(
                    oid(2), serial, b'x', '', None, transaction)
        self.storage.tpc_abort(transaction)
        self.still_works()

    def test_a_creation_that_was_undone_and_a_transaction_with_data(self):
        """The record does not point to these data: it has none."""
        transaction = begin(self.storage)
        self.storage.restore(
            oid(1), self.storage._tid, None, '', self.first, transaction)
        self.storage.tpc_vote(transaction)
        self.storage.tpc_finish(transaction)
        with self.assertRaises(POSKeyError):
            self.storage.load(oid(1))

    def test_an_id_that_no_transaction_has(self):
        """All of the file is not read for it, with the commit lock held."""
        transaction = begin(self.storage)
        with mock.patch.object(undo, '_read', side_effect=AssertionError):
            for wrong in b'', b'AAAA', encodebytes(b'123456789').rstrip():
                with self.assertRaisesRegex(UndoError, 'Invalid'):
                    self.storage.undo(wrong, transaction)
            with self.assertRaisesRegex(ValueError, 'a serial is 8 bytes'):
                self.storage.restore(oid(2), self.storage._tid, b'x', '',
                                     b'short', transaction)
        self.storage.tpc_abort(transaction)
        self.still_works()

    def test_a_record_that_is_not_bytes(self):
        """What is empty would be read as the end of the object; the rest is
        refused before anything of the record is kept."""
        transaction = begin(self.storage)
        for data in '', 'text', [], 5:
            for call in (
                lambda: self.storage.store(
                    oid(2), b'\0' * 8, data, '', transaction),
                lambda: self.storage.restore(
                    oid(2), self.storage._tid, data, '', None, transaction),
            ):
                with self.assertRaisesRegex(TypeError, 'a record is bytes'):
                    call()
        with self.assertRaisesRegex(TypeError, 'a record is bytes'):
            self.storage.store(oid(2), b'\0' * 8, None, '', transaction)
        self.storage.store(oid(3), b'\0' * 8, bytearray(b'x'), '', transaction)
        self.storage.tpc_vote(transaction)
        tid = self.storage.tpc_finish(transaction)
        self.assertEqual(self.storage.load(oid(3)), (b'x', tid))
        self.assertEqual(len(self.storage), 2)
        self.check_what_is_in_the_file(2)

    def test_a_status_that_no_transaction_has(self):
        """At the next opening it would be unfinished, undone or damaged."""
        for status in 'c', 'u', 'x', '', '  ', b'c':
            with self.subTest(status):
                with self.assertRaisesRegex(
                        StorageTransactionError, 'cannot have the status'):
                    self.storage.tpc_begin(
                        TransactionMetaData(), None, status)
        for status in 'p', b'p', b' ':
            transaction = TransactionMetaData()
            self.storage.tpc_begin(transaction, None, status)
            self.storage.tpc_vote(transaction)
            self.storage.tpc_finish(transaction)
        self.check_what_is_in_the_file(4)

    def check_what_is_in_the_file(self, number):
        """An opening that has no index reads so many transactions."""
        self.storage.close()
        os.remove(self.path('Data.fs.index'))
        self.assertEqual(len(list(self.open().iterator())), number)

    def test_finish_without_vote(self):
        transaction = begin(self.storage)
        self.storage.store(oid(2), b'\0' * 8, b'x', '', transaction)
        with self.assertRaisesRegex(StorageTransactionError,
                                    'before tpc_vote'):
            self.storage.tpc_finish(transaction)
        self.storage.tpc_vote(transaction)   # nothing is lost
        self.storage.tpc_finish(transaction)
        self.assertEqual(self.storage.load(oid(2))[0], b'x')

    def test_writing_to_a_read_only_storage(self):
        reader = self.open(read_only=True)
        for call in (
            lambda: begin(reader),
            lambda: reader.new_oid(),
            lambda: reader.pack(2e9, None),
            lambda: reader.store(oid(1), b'', b'', '', None),
        ):
            with self.assertRaises(ReadOnlyError):
                call()


class HighOids(TestCase):
    """Those behind which nothing would be left for new objects."""

    def setUp(self):
        super().setUp()
        self.storage = self.open()
        commit(self.storage, {1: b'x'})

    def test_an_oid_behind_which_there_is_none(self):
        highest = b'\xff' * 8
        transaction = begin(self.storage)
        for call in (
            lambda: self.storage.store(
                highest, b'\0' * 8, b'', '', transaction),
            lambda: self.storage.restore(
                highest, self.storage._tid, b'', '', None, transaction),
        ):
            with self.assertRaisesRegex(StorageError, 'too few new oids'):
                call()
        self.storage.tpc_abort(transaction)
        self.assertEqual(self.storage.new_oid(), oid(2))

    def test_oids_that_are_given_go_on(self):
        transaction = begin(self.storage)
        self.storage.store(
            commits.HIGHEST_OID, b'\0' * 8, b'x', '', transaction)
        self.storage.store(
            self.storage.new_oid(), b'\0' * 8, b'y', '', transaction)
        self.storage.tpc_vote(transaction)
        self.storage.tpc_finish(transaction)
        self.assertEqual(
            self.storage.load(b'\xff' + b'\0' * 7)[0], b'y')
