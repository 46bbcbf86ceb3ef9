"""A transaction is an object: its records, and nothing of it elsewhere."""

import gc
import os
import tracemalloc
from unittest import mock

from ZODB.Connection import TransactionMetaData
from ZODB.FileStorage.FileStorage import FileStorageError
from ZODB.POSException import StorageError
from ZODB.utils import p64
from ZODB.utils import z64

from fsyncstorage import datafile
from fsyncstorage.commit.policies import policy_named
from fsyncstorage.format import scan
from fsyncstorage.format import seal
from fsyncstorage.format.window import Window
from fsyncstorage.storage import transaction as module
from fsyncstorage.storage.transaction import Record
from fsyncstorage.storage.transaction import Transaction

from ..support import TestCase
from ..support import begin
from ..support import commit
from ..support import oid
from ..support import owners
from ..support import under_way
from ..support import vote

GROUP_COMMIT = policy_named('group-commit')
START = 1000
TID = p64(77)


class Objects(TestCase):

    def made(self, sealed=True, **metadata):
        self.metadata = TransactionMetaData(**metadata)
        made = Transaction(self.metadata, None, b' ', GROUP_COMMIT, sealed,
                           self.directory, None, None, lambda caller: None)
        self.addCleanup(made.close)
        return made

    def add(self, transaction, number, data, **options):
        record = Record(oid(number), data, **options)
        transaction.add(record)
        return record

    def written(self, transaction, counts=True):
        """As a scan reads it from the file."""
        with datafile.open_new(self.path('written')) as file:
            transaction.write(file, TID, START, 4, counts)
            self.assertEqual(file.size(), START + transaction.length)
            # What makes it count, in the end.
            file.write_at(transaction.status, START + module.STATUS_OFFSET)
            return scan.read_transaction(
                Window.of_file(file.fileno()), START)

    def test_its_records_have_their_places(self):
        for sealed in True, False:
            for counts in True, False:
                with self.subTest(sealed=sealed, counts=counts):
                    transaction = self.made(
                        sealed, user='somebody', description='a change')
                    self.add(transaction, 1, b'one', previous=5)
                    self.add(transaction, 2, b'', serial=p64(3), back=99)
                    found = self.written(transaction, counts)
                    self.assertEqual(
                        [(each.oid, each.position) for each in found.records],
                        [(each.oid, each.place)
                         for each in transaction.records])
                    self.assertEqual(
                        [each.tid for each in found.records], [TID, p64(3)])
                    self.assertEqual((found.user, found.description),
                                     (b'somebody', b'a change'))
                    self.assertEqual(
                        found.seal, seal.SOUND if sealed else seal.ABSENT)

    def test_until_it_is_written_nothing_depends_on_its_place(self):
        transaction = self.made()
        self.add(transaction, 1, b'one')
        with datafile.open_new(self.path('two')) as file:
            for start in START, 3 * START:
                transaction.write(file, TID, start, 4, True)
                found = scan.read_transaction(
                    Window.of_file(file.fileno()), start)
                self.assertEqual(found.seal, seal.SOUND)

    def test_its_data_are_kept_in_memory_or_in_a_file(self):
        """Which has no name."""
        large = bytes(module.SPOOL_IN_MEMORY)
        transaction = self.made()
        first = self.add(transaction, 1, b'one', original=b'before')
        for _ in range(2):
            self.assertEqual(transaction.read_data(first.data), b'one')
            self.assertEqual(transaction.read_data(first.original), b'before')
            other = self.add(transaction, 3, large, original=b'other')
            self.assertEqual(transaction.read_data(other.data), large)
            self.assertEqual(transaction.read_data(other.original), b'other')
        self.assertNotEqual(first.data, b'one')  # it is in the file
        self.assertEqual(len(self.written(transaction).records), 3)
        self.assertEqual(os.listdir(self.directory), ['written'])

    def test_a_conflict_that_is_resolved_again(self):
        for large in b'', bytes(module.SPOOL_IN_MEMORY):
            transaction = self.made()
            record = self.add(transaction, 1, b'one' + large)
            before = transaction.length
            for data in b'merged' + large, b'merged again' + large:
                transaction.resolved_again(record, data)
                self.assertEqual(transaction.read_data(record.data), data)
                self.assertEqual(
                    transaction.read_data(record.original), b'one' + large)
            self.assertEqual(transaction.length, before + 9)
            self.assertEqual(
                self.written(transaction).records[0].length,
                len(b'merged again' + large))

    def test_records_that_are_worked_out_again(self):
        transaction = self.made()
        record = self.add(transaction, 1, b'data', back=99)
        short = transaction.length
        self.assertEqual(transaction.start_over(), [record])
        self.assertEqual(transaction.last, {})
        record.points_to(0)
        transaction.add(record)
        self.assertEqual(transaction.length, short - 8 + 4)
        self.assertEqual(self.written(transaction).records[0].length, 4)

    def test_the_last_record_of_an_object_counts(self):
        transaction = self.made()
        self.add(transaction, 1, b'one')
        last = self.add(transaction, 1, b'two')
        self.assertEqual(transaction.last, {oid(1): last})
        found = self.written(transaction)
        self.assertEqual(found.records[-1].position, last.place)

    def test_what_is_spooled_is_in_the_file(self):
        """Not in a buffer: there may be no room for it at the finish."""
        transaction = self.made()
        self.add(transaction, 1, bytes(module.SPOOL_IN_MEMORY + 1))
        self.add(transaction, 2, b'two')
        transaction.flush()
        self.assertEqual(os.fstat(transaction._spool.fileno()).st_size,
                         module.SPOOL_IN_MEMORY + 1 + len(b'two'))

    def test_an_interrupt_in_the_middle_of_spooling(self):
        transaction = self.made()
        self.add(transaction, 1, bytes(module.SPOOL_IN_MEMORY + 1))
        spool = transaction._spool
        for steps in range(3):
            def write(data):
                spool.write(data[:steps])
                raise KeyboardInterrupt

            self.add(transaction, 4, b'before')  # then it is at the end
            transaction._spool = mock.Mock(seek=spool.seek, write=write)
            with self.assertRaises(KeyboardInterrupt):
                self.add(transaction, 2, b'interrupted')
            transaction._spool = spool
            record = self.add(transaction, 3, b'%d' % steps * 9)
            self.assertEqual(
                transaction.read_data(record.data), b'%d' % steps * 9)

    def test_what_is_too_large_to_be_written_at_once(self):
        transaction = self.made()
        with mock.patch.object(module, 'MOST_BYTES_AT_ONCE', 1100):
            self.add(transaction, 1, bytes(900))
            self.assertFalse(transaction.is_large())
            self.add(transaction, 2, bytes(900))
            self.assertTrue(transaction.is_large())
        with mock.patch.object(module, 'MOST_OBJECTS_AT_ONCE', 2):
            self.assertFalse(transaction.is_large())
            transaction.read[oid(4)] = z64
            self.assertTrue(transaction.is_large())

    def test_who_drops_its_metadata_is_noticed(self):
        dropped = []
        metadata = TransactionMetaData()
        made = Transaction(metadata, None, b' ', GROUP_COMMIT, True,
                           self.directory, None, None, dropped.append)
        self.assertIs(made.metadata, metadata)
        del metadata
        gc.collect()
        self.assertIsNone(made.metadata)
        self.assertEqual(dropped, [made.caller])

    def test_a_record_that_failed_leaves_no_gap(self):
        """The next one is where its pointer says, not behind what there is of
        the other."""
        for size in 1, module.SPOOL_IN_MEMORY + 1:
            with self.subTest(size):
                transaction = self.made()
                self.add(transaction, 1, bytes(size))
                with self.assertRaises(TypeError):
                    self.add(transaction, 2, 'text')
                self.add(transaction, 3, b'three')
                found = self.written(transaction)
                self.assertEqual(
                    [(each.oid, each.position) for each in found.records],
                    [(oid(number), transaction.last[oid(number)].place)
                     for number in (1, 3)])

    def test_a_spool_that_lost_its_end(self):
        """Half a transaction is no transaction; and its finish ends."""
        transaction = self.made()
        self.add(transaction, 1, bytes(module.SPOOL_IN_MEMORY + 1))
        transaction._spool.truncate(module.SPOOL_IN_MEMORY)
        with self.assertRaisesRegex(StorageError, 'are lost'):
            self.written(transaction)

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
                if name not in ('_last_given', '_oid', '_begun')}

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
        self.assertEqual(self.state(storage), before)
        self.assertEqual(len(storage._begun), 1)
        size = os.path.getsize(storage._file_name)
        storage.tpc_abort(transaction)
        self.assertEqual(storage._begun, {})
        self.assertEqual(self.state(storage), before)
        self.assertEqual(os.path.getsize(storage._file_name), size)

    def test_its_memory_goes_with_it(self):
        storage = self.open()
        for end in 'tpc_finish', 'tpc_abort':
            transaction = vote(storage, {1: bytes(2 << 20)}, {
                1: storage.getTid(oid(1)) if len(storage) else z64})
            made = id(under_way(storage))
            spool = under_way(storage)._spool
            getattr(storage, end)(transaction)
            self.assertTrue(spool.closed)
            del spool
            self.assertNotIn(made, [
                id(each) for each in gc.get_objects()
                if isinstance(each, module.Transaction)])

    def test_its_end_frees_its_records(self):
        """Also for a caller that still waits for the sync."""
        storage = self.open()
        for end in 'tpc_finish', 'tpc_abort':
            transaction = vote(storage, {1 + len(storage): b'x'})
            made = under_way(storage)
            getattr(storage, end)(transaction)
            self.assertEqual((made.records, made.last), ([], {}))

    def test_a_failed_begin_leaves_nothing(self):
        storage = self.open()
        with mock.patch.object(module, 'as_bytes', side_effect=MemoryError):
            with self.assertRaises(MemoryError):
                begin(storage)
        self.assertEqual(storage._begun, {})
        commit(storage, {1: b'x'})

    def test_a_close_ends_it(self):
        storage = self.open()
        transaction = begin(storage)
        storage.close()
        with self.assertRaisesRegex(ValueError, 'closed'):
            storage.store(oid(1), z64, b'x', '', transaction)
        storage.tpc_abort(transaction)
        self.assertFalse(storage._commit_lock.locked())

    def test_many_that_are_open_cost_little(self):
        """1,000 of 1 KB: 8 KB each at most."""
        storage = self.open()
        data = bytes(1000)
        gc.collect()
        tracemalloc.start()
        self.addCleanup(tracemalloc.stop)
        before, _ = tracemalloc.get_traced_memory()
        transactions = []
        for number in range(1, 1001):
            transaction = begin(storage)
            storage.store(oid(number), z64, data[:] + b'x', '', transaction)
            storage.tpc_vote(transaction)
            transactions.append(transaction)
        gc.collect()
        used = tracemalloc.get_traced_memory()[0] - before
        self.assertLess(used / 1000, 8192)
        for transaction in transactions:
            storage.tpc_abort(transaction)
        self.assertEqual(owners(storage._turns), 0)
        self.assertEqual(storage._reserve.total, 0)


class Large(TestCase):
    """A transaction that is spooled, and written at its vote."""

    records = 40  # of 1 MB

    def test_it_is_committed(self):
        storage = self.open()
        data = bytes(1 << 20)
        tracemalloc.start()
        self.addCleanup(tracemalloc.stop)
        transaction = begin(storage)
        for number in range(self.records):
            storage.store(oid(number), z64, data, '', transaction)
        storage.tpc_vote(transaction)
        self.assertTrue(storage._commit_lock.locked())
        tid = storage.tpc_finish(transaction)
        _, most = tracemalloc.get_traced_memory()
        self.assertLess(most, 16 << 20)
        for number in 0, self.records - 1:
            self.assertEqual(storage.load(oid(number)), (data, tid))
        storage.close()
        self.assertEqual(len(self.open()), self.records)


class VeryLarge(Large):
    """Of 3 GB."""

    level = 3
    records = 3000
