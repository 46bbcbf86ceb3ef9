"""Room for what was voted: none of it is missing at the finish."""

import contextlib
import errno
import os
import tempfile
import time
from unittest import mock

from ZODB.FileStorage import FileStorage
from ZODB.utils import z64

from fsyncstorage import allocation
from fsyncstorage import datafile
from fsyncstorage.commit import reserve as module

from ..support import TestCase
from ..support import begin
from ..support import commit
from ..support import oid
from ..support import vote

ENOSPC = OSError(errno.ENOSPC, 'No space left on device')


class LimitedDisk(datafile.Disk):
    """Which allocates up to some position."""

    limit = None

    def __init__(self):
        self.reserved = []

    def reserve(self, fd, position, length):
        if self.limit is not None and position + length > self.limit:
            raise ENOSPC
        self.reserved.append((position, length))
        super().reserve(fd, position, length)


class ReserveCase(TestCase):

    def setUp(self):
        super().setUp()
        self.disk = LimitedDisk()
        self.patch(datafile, disk=self.disk)
        with open(self.path('probe'), 'wb') as file:
            if not allocation.is_in_place(file.fileno()):
                self.skipTest('this file system reserves nothing')

    def blocks(self, storage):
        """Bytes that the file has on the disk."""
        return os.fstat(storage._file.fileno()).st_blocks * 512


class Storages(ReserveCase):

    def test_it_is_there_from_the_begin_and_given_back(self):
        storage = self.open()
        self.assertTrue(storage.journal.reserve.is_real)
        commit(storage, {1: b'x'})
        self.assertGreaterEqual(self.blocks(storage), module.AHEAD)
        size = os.path.getsize(self.path())
        self.assertEqual(size, storage.getSize())
        storage.close()
        status = os.stat(self.path())
        self.assertLess(status.st_blocks * 512, module.AHEAD // 2)
        self.assertEqual(status.st_size, size)
        stock = FileStorage(self.path())
        self.assertEqual(stock.load(oid(1))[0], b'x')
        stock.close()

    def test_what_a_killed_process_left_is_given_back(self):
        self.open().close()
        with open(self.path(), 'r+b') as file:
            size = os.path.getsize(self.path())
            allocation.allocate(file.fileno(), size, 3 * module.AHEAD)
        storage = self.open()
        self.assertLess(self.blocks(storage), 2 * module.AHEAD)
        self.assertEqual(os.path.getsize(self.path()), size)

    def test_a_full_disk_is_an_error_of_the_vote(self):
        storage = self.open()
        first = vote(storage, {1: bytes(1 << 20)})
        self.disk.limit = storage.journal.reserve._reserved_to
        large = begin(storage)
        storage.store(oid(2), z64, bytes(module.AHEAD), '', large)
        with self.assertRaisesRegex(OSError, f'No space left.*{self.path()}'):
            storage.tpc_vote(large)
        storage.tpc_abort(large)
        self.assertEqual(
            storage.journal.reserve.total, under_way_length(storage))
        storage.tpc_finish(first)
        commit(storage, {3: b'there is room for this'})

    def test_what_there_is_no_room_for_takes_none(self):
        """Of an allocation that fails half way, the first half would stay."""
        storage = self.open()
        large = begin(storage)
        storage.store(oid(1), z64, bytes(2 * module.AHEAD), '', large)
        del self.disk.reserved[:]
        with mock.patch.object(allocation, 'free', lambda fd: 1000):
            with self.assertRaisesRegex(OSError, 'No space left'):
                storage.tpc_vote(large)
        self.assertEqual(self.disk.reserved, [])
        storage.tpc_abort(large)
        commit(storage, {2: b'there is room for this'})

    def fail_to_finish(self, storage, transaction):
        """Its one write fails, and is cut back."""
        failing = mock.Mock(side_effect=OSError(5, 'as if'))
        with mock.patch.object(self.disk, 'write', failing):
            with self.assertRaisesRegex(OSError, 'as if'):
                storage.tpc_finish(transaction)

    def test_after_a_cut_back_it_is_renewed(self):
        """Any truncate frees all of it."""
        storage = self.open()
        held = vote(storage, {1: bytes(100_000)})
        self.fail_to_finish(storage, vote(storage, {2: b'x'}))
        self.assertGreaterEqual(self.blocks(storage), 100_000)
        storage.tpc_finish(held)
        self.assertEqual(storage.journal.reserve.total, 0)

    def test_after_a_cut_back_on_a_full_disk(self):
        storage = self.open()
        held = vote(storage, {1: bytes(100_000)})
        failing = vote(storage, {2: b'x'})
        self.disk.limit = 0
        with self.assertLogs('fsyncstorage', 'ERROR') as logs:
            self.fail_to_finish(storage, failing)
        self.assertIn('could not be reserved again', logs.output[0])
        storage.tpc_finish(held)  # there was room, after all

    def test_a_pack_takes_it_along(self):
        storage = self.open()
        tid = z64
        for number in range(4):
            tid = commit(storage, {1: b'%d' % number}, {1: tid})
        held = vote(storage, {2: bytes(100_000)})
        storage.pack(time.time() + 1, lambda data: [], gc=False)
        self.assertGreaterEqual(self.blocks(storage), 100_000)
        old = os.stat(self.path('Data.fs.old'))
        self.assertLess(old.st_blocks * 512, module.AHEAD // 2)
        storage.tpc_finish(held)

    def test_a_pack_for_which_there_is_no_room(self):
        storage = self.open()
        tid = z64
        for number in range(4):
            tid = commit(storage, {1: b'%d' % number}, {1: tid})
        held = vote(storage, {2: bytes(100_000)})
        self.disk.limit = 1000
        with self.assertRaisesRegex(OSError, 'a pack needs room'):
            storage.pack(time.time() + 1, lambda data: [], gc=False)
        storage.tpc_finish(held)
        self.assertEqual(len(list(storage.iterator())), 5)

    def test_where_there_is_none_each_vote_writes(self):
        with mock.patch.object(allocation, 'is_in_place', lambda fd: False):
            storage = self.open()
        self.assertFalse(storage.journal.reserve.is_real)
        end = storage.getSize()
        transaction = vote(storage, {1: bytes(1000)})
        self.assertGreater(os.path.getsize(self.path()), end + 1000)
        storage.tpc_abort(transaction)
        self.assertEqual(os.path.getsize(self.path()), end)
        commit(storage, {1: b'x'})
        self.assertEqual(self.disk.reserved, [])

    def test_where_large_transactions_are_kept(self):
        """Until they are finished: the error names the directory."""
        for buffering in 1 << 12, 1 << 24:  # the store fails, or the vote
            storage = self.open()
            with (open('/dev/full', 'r+b', buffering) as full,
                  mock.patch.object(
                      tempfile, 'TemporaryFile', return_value=full)):
                transaction = begin(storage)
                with self.assertRaisesRegex(
                        OSError, f"No space left.*'{self.directory}'"):
                    storage.store(
                        oid(1), z64, bytes(2 << 20), '', transaction)
                    storage.tpc_vote(transaction)
                with contextlib.suppress(OSError):
                    storage.tpc_abort(transaction)
            storage.close()

    def test_a_file_system_that_only_says_yes(self):
        self.disk.reserve = lambda fd, position, length: None
        self.assertFalse(self.open().journal.reserve.is_real)


def under_way_length(storage):
    return sum(each.length for each in storage._begun.values())
