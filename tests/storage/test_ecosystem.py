"""What others know of the inside of a FileStorage, and what a sibling of it
provides."""

import os
import time

import ZODB.FileStorage.fspack
from ZODB.FileStorage import FileStorage
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

from ..support import TestCase
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


class State(TestCase):

    def setUp(self):
        super().setUp()
        self.storage = self.open()

    def test_a_clock_that_was_ahead(self):
        ahead = TimeStamp(*time.gmtime(time.time() + 900)[:6])
        self.storage._ts = ahead
        self.assertGreater(commit(self.storage, {1: b'x'}), ahead.raw())


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
