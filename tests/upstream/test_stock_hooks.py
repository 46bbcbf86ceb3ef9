"""What is used of the inside of ZODB and ZEO, and would break in silence when
a release moves it.  What breaks with an error is seen by the suites here, and
by the tests of what uses it.
"""

import os
import tempfile
import unittest
from unittest import mock

import zc.lockfile
from transaction._transaction import Status
from transaction._transaction import Transaction
from ZEO.asyncio.client import Protocol
from ZEO.ClientStorage import ClientStorage
from ZODB.BaseStorage import BaseStorage
from ZODB.blob import BlobStorageMixin
from ZODB.ConflictResolution import ConflictResolvingStorage
from ZODB.Connection import Connection
from ZODB.Connection import TransactionMetaData
from ZODB.FileStorage import FileStorage
from ZODB.FileStorage.format import FileStorageFormatter
from ZODB.MappingStorage import MappingStorage
from ZODB.mvccadapter import MVCCAdapter
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

    def test_blobs_of_the_client_of_stock_servers(self):
        """What client.stock overrides, ZEO's client still calls."""
        self.assertIn('_update_blob_cache', names(ClientStorage.tpc_finish))
        self.assertLessEqual(
            {'receiveBlobStart', 'receiveBlobChunk', 'receiveBlobStop'},
            {*Protocol.client_methods})

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
        self.assertEqual(record.position, 4 + 23 + seal.room(b''))
