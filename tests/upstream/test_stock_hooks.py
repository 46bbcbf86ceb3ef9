"""What is used of the inside of ZODB and ZEO: fails when a release moves it.

storage/, format/view.py, pack/, commit/asking.py, client/link.py,
client/connection.py and client/doom.py say at the place what they use.
"""

import inspect
import os
import tempfile
import unittest
from unittest import mock

import zc.lockfile
import ZODB
from transaction._transaction import Status
from transaction._transaction import Transaction
from ZEO.asyncio.base import ZEOBaseProtocol
from ZEO.asyncio.client import ClientIO
from ZEO.asyncio.client import ClientRunner
from ZEO.asyncio.client import ClientThread
from ZEO.asyncio.client import Protocol
from ZEO.asyncio.client import exc_factories
from ZEO.asyncio.marshal import decoder
from ZEO.asyncio.marshal import encoder
from ZEO.cache import ClientCache
from ZEO.ClientStorage import ClientStorage
from ZEO.ClientStorage import TransactionIterator
from ZEO.StorageServer import ZEOStorage
from ZEO.StorageServer import registered_methods
from ZODB.BaseStorage import BaseStorage
from ZODB.blob import BlobStorageMixin
from ZODB.ConflictResolution import ConflictResolvingStorage
from ZODB.ConflictResolution import tryToResolveConflict
from ZODB.Connection import Connection
from ZODB.Connection import TransactionMetaData
from ZODB.FileStorage import FileStorage
from ZODB.FileStorage.FileStorage import TransactionRecord
from ZODB.FileStorage.format import FileStorageFormatter
from ZODB.FileStorage.format import TxnHeader
from ZODB.MappingStorage import MappingStorage
from ZODB.mvccadapter import MVCCAdapter
from ZODB.mvccadapter import MVCCAdapterInstance
from ZODB.tests.hexstorage import HexStorage
from ZODB.utils import p64

from fsyncstorage import FsyncStorage
from fsyncstorage.client.connection import COMMITTING
from fsyncstorage.format import seal

from ..support import TestCase
from ..support import begin
from ..support import oid
from ..support import under_way


def names(function):
    return set(function.__code__.co_names)


class Hooks(unittest.TestCase):

    def test_what_stock_gives_is_what_we_build_on(self):
        """FileStorage stands on these bases, and so do we."""
        bases = {FileStorageFormatter, BlobStorageMixin,
                 ConflictResolvingStorage, BaseStorage}
        self.assertEqual(set(FileStorage.__bases__), bases)
        self.assertLessEqual(bases, set(FsyncStorage.__mro__))
        self.assertNotIn(FileStorage, FsyncStorage.__mro__)

    def test_nothing_of_stock_commits(self):
        """What these have of a transaction, we have in an object."""
        for name in ('tpc_begin', 'tpc_vote', 'tpc_finish', 'tpc_abort',
                     'storeBlob', 'restoreBlob', 'getSize', 'history'):
            self.assertTrue(
                getattr(FsyncStorage, name).__module__.startswith(
                    'fsyncstorage.'), name)

    def test_what_a_base_makes(self):
        self.assertLessEqual(
            {'_lock', '_commit_lock', '_ts', '_tid', '_oid'},
            names(BaseStorage.__init__))
        self.assertLessEqual({'_is_read_only', '_lock', '_oid'},
                             names(BaseStorage.new_oid))
        self.assertIn('_oid', names(BaseStorage.set_max_oid))
        self.assertIn('_transaction', names(BaseStorage.tpc_transaction))
        self.assertIn('fshelper', names(BlobStorageMixin._blob_init_no_blobs))

    def test_a_conflict_is_resolved_with_these(self):
        self.assertLessEqual(
            {'_crs_untransform_record_data', '_crs_transform_record_data',
             'loadSerial'}, names(tryToResolveConflict))

    def test_a_reader_of_headers(self):
        """view.py lets it read through a buffer of its own."""
        self.assertLessEqual(
            {'_file', 'user', 'descr', 'ext'},
            names(FileStorageFormatter._read_txn_header)
            | set(TxnHeader.__slots__))

    def test_a_record_of_an_iterator(self):
        self.assertEqual(
            list(inspect.signature(TransactionRecord).parameters),
            ['tid', 'status', 'user', 'desc', 'ext', 'pos', 'tend', 'file',
             'tpos'])

    def test_an_extension(self):
        """commit.asking searches one that came as a dictionary, and has none
        unpickled."""
        given = {'key': 'value'}
        self.assertIs(
            vars(TransactionMetaData(extension=given))['extension'], given)
        self.assertNotIn(
            'extension', vars(TransactionMetaData(extension=b'}.')))

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


class ClientHooks(unittest.TestCase):

    def test_who_connects_is_told_to_us(self):
        """Another class takes the place of ClientIO, before it runs."""
        self.assertIn('client', names(ClientRunner.setup_delegation))
        self.assertIn('setup_delegation', names(ClientThread.run_io_thread))
        self.assertIn('verify', names(ClientIO.register))
        self.assertIn('disconnected', names(Protocol.connection_lost))
        self.assertIn('notify_connected', names(ClientIO.verify))
        # A cache is verified if it is true: see Cache.__bool__.
        self.assertIn('            if cache:\n',
                      inspect.getsource(ClientIO.verify))

    def test_each_address_has_a_connection_of_ours(self):
        """zeoconnection.py and zeoprotocol.py."""
        # Without addresses there is none before ours are made.
        self.assertIn('addrs', names(ClientIO.try_connecting))
        self.assertIn('try_connecting', names(ClientIO.disconnected))
        self.assertIn('set_options', names(ClientThread.__init__))
        made_with = inspect.signature(Protocol.__init__).parameters
        self.assertEqual(list(made_with)[:7], [
            'self', 'loop', 'addr', 'client', 'storage_key', 'read_only',
            'connect_poll'])
        # ZEO tries again when all are closed; with ours, they never are.
        for method in ClientIO.disconnected, ClientIO.register_failed:
            self.assertIn('protocols', names(method))
        self.assertIn('connect', names(Protocol.__init__))
        self.assertTrue({'_connecting', 'closed', 'client'}
                        <= names(Protocol.close))
        # Who waits for an answer is told why the connection was given up.
        self.assertIn('ClientDisconnected', names(Protocol.close))
        self.assertTrue({'data_received', 'write_message'}
                        <= names(ZEOBaseProtocol.connection_made))
        self.assertIn('register', names(Protocol.verify_connection))

    def test_a_server_answers_a_ping(self):
        """Without looking at its storage."""
        self.assertIn('ping', registered_methods)
        self.assertEqual(names(ZEOStorage.ping), set())

    def test_what_threads_call(self):
        for name in 'load_before', 'prefetch', 'async_', 'async_iter', 'call':
            self.assertTrue(callable(getattr(ClientThread, name)))
        self.assertIn('load_before', names(ClientStorage.loadBefore))
        for method in ClientStorage.tpc_vote, ClientStorage.tpc_abort:
            self.assertIn('_call', names(method))

    def test_calls_go_there_after_a_close(self):
        """link.py ends the coroutine, too."""
        self.assertTrue(
            {'io_call', '_io_call_after_closure'} <= names(ClientRunner.close))

    def test_a_call_is_made_like_this(self):
        """outgoing.py makes one that leaves with what goes before."""
        self.assertTrue({'message_id', 'futures', 'write_message', 'encode'}
                        <= names(Protocol.call_sync))
        self.assertIn('sm_protocol', names(ZEOBaseProtocol.get_peername))
        self.assertIn('pop_futures', names(Protocol.close))

    def test_what_the_commit_channel_takes_over(self):
        """link.py and committing.py."""
        # All loads of a connection go through this; it gets another one.
        self.assertIn('load_before', names(ClientIO.load_before_co))
        self.assertIn('load_before', names(ClientIO._prefetch_co))
        # The marker is a call of `info`.
        self.assertIn('info', Protocol.client_delegated)
        # What is announced is processed as on the ZEO connection.
        self.assertTrue({'cache', 'invalidate', 'setLastTid', 'client'}
                        <= names(ClientIO.invalidateTransaction))
        # An error is made of a name and its arguments.
        self.assertIn('exc_factories', names(Protocol.message_received))
        error = exc_factories['ZODB.POSException.StorageTransactionError'](
            'ZODB.POSException.StorageTransactionError', ('why',))
        self.assertEqual(error.args, ('why',))
        for encoding in b'Z5', b'M5':
            self.assertEqual(
                decoder(encoding)(encoder(encoding)(0, True, 'name', (1,))),
                (0, True, 'name', (1,)))

    def test_a_transaction(self):
        self.assertTrue({'_commit_lock', '_tbuf', '_connection_generation'}
                        <= names(ClientStorage.tpc_begin))
        self.assertIn('_commit_lock', names(ClientStorage.tpc_end))
        self.assertIn('_update_blob_cache', names(ClientStorage.tpc_finish))
        self.assertIn('_iterator_gc', names(ClientStorage.tpc_finish))
        self.assertIn('_iterator_ids', names(ClientStorage._iterator_gc))
        self.assertIn('_setup_iterator', names(ClientStorage.iterator))
        self.assertIn('_forget_iterator', names(TransactionIterator.__next__))
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

    def test_a_database_has_a_class_of_connections(self):
        """It is looked up behind `registerDB`, for each connection."""
        self.assertIn('klass', vars(ZODB.DB))
        self.assertIn('klass', names(ZODB.DB.open) | {
            name for code in ZODB.DB.open.__code__.co_consts
            if hasattr(code, 'co_names') for name in code.co_names})
        adapter = MVCCAdapter(MappingStorage())
        instance = adapter.new_instance()
        self.assertIs(type(instance), MVCCAdapterInstance)
        self.assertIs(instance._storage, adapter._storage)
        self.assertIn('registerDB', names(MVCCAdapter.__init__))

    def test_the_finish_of_a_connection(self):
        """It goes through the adapter, which gives the storage what has to be
        called; of what it returns, only the tid of the second call counts."""
        instance = MVCCAdapter(MappingStorage()).new_instance()
        instance._storage = mock.Mock()
        instance._storage.tpc_finish.return_value = p64(1)
        instance.tpc_begin('transaction')
        self.assertEqual(instance.tpc_finish('transaction'), p64(1))
        self.assertEqual(instance.tpc_finish('transaction'), p64(1))
        (first, f), (second, _) = (
            call.args for call in instance._storage.tpc_finish.mock_calls)
        self.assertEqual(first, 'transaction')
        f(p64(1))
        self.assertEqual(instance._ltid, p64(1))
        self.assertIn('tpc_finish', names(Connection.tpc_finish))
        # What has changed is dropped as here.
        self.assertTrue({'_cache', 'invalidate', '_modified'}
                        <= names(Connection.tpc_abort))

    def test_the_votes_of_a_transaction(self):
        """A resource that votes finds all that have joined, and those that
        have voted, which finish before it."""
        found, finished = [], []

        class Resource:

            def __init__(self, key):
                self.sortKey = lambda: key

            def tpc_vote(self, txn):
                found.append(
                    (txn._resources == joined, txn.status == COMMITTING,
                     list(txn._voted)))

            def tpc_finish(self, txn):
                finished.append(id(self))

            def nothing(self, txn):
                pass

            tpc_begin = commit = nothing

        resources = [Resource(key) for key in 'abc']
        joined = [resources[2], *resources[:2]]
        txn = Transaction()
        for each in joined:
            txn.join(each)
        txn.commit()
        self.assertEqual(
            found, [(True, True, finished[:count]) for count in range(3)])
        self.assertEqual(finished, [id(each) for each in resources])

    def test_nobody_joins_a_transaction_that_commits(self):
        txn = Transaction()
        txn.status = Status.COMMITTING
        with self.assertRaises(ValueError):
            txn.join(None)

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
        with open(self.path('Data.fs.tmp'), 'w'):
            pass  # a process of stock was killed
        storage = self.open()
        self.assertFalse(os.path.exists(self.path('Data.fs.tmp')))
        self.assertEqual(storage._file.__class__.__module__,
                         'fsyncstorage.datafile')
        transaction = begin(storage)
        storage.store(oid(1), b'\0' * 8, b'x', '', transaction)
        record, = under_way(storage).records
        storage.tpc_vote(transaction)
        storage.tpc_finish(transaction)
        self.assertEqual(record.place, 4 + 23 + seal.room(b''))
