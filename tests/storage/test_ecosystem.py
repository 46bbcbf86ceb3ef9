"""What others know of the inside of a FileStorage, and what a sibling of it
provides."""

import os
import time

import ZODB.FileStorage.fspack
from ZODB.FileStorage import FileStorage
from ZODB.fsIndex import fsIndex
from ZODB.POSException import POSKeyError
from ZODB.POSException import UndoError
from ZODB.POSException import Unsupported
from ZODB.serialize import referencesf
from ZODB.TimeStamp import TimeStamp
from ZODB.utils import p64
from ZODB.utils import u64
from ZODB.utils import z64
from zope.interface import providedBy
from zope.interface.verify import verifyObject

from fsyncstorage import FsyncStorage

from ..support import TestCase
from ..support import begin
from ..support import commit
from ..support import oid


class Interfaces(TestCase):

    def test_they_are_those_of_filestorage(self):
        for blobs in {}, {'blob_dir': self.path('blobs')}:
            ours = self.open('ours.fs', **blobs)
            stock = FileStorage(self.path('stock.fs'), **blobs)
            self.addCleanup(stock.close)
            interfaces = set(providedBy(stock))
            self.assertEqual(set(providedBy(ours)), interfaces)
            for interface in interfaces:
                with self.subTest(interface.__name__):
                    self.assertTrue(verifyObject(interface, ours))
            ours.close(), stock.close()

    def test_everything_public_is_there(self):
        stock = FileStorage(self.path('stock.fs'))
        self.addCleanup(stock.close)
        public = {name for name in dir(stock) if not name.startswith('_')}
        self.assertEqual(public - set(dir(self.open())), set())

    def test_no_filestorage(self):
        self.assertNotIsInstance(self.open(), FileStorage)


class State(TestCase):

    def setUp(self):
        super().setUp()
        self.storage = self.open()

    def test_a_clock_that_was_ahead(self):
        ahead = TimeStamp(*time.gmtime(time.time() + 900)[:6])
        self.storage._ts = ahead
        self.assertGreater(commit(self.storage, {1: b'x'}), ahead.raw())

    def test_the_locks(self):
        """As a packer takes them: the new ones, and those of old."""
        storage = self.storage
        for acquire, release in (
            (storage._commit_lock.acquire, storage._commit_lock.release),
            (storage._lock.acquire, storage._lock.release),
            (storage._commit_lock_acquire, storage._commit_lock_release),
            (storage._lock_acquire, storage._lock_release),
        ):
            acquire()
            release()
        storage._commit_lock_acquire()
        self.assertTrue(storage._commit_lock.locked())
        storage._commit_lock_release()

    def test_the_file(self):
        commit(self.storage, {1: b'x'})
        file = self.storage._file
        self.assertEqual(file.name, self.path())
        self.assertEqual(self.storage._file_name, self.path())
        file.seek(0, 2)
        self.assertEqual(file.tell(), self.storage._pos)
        self.assertEqual(self.storage._pos, self.storage.getSize())
        file.seek(0)
        self.assertEqual(file.read(4), b'FS30')

    def test_the_index(self):
        commit(self.storage, {1: b'x', 7: b'y'})
        self.assertIsInstance(self.storage._index, fsIndex)
        self.assertEqual(list(self.storage._index), [oid(1), oid(7)])
        self.assertEqual(len(self.storage), 2)
        self.assertEqual(self.storage._oid, oid(7))
        self.assertEqual(self.storage.new_oid(), oid(8))
        self.storage.set_max_oid(oid(20))
        self.assertEqual(self.storage._oid, oid(20))


class Pointers(TestCase):

    def setUp(self):
        super().setUp()
        self.storage = self.open()
        self.first = commit(self.storage, {1: b'one', 2: b'two'})
        self.second = commit(self.storage, {1: b'other'}, {1: self.first})

    def test_where_a_record_is(self):
        position = self.storage._lookup_pos(oid(1))
        header = self.storage._read_data_header(position, oid(1))
        self.assertEqual((header.tid, header.plen), (self.second, 5))
        self.assertEqual(self.storage._file.read(5), b'other')
        with self.assertRaises(POSKeyError):
            self.storage._lookup_pos(oid(3))

    def test_where_a_transaction_is(self):
        find = self.storage._txn_find
        self.assertEqual(find(self.first, 0), 4)
        self.assertEqual(
            self.storage._read_txn_header(find(self.second, 0)).tid,
            self.second)
        with self.assertRaisesRegex(UndoError, 'Invalid transaction id'):
            find(p64(7), 0)

    def test_a_storage_that_only_reads(self):
        reader = self.open(read_only=True)
        self.assertEqual(reader._txn_find(self.first, 0), 4)
        self.assertEqual(reader._data_find(4, oid(2), b'two'),
                         reader._lookup_pos(oid(2)))

    def test_behind_a_pack_nothing_is_found_to_undo(self):
        self.storage.pack(time.time() + 1, lambda data: [], gc=False)
        self.assertTrue(self.storage._txn_find(self.second, 0))
        third = commit(self.storage, {3: b'x'})
        self.assertTrue(self.storage._txn_find(third, 1))
        with self.assertRaises(UndoError):
            self.storage._txn_find(self.first, 1)

    def test_the_record_that_has_the_data(self):
        find = self.storage._data_find
        position = self.storage._lookup_pos(oid(2))
        self.assertEqual(find(4, oid(2), b'two'), position)
        self.assertEqual(find(4, oid(2), b'six'), 0)
        self.assertEqual(find(4, oid(2), b'three'), 0)
        self.assertEqual(find(4, oid(9), b'two'), 0)

    def test_what_points_back_is_trusted(self):
        transaction = begin(self.storage)
        self.storage.undo(self.storage.undoLog(0, 1)[0]['id'], transaction)
        self.storage.tpc_vote(transaction)
        position = self.storage._pos
        self.storage.tpc_finish(transaction)
        self.assertEqual(
            self.storage._data_find(position, oid(1), b'anything'),
            self.storage._lookup_pos(oid(1)))


class BlobFiles(TestCase):

    def test_the_hook_of_the_mixin(self):
        """No abort would take its file back."""
        storage = self.open(blob_dir=self.path('blobs'))
        path = os.path.join(storage.temporaryDirectory(), 'upload')
        with open(path, 'wb') as file:
            file.write(b'content')
        with self.assertRaisesRegex(Unsupported, 'storeBlob'):
            storage._blob_storeblob(oid(1), z64, path)
        self.assertTrue(os.path.exists(path))


class Public(TestCase):

    def test_cleanup(self):
        storage = self.open()
        commit(storage, {1: b'x'})
        commit(storage, {1: b'y'}, {1: storage.lastTransaction()})
        storage.pack(time.time() + 1, lambda data: [], gc=False)
        storage.close()
        storage.cleanup()
        self.assertEqual(os.listdir(self.directory), [])



class Packers(TestCase):
    """As ZODB.FileStorage.interfaces says: it leaves a `.pack` file, and has
    the commit lock when it returns."""

    def test_an_external_one(self):
        calls = []

        def packer(storage, referencesf, stop, gc):
            calls.append((storage, stop, gc))
            packer = ZODB.FileStorage.fspack.FileStoragePacker(
                storage, referencesf, stop, gc)
            try:
                end = packer.pack()
                return None if end is None else (end, packer.index)
            finally:
                packer.close()

        storage = self.open(packer=packer, pack_gc=False)
        self.check_a_pack(storage)
        self.assertEqual(
            [(call[0]._file_name, call[2]) for call in calls],
            [(storage._file_name, False)])

    def check_a_pack(self, storage):
        commit(storage, {1: b'one'})
        last = commit(storage, {1: b'two'}, {1: storage.lastTransaction()})
        size = storage.getSize()
        storage.pack(time.time() + 1, referencesf)
        self.assertLess(storage.getSize(), size)
        self.assertFalse(storage._commit_lock.locked())
        self.assertEqual(storage.load(oid(1)), (b'two', last))
        commit(storage, {2: b'x'})
        storage.close()
        self.assertEqual(len(self.open()), 2)


class Iterating(TestCase):

    def test_from_any_tid_to_any(self):
        """As stock, from whichever end it is nearer."""
        storage = self.open()
        tids = [commit(storage, {number: b'x' * number * 50})
                for number in range(1, 12)]
        stock = FileStorage(self.path(), read_only=True)
        self.addCleanup(stock.close)
        near = [p64(u64(tid) + step) for tid in tids for step in (-1, 0, 1)]
        for start in [None, z64, *near]:
            for stop in None, z64, near[0], near[10], near[-1]:
                self.assertEqual(
                    [each.tid for each in storage.iterator(start, stop)],
                    [each.tid for each in stock.iterator(start, stop)])

    def test_damage_ends_it(self):
        """What is behind it may be anything."""
        storage = self.open()
        commit(storage, {1: b'x'})
        middle = storage.getSize()
        commit(storage, {2: b'x'})
        for position, wrong in (
            (middle + 8, p64(1 << 40)),               # beyond the end
            (middle + 8, p64(3)),                     # within the header
            (middle + 16, b'c'),                      # not finished
            (storage.getSize() - 8, p64(5)),          # the length behind it
        ):
            right = os.pread(storage._file.fileno(), len(wrong), position)
            storage._file.write_at(wrong, position)
            with self.assertLogs('fsyncstorage.format.view', 'WARNING') as log:
                self.assertEqual(len(list(storage.iterator())), 1)
            self.assertIn(f'the transaction at {middle} is damaged',
                          log.output[0])
            storage._file.write_at(right, position)
        self.assertEqual(len(list(storage.iterator())), 2)


class Subclasses(TestCase):

    def test_a_vote_of_its_own_is_not_asked_not_to_wait(self):
        class Other(FsyncStorage):

            def tpc_vote(self, transaction):
                return super().tpc_vote(transaction)

        self.assertTrue(FsyncStorage.tpc_vote.need_not_wait)
        self.assertFalse(hasattr(Other.tpc_vote, 'need_not_wait'))
