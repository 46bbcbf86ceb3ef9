"""A transaction is an object: its records, and nothing of it elsewhere."""

import os
from unittest import mock

from ZODB.Connection import TransactionMetaData
from ZODB.FileStorage.FileStorage import FileStorageError
from ZODB.POSException import StorageError
from ZODB.POSException import StorageTransactionError
from ZODB.utils import p64
from ZODB.utils import z64

from fsyncstorage import datafile
from fsyncstorage import scan
from fsyncstorage import seal
from fsyncstorage.source import Source
from fsyncstorage.storage import transaction as module
from fsyncstorage.storage.transaction import Transaction

from .support import TestCase
from .support import begin
from .support import commit
from .support import oid
from .support import vote

START = 1000
TID = p64(77)


class Objects(TestCase):

    def made(self, sealed=True, **metadata):
        made = Transaction(TransactionMetaData(**metadata), TID, b' ', START,
                           sealed, self.directory)
        self.addCleanup(made.close)
        return made

    def written(self, transaction):
        """As a scan reads it from the file."""
        with datafile.open_new(self.path('written')) as file:
            transaction.write(file, 4)
            self.assertEqual(file.size(), transaction.end)
            # What makes it count, in the end.
            file.write_at(transaction.status, START + module.STATUS_OFFSET)
            return scan.read_transaction(
                Source.of_file(file.fileno()), START)

    def test_its_records_have_their_places(self):
        for sealed in True, False:
            with self.subTest(sealed=sealed):
                transaction = self.made(
                    sealed, user='somebody', description='a change')
                transaction.add(oid(1), TID, 5, b'one')
                transaction.add(oid(2), p64(3), 0, b'', 99)
                found = self.written(transaction)
                self.assertEqual(
                    {each.oid: each.position for each in found.records},
                    transaction.places)
                self.assertEqual(
                    [each.tid for each in found.records], [TID, p64(3)])
                self.assertEqual((found.user, found.description),
                                 (b'somebody', b'a change'))
                self.assertEqual(
                    found.seal, seal.SOUND if sealed else seal.ABSENT)

    def test_its_own_records_are_read_in_memory_and_in_a_file(self):
        large = bytes(module.SPOOL_IN_MEMORY)
        transaction = self.made()
        first = transaction.add(oid(1), TID, 0, b'one')
        pointer = transaction.add(oid(2), TID, 5, b'', 99)
        for _ in range(2):
            self.assertEqual(transaction.record(first), (TID, b'one', 0))
            self.assertEqual(transaction.record(pointer), (TID, b'', 99))
            place = transaction.add(oid(3), TID, 0, large)
            self.assertEqual(transaction.record(place), (TID, large, 0))
        self.assertEqual(len(self.written(transaction).records), 4)
        self.assertEqual(os.listdir(self.directory), ['written'])

    def test_the_last_record_of_an_object_counts(self):
        transaction = self.made()
        transaction.add(oid(1), TID, 0, b'one')
        last = transaction.add(oid(1), TID, 0, b'two')
        self.assertEqual(transaction.places, {oid(1): last})

    def test_after_its_vote_it_takes_no_more(self):
        transaction = self.made()
        self.written(transaction)
        with self.assertRaisesRegex(StorageTransactionError, 'was voted'):
            transaction.add(oid(1), TID, 0, b'one')
        self.assertEqual(transaction.places, {})

    def test_a_record_that_failed_leaves_no_gap(self):
        """The next one is where its pointer says, not behind what there is of
        the other."""
        for size in 1, module.SPOOL_IN_MEMORY + 1:
            with self.subTest(size):
                transaction = self.made()
                transaction.add(oid(1), TID, 0, bytes(size))
                with self.assertRaises(TypeError):
                    transaction.add(oid(2), TID, 0, 'text')
                transaction.add(oid(3), TID, 0, b'three')
                found = self.written(transaction)
                self.assertEqual(
                    {each.oid: each.position for each in found.records},
                    transaction.places)
                self.assertEqual(sorted(transaction.places), [oid(1), oid(3)])

    def test_a_vote_that_failed_can_be_followed_by_records(self):
        transaction = self.made()
        for number in range(5):  # more than one write takes
            transaction.add(oid(number), TID, 0, bytes(module.COPY_CHUNK // 2))
        file = mock.Mock()
        file.write_at.side_effect = [None, OSError(28, 'no space')]
        with self.assertRaises(OSError):
            transaction.write(file, 4)
        transaction.add(oid(5), TID, 0, b'five')
        found = self.written(transaction)
        self.assertEqual(
            {each.oid: each.position for each in found.records},
            transaction.places)
        self.assertEqual(found.seal, seal.SOUND)

    def test_a_spool_that_lost_its_end(self):
        """Half a transaction is no transaction; and its vote ends."""
        for size in 1, module.SPOOL_IN_MEMORY + 1, 3 * module.COPY_CHUNK:
            with self.subTest(size):
                transaction = self.made()
                transaction.add(oid(1), TID, 0, bytes(size))
                transaction._spool.truncate(transaction._size - 1)
                with self.assertRaisesRegex(StorageError, 'are lost'):
                    self.written(transaction)
                self.assertEqual(transaction.end, 0)

    def test_fields_that_do_not_fit(self):
        for text, metadata in (
            ('user name too long', {'user': 'x' * 65536}),
            ('description too long', {'description': 'x' * 65536}),
            ('too much extension', {'extension': {'x': 'x' * 65536}}),
        ):
            with self.assertRaisesRegex(FileStorageError, text):
                self.made(**metadata)

    def test_an_extension_without_room_for_a_seal(self):
        transaction = self.made(extension={'x': 'x' * 65480})
        self.assertFalse(transaction.sealed)
        self.assertEqual(self.written(transaction).seal, seal.ABSENT)


class Owners(TestCase):

    def state(self, storage):
        return {name: value for name, value in vars(storage).items()
                if name not in ('_last_given', '_oid')}

    def test_the_storage_has_nothing_of_it_but_the_object(self):
        storage = self.open(blob_dir=self.path('blobs'))
        first = commit(storage, {1: b'one'})
        before = self.state(storage)
        with open(self.path('upload'), 'wb') as file:
            file.write(b'content')
        transaction = begin(storage, user='somebody')
        storage.store(oid(1), first, b'two', '', transaction)
        storage.storeBlob(oid(2), z64, b'blob', self.path('upload'), '',
                          transaction)
        storage.tpc_vote(transaction)
        self.assertEqual(self.state(storage),
                         {**before, '_begun': storage._begun})
        storage.tpc_abort(transaction)
        self.assertIsNone(storage._begun)
        self.assertEqual(
            self.state(storage),
            {**before, '_begun': None, '_cut_back_to': storage._pos})

    def test_its_memory_goes_with_it(self):
        storage = self.open()
        for end in 'tpc_finish', 'tpc_abort':
            transaction = vote(storage, {1: b'x'}, {
                1: storage.getTid(oid(1)) if len(storage) else z64})
            spool = storage._begun._spool
            getattr(storage, end)(transaction)
            self.assertTrue(spool.closed)

    def test_a_failed_begin_leaves_nothing(self):
        storage = self.open()
        with mock.patch.object(module, 'as_bytes', side_effect=MemoryError):
            with self.assertRaises(MemoryError):
                begin(storage)
        self.assertIsNone(storage._begun)
        self.assertFalse(storage._commit_lock.locked())
        commit(storage, {1: b'x'})

    def test_a_close_ends_it(self):
        storage = self.open()
        transaction = begin(storage)
        storage.close()
        with self.assertRaisesRegex(ValueError, 'closed'):
            storage.store(oid(1), z64, b'x', '', transaction)
        storage.tpc_abort(transaction)
        self.assertFalse(storage._commit_lock.locked())
