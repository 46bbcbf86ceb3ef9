"""The object map: complete, up to date, sealed, and retired in time (I14)."""

import fcntl
import gc
import itertools
import mmap
import os
import threading
import time
import unittest
from unittest import mock

from ZODB.serialize import referencesf
from ZODB.utils import z64

from fsyncstorage.errors import DiskError
from fsyncstorage.errors import WritingStopped
from fsyncstorage.format import objectmap as layout
from fsyncstorage.format.objectmap import MapReader
from fsyncstorage.format.objectmap import NotAMap
from fsyncstorage.storage import objectmap
from fsyncstorage.storage.objectmap import NoMap

from ..support import PATIENCE
from ..support import TestCase
from ..support import Thread
from ..support import commit
from ..support import oid
from ..support import vote

INSTANCE = bytes(range(16))


@unittest.skipUnless(layout.is_possible(), 'needs sealed memory')
class MapTestCase(TestCase):

    def descriptors(self, made):
        """Of the data file and of the map, as a client gets them."""
        descriptors = made.open()
        for each in descriptors:
            self.addCleanup(os.close, each)
        return descriptors

    def reader(self, storage):
        _, descriptor = self.descriptors(storage.object_map())
        return MapReader(descriptor, storage.instance)

    def check_equal_to_index(self, storage, reader):
        index = storage.journal.positions
        for each in index:
            if reader.get(each) != index[each]:
                self.assertEqual((each, reader.get(each)),
                                 (each, index[each]))


class Content(MapTestCase):

    def check(self, *numbers):
        storage = self.open()
        commit(storage, {number: b'data' for number in numbers})
        reader = self.reader(storage)
        self.check_equal_to_index(storage, reader)
        for number in numbers:
            for beside in number - 1, number + 1, number ^ 512:
                if beside >= 0 and beside not in numbers:
                    self.assertIsNone(reader.get(oid(beside)))
        return storage, reader

    def test_with_gaps(self):
        self.check(*range(0, 5000, 3))

    def test_over_the_bounds_of_chunks_and_buckets(self):
        self.check(0, 1, 511, 512, 1023, 65535, 65536, 1 << 20,
                   (1 << 48) - 1, 1 << 48, (254 << 56) + 1)

    def test_nothing(self):
        storage, reader = self.check()
        self.assertIsNone(reader.get(z64))
        self.assertEqual(reader.get(z64, 7), 7)

    def test_what_is_appended_later(self):
        storage, reader = self.check(1, 2, 600)
        tid = commit(storage, {1: b'changed', 3: b'new', 70000: b'far'},
                     {1: storage.getTid(oid(1))})
        self.assertEqual(storage.lastTransaction(), tid)
        self.check_equal_to_index(storage, reader)

    def test_built_while_others_commit(self):
        storage = self.open(durability='none')
        commit(storage, dict.fromkeys(range(3000), b'data'))
        serial = storage.lastTransaction()
        begun, end = threading.Event(), threading.Event()

        def change():
            for number in itertools.cycle(range(3000)):
                if end.is_set():
                    return
                serials[number] = commit(
                    storage, {number: b'changed', 3000 + next(more): b'new'},
                    {number: serials.get(number, serial)})
                begun.set()

        serials, more = {}, itertools.count()
        thread = Thread(change)
        try:
            self.assertTrue(begun.wait(PATIENCE))
            with mock.patch.object(objectmap, 'BUILD_FOR', 0):
                for _ in range(20):
                    storage.retire_map()
                    reader = self.reader(storage)
        finally:
            end.set()
            thread.result()
        self.check_equal_to_index(storage, reader)


class Ends(MapTestCase):
    """END and DURABLE are stored before anybody can know of what is there."""

    def open_and_read(self, **options):
        storage = self.open(**options)
        commit(storage, {1: b'data'})
        return storage, self.reader(storage)

    def test_a_position_comes_before_the_sync_the_ends_behind_it(self):
        disk = self.controlled_disk()
        storage, reader = self.open_and_read()
        end, position = reader.marks()[0], reader.get(oid(1))
        transaction = vote(
            storage, {1: b'changed'}, {1: storage.getTid(oid(1))})
        disk.hold_syncs()
        ends = []
        finishing = Thread(storage.tpc_finish, transaction,
                           lambda tid: ends.append(
                               reader.marks()[:2]))
        disk.wait_for_sync()
        self.assertGreater(reader.get(oid(1)), position)
        self.assertEqual(reader.marks()[:2], (end, end))
        disk.release_syncs()
        finishing.result()
        size = storage.getSize()
        # Synced, and then published.
        self.assertEqual(ends, [(end, size)])
        self.assertEqual(reader.marks()[:2], (size, size))

    def test_a_policy_that_publishes_first(self):
        for durability in 'none', 'interval':
            with self.subTest(durability):
                storage, reader = self.open_and_read(
                    name=durability, durability=durability,
                    sync_interval='1h')
                storage._sequencer.sync_to(storage.getSize())
                durable = reader.marks()[1]
                commit(storage, {2: b'data'})
                self.assertEqual(reader.marks()[0], storage.getSize())
                self.assertEqual(reader.marks()[1], durable)
                storage._sequencer.sync_to(storage.getSize())
                self.assertEqual(reader.marks()[1], storage.getSize())

    def test_what_is_told_late_changes_nothing(self):
        storage = self.open()
        commit(storage, {1: b'data'})
        made = storage.object_map()
        reader = self.reader(storage)
        made.show(4)
        made.is_durable(4)
        self.assertEqual(reader.marks()[0], storage.getSize())
        self.assertEqual(reader.marks()[1], storage.getSize())


class Retired(MapTestCase):

    def open_and_read(self, **options):
        storage = self.open(**options)
        self.serial = commit(storage, {0: b'data', 1: b'data'})
        return storage, self.reader(storage)

    def test_by_a_pack_before_the_first_commit_to_the_new_file(self):
        storage, reader = self.open_and_read()
        commit(storage, {1: b'changed'}, {1: self.serial})
        seen = []

        def replace(file, index, end):
            seen.append((reader.retired, storage._file is file))
            real(file, index, end)
            seen.append((reader.retired, storage._file is file))

        real = storage.replace_file
        with mock.patch.object(storage, 'replace_file', replace):
            storage.pack(time.time(), referencesf, gc=False)
        self.assertEqual(seen, [(False, False), (True, True)])
        made = storage.object_map()
        new = self.reader(storage)
        self.check_equal_to_index(storage, new)
        status = os.stat(self.path())
        self.assertTrue(new.is_of(status))
        self.assertFalse(reader.is_of(status))
        self.assertTrue(os.path.samestat(
            os.fstat(self.descriptors(made)[0]), status))

    def test_by_a_failed_sync_before_it_is_told(self):
        disk = self.controlled_disk()
        storage, reader = self.open_and_read()
        transaction = vote(storage, {1: b'changed'}, {1: self.serial})
        disk.fail_sync(OSError('the disk failed'))
        retired = []
        fail = storage._sequencer._fail
        with mock.patch.object(
                storage._sequencer, '_fail',
                lambda error: retired.append(reader.retired) or fail(error)):
            with self.assertRaises(DiskError):
                storage.tpc_finish(transaction)
        self.assertEqual(retired, [True])
        with self.assertRaises(WritingStopped):
            storage.object_map()

    def test_then_another_is_built_and_not_before(self):
        storage, reader = self.open_and_read()
        made = storage.object_map()
        self.assertIs(storage.object_map(), made)
        made.retire()
        self.assertTrue(reader.retired)
        self.assertIsNot(storage.object_map(), made)

    @staticmethod
    def descriptors_of(path):
        return [number for number in os.listdir('/proc/self/fd')
                if os.path.realpath(f'/proc/self/fd/{number}') == path]

    def test_not_by_the_child_of_a_fork(self):
        storage = self.open()
        self.serial = commit(storage, {0: b'data', 1: b'data'})
        data_file, descriptor = storage.object_map().open()
        reader = MapReader(descriptor, storage.instance)
        os.close(data_file)
        os.close(descriptor)
        child = os.fork()
        if not child:
            storage.close()
            os._exit(len(self.descriptors_of(self.path())))
        _, status = os.waitpid(child, 0)
        self.assertEqual(status, 0)
        self.assertFalse(reader.retired)
        commit(storage, {1: b'changed'}, {1: self.serial})
        self.check_equal_to_index(storage, reader)


class Bounds(MapTestCase):
    """A map takes 32 bytes an object, and 1 MB beside."""

    APART = range(0, 512 * 300, 512)

    def test_oids_that_lie_far_apart(self):
        storage = self.open()
        commit(storage, dict.fromkeys(self.APART, b'data'))
        with self.assertRaisesRegex(NoMap, 'too far apart'):
            storage.object_map()
        commit(storage, {1: b'data'})
        self.assertIsNone(storage.journal.map)

    def test_whatever_goes_wrong_does_not_reach_a_commit(self):
        storage = self.open()
        serial = commit(storage, {1: b'data'})
        made = storage.object_map()
        with mock.patch.object(
                made, '_chunk', side_effect=ValueError('no')):
            commit(storage, {1: b'new'}, {1: serial})
        self.assertTrue(made.is_retired)

    def test_no_memory(self):
        storage = self.open()
        commit(storage, {1: b'data'})
        full = mock.patch.object(os, 'posix_fallocate', side_effect=OSError)
        gc.collect()  # files of other tests
        before = len(os.listdir('/dev/fd'))
        with full, self.assertRaises(NoMap):
            storage.object_map()
        self.assertEqual(len(os.listdir('/dev/fd')), before)
        made = storage.object_map()
        with full:
            commit(storage, {600 * 40: b'data'})
            self.assertFalse(made.is_retired)  # there was some ahead
            commit(storage, dict.fromkeys(
                range(100_000, 100_000 + 512 * 40, 512), b'data'))
        self.assertTrue(made.is_retired)

    def test_a_reader_touches_only_what_is_allocated(self):
        """The page of the directory behind its last word, too."""
        pages = set()

        def allocate(descriptor, position, size):
            real(descriptor, position, size)
            pages.update(range(position // layout.PAGE,
                               (position + size) // layout.PAGE))

        real = os.posix_fallocate
        with mock.patch.object(os, 'posix_fallocate', allocate):
            made = self.open().object_map()
            made._objects = 1 << 20
            for prefix in range(2 * layout.WORDS_OF_A_PAGE):
                directory = layout.DIRECTORY + prefix
                self.assertLessEqual(
                    {8 * word // layout.PAGE for word in (
                        made._chunk(prefix), directory, directory + 1)},
                    pages)

    def test_not_of_a_node_that_others_may_have_left_behind(self):
        storage = self.open()
        commit(storage, {1: b'data'})
        for answers in [False], [True, False]:  # before it is built, or after
            storage.replica = mock.Mock(
                may_answer=mock.Mock(side_effect=answers))
            with self.assertRaisesRegex(NoMap, 'another node'):
                storage.object_map()

    def test_not_of_a_read_only_storage(self):
        self.open().close()
        with self.assertRaisesRegex(NoMap, 'read-only'):
            self.open(read_only=True).object_map()


class Sealed(MapTestCase):
    """Whoever has the descriptors can read, and nothing else."""

    def setUp(self):
        super().setUp()
        self.storage = self.open()
        commit(self.storage, {1: b'data'})
        self.data, self.map = self.descriptors(self.storage.object_map())
        self.size = os.fstat(self.map).st_size

    def test_not_written_and_not_resized(self):
        for descriptor in self.data, self.map:
            for tried in (
                    lambda: os.pwrite(descriptor, b'x', 0),
                    lambda: os.ftruncate(descriptor, 10),
                    lambda: os.ftruncate(descriptor, 1 << 30),
                    lambda: mmap.mmap(descriptor, 0)):
                self.assertRaises((OSError, PermissionError), tried)

    def test_not_through_proc_either(self):
        again = os.open(f'/proc/self/fd/{self.map}', os.O_RDWR)
        self.addCleanup(os.close, again)
        for tried in (
                lambda: os.pwrite(again, b'x', 0),
                lambda: os.ftruncate(again, 10),
                lambda: os.ftruncate(again, self.size * 2),
                lambda: os.posix_fallocate(again, self.size, 4096),
                lambda: mmap.mmap(again, 0),
                lambda: fcntl.fcntl(again, fcntl.F_ADD_SEALS,
                                    fcntl.F_SEAL_WRITE)):
            self.assertRaises(OSError, tried)
        commit(self.storage, {2: b'data'})
        reader = MapReader(self.map, self.storage.instance)
        self.assertEqual(reader.marks()[0],
                         self.storage.getSize())

    def test_each_client_has_open_files_of_its_own(self):
        os.set_blocking(self.data, False)
        os.lseek(self.data, 10, os.SEEK_SET)
        other, _ = self.descriptors(self.storage.journal.map)
        self.assertTrue(os.get_blocking(other))
        self.assertEqual(os.lseek(other, 0, os.SEEK_CUR), 0)


@unittest.skipUnless(layout.is_possible(), 'needs sealed memory')
class HostileMaps(TestCase):
    """What a MapReader is given may be anything."""

    CAPACITY = 512

    def memory(self, size=None, seals=fcntl.F_SEAL_SHRINK, **words):
        descriptor = os.memfd_create('hostile', os.MFD_ALLOW_SEALING)
        self.addCleanup(os.close, descriptor)
        os.ftruncate(descriptor, size or layout.size_of(self.CAPACITY))
        words = {'MAGIC': layout.MAGIC_WORD, 'CAPACITY': self.CAPACITY,
                 **words}
        for name, value in words.items():
            os.pwrite(descriptor, value.to_bytes(8, 'little'),
                      8 * getattr(layout, name))
        os.pwrite(descriptor, INSTANCE, 8 * layout.INSTANCE)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
        return descriptor

    def check_refused(self, descriptor, reason, instance=INSTANCE):
        with self.assertRaisesRegex(NotAMap, reason):
            MapReader(descriptor, instance)

    def test_a_sound_one(self):
        reader = MapReader(self.memory(END=77), INSTANCE)
        self.assertEqual(reader.marks()[0], 77)
        self.assertIsNone(reader.get(oid(5)))

    def test_one_that_could_be_cut_off(self):
        self.check_refused(self.memory(seals=0), 'not sealed')

    def test_another_instance(self):
        self.check_refused(self.memory(), 'of this server', bytes(16))

    def test_another_format(self):
        self.check_refused(self.memory(MAGIC=5), 'not an object map')
        self.check_refused(
            self.memory(MAGIC=layout.MAGIC_WORD + 1), 'a map of version 4')

    def test_another_length(self):
        self.check_refused(self.memory(CAPACITY=1024), 'its length')
        self.check_refused(self.memory(CAPACITY=(1 << 64) - 1), 'its length')
        self.check_refused(self.memory(8), 'has .* bytes')
        self.check_refused(self.memory(1 << 50), 'bytes')

    def test_no_memory_at_all(self):
        reading, writing = os.pipe()
        self.addCleanup(os.close, reading)
        self.addCleanup(os.close, writing)
        self.check_refused(reading, 'no memory')
        with open(self.path('file'), 'wb') as file:
            file.truncate(layout.size_of(self.CAPACITY))
        with open(self.path('file'), 'rb') as file:
            # (A file in memory has flags of seals, and none is set.)
            self.check_refused(
                file.fileno(), 'cannot be mapped|it is not sealed')
        self.check_refused(-1, 'cannot be mapped')

    def test_a_directory_without_an_end(self):
        descriptor = self.memory()
        reader = MapReader(descriptor, INSTANCE)
        os.pwrite(descriptor, b'\xff' * 8 * self.CAPACITY,
                  8 * layout.DIRECTORY)
        self.assertIsNone(reader.get(oid(5)))
        self.assertEqual(len(reader._chunks), 1)
