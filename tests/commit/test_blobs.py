"""I11: a blob is durable before its transaction counts."""

import errno
import os
import pickle
import shutil
import threading
import zlib
from unittest import mock

from ZODB.blob import Blob
from ZODB.POSException import StorageTransactionError
from ZODB.POSException import UndoError
from ZODB.POSException import Unsupported

from fsyncstorage import datafile
from fsyncstorage.commit import blobs

from ..format.sealing import read
from ..format.sealing import write
from ..support import TestCase
from ..support import Thread
from ..support import begin
from ..support import commit
from ..support import oid
from ..support import until


class Blobs(TestCase):

    def setUp(self):
        super().setUp()
        self.disk = self.controlled_disk()

    def opened(self, policy):
        self.storage = self.open(
            policy, durability=policy, sync_interval='1h',
            blob_dir=self.path(policy + '-blobs'))
        self.addCleanup(self.disk.release_syncs)
        return self.storage

    def store(self, number, content=b'content', oldserial=b'\0' * 8):
        transaction = begin(self.storage)
        self.store_in(transaction, number, content, oldserial)
        return transaction

    def store_in(self, transaction, number, content=b'content',
                 oldserial=b'\0' * 8):
        self.store_blob(self.storage, transaction, number, content, oldserial)

    def vote(self, *args):
        transaction = self.store(*args)
        self.storage.tpc_vote(transaction)
        return transaction

    def test_an_undo_after_the_vote_leaves_its_blob(self):
        """It is refused before it puts another in the place of it."""
        storage = self.opened('group-commit')
        record, serial = pickle.dumps(Blob, 3), b'\0' * 8
        for content in b'one', b'two', b'three':
            transaction = begin(storage)
            self.store_blob(
                storage, transaction, 1, content, serial, record=record)
            storage.tpc_vote(transaction)
            if content == b'three':
                with self.assertRaises(StorageTransactionError):
                    storage.undo(storage.undoLog(0, 1)[0]['id'], transaction)
            serial = storage.tpc_finish(transaction)
        self.assertEqual(read(storage.loadBlob(oid(1), serial)), b'three')

    def trace(self):
        """What happens to which file, from now on."""
        events = []
        paths = {}
        disk = self.disk

        def traced(name, describe):
            original = getattr(disk, name)

            def call(*args):
                result = original(*args)
                events.append((name, describe(args, result)))
                return result

            setattr(disk, name, call)

        def opened(args, fd):
            paths[fd] = args[0]
            return args[0]

        data = self.storage._file_name
        paths[self.storage._file.fileno()] = data
        traced('open', opened)
        traced('sync', lambda args, _: paths.get(args[0]))
        traced('write', lambda args, _: (paths.get(args[0]), len(args[1])))
        traced('sync_directory', lambda args, _: args[0])
        return events

    def status(self, policy):
        with open(self.path(policy), 'rb') as file:
            file.seek(4 + 16)
            return file.read(1)

    def test_a_directory_within_others(self):
        """Each is made, and its name is durable before there are blobs."""
        made, synced = [], []
        disk = self.disk
        disk.make_directory = lambda path: (
            made.append(path), os.mkdir(path))
        disk.sync_directory = lambda path, *args: synced.append(path)
        self.open(blob_dir=self.path('var/x/blobs'))
        var, x, blobs, *_ = made
        self.assertEqual(
            [var, x, blobs],
            [self.path('var'), self.path('var/x'), self.path('var/x/blobs')])
        self.assertLessEqual({self.directory, var, x, blobs}, set(synced))

    def test_a_directory_that_is_there(self):
        """Whoever made it may not have synced its name."""
        os.makedirs(self.path('var/blobs'))
        synced = []
        self.disk.sync_directory = lambda path, *args: synced.append(path)
        self.open(blob_dir=self.path('var/blobs'))
        self.assertIn(self.path('var'), synced)

    def test_none_syncs_nothing(self):
        storage = self.opened('none')
        transaction = self.vote(1)
        events = self.trace()
        storage.tpc_finish(transaction)
        self.assertEqual([name for name, _ in events], ['write'])

    def check_synced(self, events, blob):
        """The file and its names, and then the data."""
        last = len(events) - events[::-1].index(
            ('sync', self.storage._file_name))
        before = events[:last]
        self.assertIn(('sync', blob), before)
        directory = os.path.dirname(blob)
        while directory != self.directory:
            self.assertIn(('sync_directory', directory), before)
            directory = os.path.dirname(directory)

    def test_none_does_not_mind_what_was_removed(self):
        """A pack removes garbage, also what was changed while it ran."""
        storage = self.opened('none')
        for removed in os.remove, lambda path: shutil.rmtree(
                os.path.dirname(path)):
            tid = storage.tpc_finish(self.vote(1))
            other = storage.tpc_finish(self.vote(2))
            removed(storage.loadBlob(oid(1), tid))
            blob = storage.loadBlob(oid(2), other)
            events = self.trace()
            storage.journal.checkpoints.write()
            self.check_synced(events, blob)
            self.assertIsNone(storage.stats()['writing_stopped'])
            storage.close()
            self.forget()
            storage = self.opened('none')

    def forget(self):
        """Begin anew, untraced."""
        for name in 'open', 'sync', 'write', 'sync_directory':
            delattr(self.disk, name)
        for name in os.listdir(self.directory):
            path = self.path(name)
            (shutil.rmtree if os.path.isdir(path) else os.remove)(path)

    def test_much_is_synced_in_parts(self):
        """So that what is remembered on the way is bounded."""
        self.patch(blobs, AT_ONCE=2)
        storage = self.opened('group-commit')
        transaction = begin(storage)
        for number in range(1, 6):
            self.store_in(transaction, number)
        storage.tpc_vote(transaction)
        events = self.trace()
        tid = storage.tpc_finish(transaction)
        for number in range(1, 6):
            self.assertIn(('sync_directory', os.path.dirname(
                storage.loadBlob(oid(number), tid))), events)

    def test_it_is_not_acknowledged_before(self):
        for policy in 'interval', 'group-commit', 'per-commit', 'two-sync':
            with self.subTest(policy):
                storage = self.opened(policy)
                transaction = self.vote(1)
                self.disk.hold_again()
                thread = Thread(storage.tpc_finish, transaction)
                self.disk.wait_for_sync()
                self.assertEqual(self.status(policy), b'c')
                self.assertTrue(thread.is_alive())
                self.assertEqual(storage.lastTransaction(), b'\0' * 8)
                self.disk.release_syncs()
                self.assertEqual(thread.result(), storage.lastTransaction())
                storage.close()

    def test_who_comes_behind_it_waits_too(self):
        """I8: no acknowledged commit has an unfinished one before it."""
        storage = self.opened('interval')
        transaction = self.vote(1)
        self.disk.hold_syncs()
        blob = Thread(storage.tpc_finish, transaction)
        self.disk.wait_for_sync()
        behind = Thread(commit, storage, {2: b'x'})
        self.assertTrue(behind.is_alive())
        self.disk.release_syncs()
        self.assertLess(blob.result(), behind.result())

    def test_interval_syncs_first_what_has_none(self):
        """An acknowledged commit is not at risk for as long as the blobs of
        another one need."""
        storage = self.opened('interval')
        plain = commit(storage, {2: b'x'})
        transaction = self.vote(1)
        self.disk.hold_syncs()
        blob = Thread(storage.tpc_finish, transaction)
        self.disk.wait_for_sync()       # of the data
        self.disk.let_one_sync_end()
        self.disk.wait_for_sync()       # of the blob
        self.assertEqual(storage.stats()['last_durable'], plain)
        self.disk.release_syncs()
        self.assertLess(plain, blob.result())

    def test_a_vote_that_syncs_its_blobs_holds_up_nobody(self):
        """I11: under `interval`, all that is acknowledged becomes durable
        while the contents of blobs are synced."""
        self.disk = self.controlled_disk()
        storage = self.storage = self.open(
            durability='interval', sync_interval='2ms',
            blob_dir=self.path('blobs'))
        data, sync = storage._file.fileno(), self.disk.sync
        syncing, go_on = threading.Event(), threading.Event()
        self.addCleanup(go_on.set)

        def slow(fd):
            if fd != data:
                syncing.set()
                go_on.wait(30)
            sync(fd)

        self.disk.sync = slow
        voting = Thread(self.vote, 1)
        self.assertTrue(syncing.wait(30))
        tid = commit(storage, {2: b'x'})
        until(lambda: storage.stats()['last_durable'] == tid, 'durable')
        self.assertTrue(voting.is_alive())
        go_on.set()
        storage.tpc_finish(voting.result())

    def test_a_blob_that_cannot_be_synced(self):
        storage = self.opened('group-commit')
        transaction = self.store(1)
        self.disk.fail_sync(OSError(5, 'Input/output error'))
        with self.assertRaisesRegex(OSError, 'Input/output'):
            storage.tpc_vote(transaction)  # and that fails alone
        # I7: a second sync would succeed, and prove nothing.
        syncs = self.disk.syncs
        with self.assertRaisesRegex(StorageTransactionError, 'failed'):
            storage.tpc_vote(transaction)
        self.assertEqual(self.disk.syncs, syncs)
        storage.tpc_abort(transaction)
        transaction = self.vote(1)
        self.disk.fail_sync(OSError(5, 'Input/output error'))
        with self.assertRaisesRegex(Exception, 'opened again'):
            storage.tpc_finish(transaction)
        self.assertEqual(self.status('group-commit'), b'c')
        with self.assertLogs('fsyncstorage', 'ERROR'):
            storage.close()
        self.assertEqual(len(list(self.opened('group-commit').iterator())), 0)

    def test_a_file_of_another_file_system_is_copied(self):
        storage = self.opened('group-commit')
        replace, upload = self.disk.replace, self.path('upload')

        def refuse(source, target):
            if source == upload:
                raise OSError(errno.EXDEV, 'as if', source)
            replace(source, target)

        self.disk.replace = refuse
        tid = storage.tpc_finish(self.vote(1))
        self.assertEqual(read(storage.loadBlob(oid(1), tid)), b'content')
        self.assertFalse(os.path.exists(upload))

    def test_a_name_that_cannot_be_given_takes_the_others_back(self):
        storage = self.opened('group-commit')
        transaction = begin(storage)
        for number in 1, 2, 3:
            self.store_in(transaction, number)
        storage.tpc_vote(transaction)
        replace, named = self.disk.replace, []

        def refuse(source, target):
            if target.endswith('.blob') and len(named) == 2:
                raise OSError(5, 'as if')
            named.append(target)
            replace(source, target)

        self.disk.replace = refuse
        with self.assertRaisesRegex(OSError, 'as if'):
            storage.tpc_finish(transaction)
        self.assertEqual(len(named), 2)
        left = [name for _, _, names in os.walk(storage.blob_dir)
                for name in names if name != '.layout']
        self.assertEqual(left, [])
        del self.disk.replace
        self.assertEqual(len(storage), 0)
        storage.tpc_finish(self.vote(1))

    def test_an_abort_takes_back_its_own_blobs(self):
        for when in self.store, self.vote:
            storage = self.opened('group-commit')
            tid = storage.tpc_finish(self.vote(1))
            transaction = when(2)
            storage.tpc_abort(transaction)
            found = [name for _, _, names in os.walk(
                self.path('group-commit-blobs')) for name in names
                if name.endswith('.blob')]
            self.assertEqual(len(found), 1)
            self.assertTrue(os.path.exists(storage.loadBlob(oid(1), tid)))
            storage.close()
            for name in 'group-commit', 'group-commit.index':
                os.remove(self.path(name))
            os.rename(
                self.path('group-commit-blobs'), self.path(when.__name__))

    def test_a_marker_that_a_power_cut_has_torn(self):
        """It says nothing any more: what is in the directory does."""
        for layout in 'bushy', 'lawn':
            for number, torn in enumerate(
                    (b'', b'\0' * 5, layout[:3].encode())):
                for empty in False, True:
                    name = f'{layout}-{number}-{empty}'
                    with self.subTest(name):
                        self.check_torn_marker(name, layout, torn, empty)

    def check_torn_marker(self, name, layout, torn, empty):
        self.open(name).close()
        directory = self.path(name + '-blobs')
        os.mkdir(directory)
        marker = os.path.join(directory, '.layout')
        with open(marker, 'w') as file:
            file.write(layout)
        self.storage = self.open(name, blob_dir=directory)
        tid = None if empty else self.storage.tpc_finish(self.vote(1))
        self.storage.close()
        write(marker, torn)
        shutil.rmtree(os.path.join(directory, 'tmp'))
        before = sorted(os.walk(directory))
        for read_only in True, False:
            storage = self.open(name, blob_dir=directory,
                                read_only=read_only)
            if tid is not None:
                self.assertTrue(os.path.exists(storage.loadBlob(oid(1), tid)))
            storage.close()
            if read_only:
                self.assertEqual(sorted(os.walk(directory)), before)
        with open(marker) as file:
            self.assertEqual(file.read(), 'bushy' if empty else layout)

    def test_a_directory_that_is_made_anew_during_a_sync(self):
        """A pack removed it: its name is not durable any more."""
        storage = self.opened('none')
        above = os.path.join(storage.blob_dir, '0x00')
        upload = self.path('upload')

        def place(number):
            write(upload, b'content')
            stored = blobs.Stored(
                storage.fshelper, storage._durable_directories)
            stored.take(upload, oid(number))
            return blobs.Placed(
                storage.fshelper, storage._durable_directories,
                stored.name(oid(number)), removable=True)

        synced, again = [], []

        def sync_directory(path, *args):
            datafile.Disk.sync_directory(self.disk, path, *args)
            synced.append(path)
            if path == storage.blob_dir and not again:
                shutil.rmtree(above)
                again.append(place(2))

        with mock.patch.object(self.disk, 'sync_directory', sync_directory):
            place(1).sync()
            del synced[:]
            again[0].sync()
        self.assertIn(storage.blob_dir, synced)

    def test_a_torn_marker_stays_until_there_is_a_whole_one(self):
        """Without any, the next opening would not find the blobs."""
        storage = self.opened('group-commit')
        tid = storage.tpc_finish(self.vote(1))
        directory = storage.blob_dir
        storage.close()
        with open(os.path.join(directory, '.layout'), 'wb'):
            pass

        def refuse(path, flags):
            if os.path.dirname(path) == directory:
                raise OSError(errno.ENOSPC, 'as if', path)
            return datafile.Disk.open(self.disk, path, flags)

        with mock.patch.object(self.disk, 'open', refuse):
            with self.assertRaises(OSError):
                self.opened('group-commit')
        storage = self.opened('group-commit')
        self.assertTrue(os.path.exists(storage.loadBlob(oid(1), tid)))

    def test_a_marker_of_something_else(self):
        os.mkdir(self.path('blobs'))
        with open(self.path('blobs/.layout'), 'w') as file:
            file.write('strange')
        self.open().close()
        for read_only in True, False:
            with self.assertRaisesRegex(ValueError, "says 'strange'"):
                self.open(blob_dir=self.path('blobs'), read_only=read_only)


RECORD = b'\x80\x03cZODB.blob\nBlob\nq\x01.\x80\x03N.'


class WithoutADirectory(TestCase):
    """What a BlobStorage around the storage would bring (see records)."""

    def test_a_blob_is_refused(self):
        storage = self.open()
        for record in RECORD, b'.h' + RECORD.hex().encode(), \
                b'.z' + zlib.compress(RECORD):
            transaction = begin(storage)
            with self.assertRaisesRegex(Unsupported, 'Use the blob-dir'):
                storage.store(oid(1), b'\0' * 8, record, '', transaction)
            with self.assertRaisesRegex(Unsupported, 'Use the blob-dir'):
                storage.storeBlob(oid(1), b'\0' * 8, b'some record', 'path',
                                  '', transaction)
            storage.tpc_abort(transaction)
        commit(storage, {1: b'about ZODB.blob'})

    def test_the_undo_of_a_blob_is_refused(self):
        """Its record is there: of a copy, or of a directory that is not."""
        storage = self.open()
        for record in RECORD, RECORD + b' ':
            transaction = begin(storage)
            storage.restore(oid(1), storage._tid, record, '', None,
                            transaction)
            storage.tpc_vote(transaction)
            storage.tpc_finish(transaction)
        transaction = begin(storage)
        with self.assertRaisesRegex(Unsupported, 'Use the blob-dir'):
            storage.undo(storage.undoLog(0, 1)[0]['id'], transaction)
        storage.tpc_abort(transaction)


class Opening(TestCase):

    def test_a_directory_stays_where_the_data_file_is_new(self):
        os.mkdir(self.path('blobs'))
        with open(self.path('blobs/something'), 'w'):
            pass
        for options, stays in ({}, True), ({'create': True}, False):
            self.open(blob_dir=self.path('blobs'), **options).close()
            self.assertEqual(
                os.path.exists(self.path('blobs/something')), stays)
            os.remove(self.path())
            os.remove(self.path('Data.fs.index'))

    def test_the_copy_of_a_blob_that_fails(self):
        """An undo that fails leaves no file."""
        storage = self.open(blob_dir=self.path('blobs'))
        tids = []
        for number in range(2):
            transaction = begin(storage)
            self.store_blob(
                storage, transaction, 1, record=RECORD,
                serial=tids[-1] if tids else b'\0' * 8)
            storage.tpc_vote(transaction)
            tids.append(storage.tpc_finish(transaction))
        full = mock.patch('shutil.copyfile', side_effect=OSError(28, 'Full'))
        gone = mock.patch.object(
            storage.fshelper, 'getBlobFilename', lambda *key: '/nowhere')
        for failure, error in (full, OSError), (gone, UndoError):
            transaction = begin(storage)
            with failure, self.assertRaises(error):
                storage.undo(storage.undoLog(0, 1)[0]['id'], transaction)
            storage.tpc_abort(transaction)
            self.assertEqual(os.listdir(storage.temporaryDirectory()), [])
