"""A transaction is an object: its records, and nothing of it elsewhere.

Serials of records that were written lately are known without reading; tids are
those that ZODB gives.
"""

import contextlib
import errno
import gc
import itertools
import os
import random
import time
import tracemalloc
import unittest
from unittest import mock

from ZODB.utils import newTid
from ZODB.utils import p64
from ZODB.utils import z64

from fsyncstorage.storage import transaction
from fsyncstorage.storage import transaction as module
from fsyncstorage.storage.spool import Spool
from fsyncstorage.storage.tids import Tids

from ..often import often
from ..support import TestCase
from ..support import begin
from ..support import commit
from ..support import oid
from ..support import owners
from ..support import under_way
from ..support import vote


class Owners(TestCase):

    def test_its_memory_goes_with_it(self):
        storage = self.open()
        for end in 'tpc_finish', 'tpc_abort':
            transaction = vote(storage, {1: bytes(2 << 20)}, {
                1: storage.getTid(oid(1)) if len(storage) else z64})
            made = id(under_way(storage))
            spool = under_way(storage)._spool._file
            getattr(storage, end)(transaction)
            self.assertTrue(spool.closed)
            del spool
            self.assertNotIn(made, [
                id(each) for each in gc.get_objects()
                if isinstance(each, module.Transaction)])

    def test_a_full_disk_takes_nothing_of_what_was_stored_before(self):
        """Also if the caller goes on, after the store that has failed."""
        storage, add = self.open(), Spool.add
        for at in 1, 2, 3:
            calls = itertools.count(1)

            def full(spool, *arguments, **options):
                if next(calls) == at:
                    raise OSError(errno.ENOSPC, 'full')
                return add(spool, *arguments, **options)

            transaction = begin(storage)
            kept = []
            with mock.patch.object(Spool, 'add', full):
                for number in range(at * 10, at * 10 + 5):
                    with contextlib.suppress(OSError):
                        storage.store(oid(number), z64, bytes([number]) * (
                            400 << 10), '', transaction)
                        kept.append(number)
            storage.tpc_vote(transaction)
            storage.tpc_finish(transaction)
            self.assertEqual(len(kept), 4)
            for number in kept:
                data, _ = storage.load(oid(number))
                self.assertEqual(data, bytes([number]) * (400 << 10))
        self.assertEqual(len(storage), 12)

    def test_what_changes_again_and_again_is_never_read(self):
        storage, tid = self.open(), z64
        with mock.patch.object(module, 'MOST_SERIALS', 10), \
                mock.patch.object(os, 'pread', side_effect=self.fail):
            for _ in range(20):
                tid = commit(storage, {1: b'data'}, {1: tid})

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
        self.assertEqual(storage.journal.reserve.total, 0)


class Spooled(TestCase):

    def test_its_conflicts_are_resolved_from_the_file(self):
        """At the vote: what is merged comes behind all that is there."""
        storage = self.open()
        storage.tryToResolveConflict = lambda *args: args[3] + b' merged'
        first = commit(storage, {1: b'one', 2: b'two'})
        data = {number: b'%d' % number * module.SPOOL_IN_MEMORY
                for number in (1, 2)}
        late = begin(storage)
        for number, each in data.items():
            storage.store(oid(number), first, each, '', late)
        second = commit(storage, {1: b'x', 2: b'x'}, {1: first, 2: first})
        storage.store(oid(3), z64, b'three', '', late)
        commit(storage, {1: b'y', 2: b'y'}, {1: second, 2: second})
        storage.tpc_vote(late)
        tid = storage.tpc_finish(late)
        self.assertEqual(storage.load(oid(3)), (b'three', tid))
        for number, each in data.items():
            self.assertEqual(
                storage.load(oid(number)), (each + b' merged', tid))


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
        self.assertGreater(os.path.getsize(self.path()), storage.getSize())
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


class Serials(TestCase):

    def setUp(self):
        super().setUp()
        self.storage = self.open(durability='none')
        self.serials = self.storage._file.serials

    def test_a_restored_record_has_its_own(self):
        tid, serial = p64(1 << 60), p64(1 << 50)
        description = begin(self.storage)
        self.storage.tpc_abort(description)
        self.storage.tpc_begin(description, tid, ' ')
        self.storage.restore(oid(1), serial, b'one', '', None, description)
        self.storage.tpc_vote(description)
        self.storage.tpc_finish(description)
        self.assertEqual([*self.serials.values()], [serial])

    def test_what_is_written_in_the_place_of_a_failed_one(self):
        first = commit(self.storage, {1: b'one'})
        disk = self.controlled_disk()
        failed = vote(self.storage, {1: b'two'}, {1: first})
        with mock.patch.object(disk, 'write', side_effect=OSError):
            with self.assertRaises(OSError):
                self.storage.tpc_finish(failed)
        second = commit(self.storage, {1: b'new'}, {1: first})
        third = commit(self.storage, {1: b'last'}, {1: second})
        self.assertEqual(self.storage.load(oid(1))[1], third)

    def test_those_of_one_that_was_cut_off_are_forgotten(self):
        self.patch(module, MOST_SERIALS=3)
        storage = self.storage
        for numbers, serial, end in (
                (range(3), p64(1 << 50), storage.tpc_abort),
                (range(4), p64(1 << 51), storage.tpc_finish)):
            transaction = begin(storage)
            for number in numbers:
                storage.restore(
                    oid(number), serial, b'x', '', None, transaction)
            storage.tpc_vote(transaction)
            end(transaction)
        commit(storage, {0: b'y'}, {0: serial})

    def test_after_a_pack_they_are_those_of_the_new_file(self):
        first = commit(self.storage, {1: b'one', 2: b'two'})
        second = commit(self.storage, {2: b'other'}, {2: first})
        self.storage.pack(time.time() + 1, lambda data: [], gc=False)
        self.assertIsNot(self.storage._file.serials, self.serials)
        self.assertEqual(self.storage._file.serials, {})
        commit(self.storage, {1: b'1'}, {1: first})
        commit(self.storage, {2: b'2'}, {2: second})

    def test_they_do_not_grow_without_end(self):
        with mock.patch.object(transaction, 'MOST_SERIALS', 5):
            for number in range(20):
                commit(self.storage, {number: b'x'})
                self.assertLessEqual(len(self.serials), 5)
            commit(self.storage, {number: b'y' for number in range(30, 40)})
            self.assertLessEqual(len(self.serials), 5)


STEPS = 0, 1e-7, 1e-6, 0.001, 0.5, 7.3, 59.999, 60, 61, -3, 31 * 86400


class TidsTests(unittest.TestCase):

    def test_they_are_those_of_zodb(self):
        """Whatever the clock does, to the last bit."""
        choose = random.Random(3)
        tids, last, now = Tids(), z64, 1e9
        with mock.patch.object(time, 'time', lambda: now):
            for _ in range(often(2000, 20_000)):
                now += choose.choice(STEPS)
                tid = tids.next(last)
                self.assertEqual(tid, newTid(last))
                last = choose.choice((tid, tid, z64))
