"""What is used of ZODB's inside: fails when a release moves it.

storage.py, reading.py and packing.py say at the place what they use.
"""

import inspect
import os
import unittest

import ZODB.blob
from ZODB.BaseStorage import BaseStorage
from ZODB.FileStorage import FileStorage
from ZODB.FileStorage import fspack
from ZODB.FileStorage.FileStorage import FileIterator
from ZODB.FileStorage.FileStorage import TempFormatter
from ZODB.FileStorage.FileStorage import UndoSearch

from fsyncstorage import seal

from .support import TestCase
from .support import begin
from .support import oid


def names(function):
    return set(function.__code__.co_names)


class Hooks(unittest.TestCase):

    def test_hooks_are_called(self):
        self.assertIn('_restore_index', names(FileStorage.__init__))
        self.assertIn('_save_index', names(FileStorage.__init__))
        for method in BaseStorage.tpc_begin, BaseStorage.tpc_abort:
            self.assertIn('_clear_temp', names(method))
        self.assertIn('_abort', names(BaseStorage.tpc_abort))

    def test_the_file_is_used_after_the_hook(self):
        """_restore_index puts ours in its place, before the scan."""
        lines = inspect.getsource(FileStorage.__init__).splitlines()
        hook = next(n for n, line in enumerate(lines)
                    if '_restore_index()' in line)
        for n, line in enumerate(lines):
            if 'self._file, ' in line:
                self.assertGreater(n, hook)

    def test_the_commit_machinery_uses_what_we_keep(self):
        self.assertTrue({'_index_get', '_read_data_header', '_tfile', '_pos',
                         '_thl', '_tindex', 'tryToResolveConflict'}
                        <= names(FileStorage.store))
        self.assertTrue({'_tfmt', '_tfile', '_file'}
                        <= names(FileStorage._undoDataInfo))
        self.assertEqual(
            list(inspect.signature(TempFormatter).parameters), ['afile'])

    def test_a_blobstorage_asks_what_it_wraps(self):
        self.assertIn('supportsUndo', names(ZODB.blob.BlobStorage.__init__))

    def test_the_iterator(self):
        self.assertTrue({'_file', '_file_name', '_file_size', '_pos'}
                        <= names(FileIterator._skip_to_start)
                        | names(FileIterator._scan_forward)
                        | names(FileIterator.__next__))
        self.assertEqual(
            list(inspect.signature(UndoSearch).parameters),
            ['file', 'pos', 'first', 'last', 'filter'])

    def test_the_packer(self):
        packer = fspack.FileStoragePacker
        self.assertTrue({'_storage', '_file', '_path', '_commit_lock',
                         'blob_removed'} <= names(packer.__init__))
        self.assertTrue({'_copier', '_tfile', '_commit_lock', 'index'}
                        <= names(packer.copyOne))
        self.assertTrue({'gc', '_tfile', 'copyDataRecords'}
                        <= names(packer.copyToPacktime))


class State(TestCase):

    def test_nothing_of_stock_stays_open(self):
        storage = self.open()
        self.assertFalse(os.path.exists(self.path('Data.fs.tmp')))
        self.assertEqual(storage._file.__class__.__module__,
                         'fsyncstorage.datafile')
        transaction = begin(storage)
        storage.store(oid(1), b'\0' * 8, b'x', '', transaction)
        self.assertEqual(storage._tindex, 
            {oid(1): 4 + 23 + seal.room(b'')})
        storage.tpc_abort(transaction)
