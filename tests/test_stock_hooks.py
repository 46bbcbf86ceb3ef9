"""What is used of the inside of ZODB and ZEO: fails when a release moves it.

storage.py, reading.py, packing.py, packedblobs.py, client/link.py and
client/doom.py say at the place what they use.
"""

import inspect
import os
import tempfile
import unittest

import zc.lockfile
import ZODB.blob
from ZEO.asyncio.base import ZEOBaseProtocol
from ZEO.asyncio.client import ClientIO
from ZEO.asyncio.client import ClientRunner
from ZEO.asyncio.client import ClientThread
from ZEO.asyncio.client import Protocol
from ZEO.cache import ClientCache
from ZEO.ClientStorage import ClientStorage
from ZODB.BaseStorage import BaseStorage
from ZODB.blob import BlobStorageMixin
from ZODB.Connection import Connection
from ZODB.FileStorage import FileStorage
from ZODB.FileStorage import fspack
from ZODB.FileStorage.FileStorage import FileIterator
from ZODB.FileStorage.FileStorage import TempFormatter
from ZODB.MappingStorage import MappingStorage
from ZODB.mvccadapter import MVCCAdapter
from ZODB.mvccadapter import MVCCAdapterInstance
from ZODB.tests.hexstorage import HexStorage
from ZODB.utils import p64

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

    def test_a_salvage_says_where_data_are(self):
        self.assertTrue({'_txn_find', '_data_find', '_tindex'}
                        <= names(FileStorage.restore))

    def test_a_blobstorage_asks_what_it_wraps(self):
        self.assertIn('supportsUndo', names(ZODB.blob.BlobStorage.__init__))

    def test_a_blob_directory_that_is_only_read(self):
        """What _blob_init does, but for the writing."""
        self.assertEqual(names(BlobStorageMixin._blob_init), {
            'FilesystemHelper', 'fshelper', 'create', 'dirty_oids'})

    def test_a_lock_file(self):
        """Who closes `_fp` frees no lock that another process shares."""
        with tempfile.TemporaryDirectory() as home:
            lock = zc.lockfile.LockFile(os.path.join(home, 'lock'))
            copy = os.dup(lock._fp.fileno())
            lock._fp.close()
            with self.assertRaises(zc.lockfile.LockError):
                zc.lockfile.LockFile(os.path.join(home, 'lock'))
            os.close(copy)
            lock._fp = None
            lock.close()

    def test_the_iterator(self):
        self.assertTrue({'_file', '_file_name', '_file_size', '_pos'}
                        <= names(FileIterator._skip_to_start)
                        | names(FileIterator._scan_forward)
                        | names(FileIterator.__next__))

    def test_the_packer(self):
        packer = fspack.FileStoragePacker
        self.assertTrue({'_storage', '_file', '_path', '_commit_lock',
                         'blob_removed'} <= names(packer.__init__))
        self.assertIn('.removed', packer.__init__.__code__.co_consts)
        self.assertTrue({'_copier', '_tfile', '_commit_lock', 'index'}
                        <= names(packer.copyOne))
        self.assertTrue({'gc', '_tfile', 'copyDataRecords'}
                        <= names(packer.copyToPacktime))


class ClientHooks(unittest.TestCase):

    def test_who_connects_is_told_to_us(self):
        """Another class takes the place of ClientIO, before it runs."""
        self.assertIn('client', names(ClientRunner.setup_delegation))
        self.assertIn('setup_delegation', names(ClientThread.run_io_thread))
        self.assertIn('verify', names(ClientIO.register))
        self.assertIn('disconnected', names(Protocol.connection_lost))
        self.assertIn('notify_connected', names(ClientIO.verify))

    def test_what_threads_call(self):
        for name in 'load_before', 'prefetch', 'async_', 'async_iter', 'call':
            self.assertTrue(callable(getattr(ClientThread, name)))
        self.assertIn('load_before', names(ClientStorage.loadBefore))
        for method in ClientStorage.tpc_vote, ClientStorage.tpc_abort:
            self.assertIn('_call', names(method))

    def test_a_call_is_made_like_this(self):
        """outgoing.py makes one that leaves with what goes before."""
        self.assertTrue({'message_id', 'futures', 'write_message', 'encode'}
                        <= names(Protocol.call_sync))
        self.assertIn('sm_protocol', names(ZEOBaseProtocol.get_peername))
        self.assertIn('pop_futures', names(Protocol.close))

    def test_a_transaction(self):
        self.assertTrue({'_commit_lock', '_tbuf', '_connection_generation'}
                        <= names(ClientStorage.tpc_begin))
        self.assertIn('_update_blob_cache', names(ClientStorage.tpc_finish))
        self.assertTrue({'server_resolve', 'resolve', 'exception'}
                        <= names(ClientStorage.tpc_vote))

    def test_a_transaction_of_a_connection(self):
        """client/doom.py stands between the two."""
        adapter = MVCCAdapter(MappingStorage())
        instance = adapter.new_instance()
        instance.poll_invalidations()
        self.assertEqual(list(adapter._instances), [instance])
        with adapter._lock:
            pass
        self.assertEqual(instance._start, p64(1))
        self.assertIn('_start', names(MVCCAdapterInstance.load))
        for calls, method in (
            ('load', Connection.setstate),
            ('loadBlob', Connection.setstate),
            ('tpc_begin', Connection.tpc_begin),
            ('tpc_vote', Connection.tpc_vote),
            ('poll_invalidations', Connection.newTransaction),
        ):
            self.assertIn(calls, names(method))

    def test_a_wrapper_has_its_database(self):
        wrapper = HexStorage(MappingStorage())
        adapter = MVCCAdapter(wrapper)
        self.assertIs(wrapper.db, adapter)

    def test_the_cache(self):
        self.assertTrue({'_makeroom', 'currentofs', 'f', 'current',
                         '_set_noncurrent'} <= names(ClientCache._store))
        self.assertEqual(
            list(inspect.signature(ClientCache._store).parameters),
            ['self', 'oid', 'start_tid', 'end_tid', 'data', 'size'])
        self.assertTrue({'noncurrent', 'load'}
                        <= names(ClientCache.loadBefore))
        self.assertIn('_lock', names(ClientCache.invalidate))


class State(TestCase):

    def test_nothing_of_stock_stays_open(self):
        storage = self.open()
        self.assertFalse(os.path.exists(self.path('Data.fs.tmp')))
        self.assertEqual(storage._file.__class__.__module__,
                         'fsyncstorage.datafile')
        transaction = begin(storage)
        storage.store(oid(1), b'\0' * 8, b'x', '', transaction)
        self.assertEqual(
            storage._tindex, {oid(1): 4 + 23 + seal.room(b'')})
        storage.tpc_abort(transaction)
