"""The block that is kept: fewer reads, and never what may still change."""

import os
from unittest import mock

from ZODB.Connection import TransactionMetaData
from ZODB.utils import p64
from ZODB.utils import u64
from ZODB.utils import z64

from fsyncstorage.format.view import BLOCK
from fsyncstorage.format.view import PAGE
from fsyncstorage.format.view import View
from fsyncstorage.storage.records import UnpublishedView

from ..support import TestCase
from ..support import commit
from ..support import oid


class Block(TestCase):

    def reads(self):
        """Positions that are read from now on."""
        positions = []

        def pread(number, length, position):
            positions.append(position)
            return os.pread(number, length, position)

        patch = mock.patch.object(View, 'pread', staticmethod(pread))
        patch.start()
        self.addCleanup(patch.stop)
        return positions

    def test_what_was_stored_together_is_read_together(self):
        storage = self.open()
        commit(storage, {number: b'%03d' % number for number in range(50)})
        reads = self.reads()
        for number in range(50):
            self.assertEqual(storage.load(oid(number))[0], b'%03d' % number)
        self.assertEqual(len(reads), 1)

    def test_a_commit_between_changes_nothing(self):
        storage = self.open()
        serial = commit(storage, {1: b'one', 2: b'two'})
        storage.load(oid(1))
        commit(storage, {1: b'changed'}, {1: serial})
        reads = self.reads()
        self.assertEqual(storage.load(oid(2))[0], b'two')
        self.assertEqual(reads, [])
        self.assertEqual(storage.load(oid(1))[0], b'changed')

    def test_records_of_any_length(self):
        storage = self.open()
        lengths = [1, PAGE - 50, PAGE - 42, PAGE, BLOCK - 42, BLOCK,
                   2 * BLOCK, 10, 3000, 3000]
        data = {number: bytes([65 + number]) * length
                for number, length in enumerate(lengths)}
        commit(storage, data)
        for first in range(len(lengths)):
            for second in range(len(lengths)):
                for number in first, second:
                    self.assertEqual(
                        storage.load(oid(number))[0], data[number])

    def write_alone(self, storage, data):
        """Vote: it is behind the end of the file, and not appended."""
        transaction = TransactionMetaData()
        storage.tpc_begin(
            transaction, p64(u64(storage.lastTransaction()) + 1000))
        storage.store(oid(1), z64, data, '', transaction)
        storage.tpc_vote(transaction)
        return transaction

    @staticmethod
    def behind(storage):
        """The position of the first record behind the end."""
        header = storage._read_txn_header(storage.getSize())
        return storage.getSize() + header.headerlen()

    def test_what_is_behind_the_end_is_not_kept(self):
        storage = self.open()
        commit(storage, {0: b'data'})
        aborted = self.write_alone(storage, b'aborted')
        self.assertGreater(os.path.getsize(self.path()), storage.getSize())
        storage.load(oid(0))
        UnpublishedView(storage._view).record(oid(1), self.behind(storage))
        storage.tpc_abort(aborted)
        storage.tpc_finish(self.write_alone(storage, b'changed'))
        self.assertEqual(storage.load(oid(1))[0], b'changed')
