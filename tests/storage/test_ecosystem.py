"""What a sibling of FileStorage provides, and what it iterates over."""

import os

from ZODB.FileStorage import FileStorage
from ZODB.utils import p64
from ZODB.utils import u64
from ZODB.utils import z64
from zope.interface import providedBy
from zope.interface.verify import verifyObject

from ..support import TestCase
from ..support import commit


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
        # There is no other packer than ours.
        self.assertEqual(public - set(dir(self.open())), {'packer'})


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
