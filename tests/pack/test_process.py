"""A pack in a process of its own: what it does, and the same bytes."""

import contextlib
import ctypes
import os
import platform
import random
import shutil
import socket
import sys
import time
import tracemalloc
from unittest import mock

import ZODB
from ZODB.serialize import referencesf

from fsyncstorage import FsyncStorage
from fsyncstorage.pack import bulk
from fsyncstorage.pack import packing
from fsyncstorage.pack import progress

from ..often import often
from ..support import commit
from ..support import oid
from .histories import random_history
from .histories import state
from .processes import PHASES
from .processes import ProcessTestCase
from .processes import on_linux


class Bytes(ProcessTestCase):

    level = 2

    def test_the_same_as_within(self):
        """I15, for whoever packs."""
        packed = 0
        for number in often((3, 18, 41), (3, 4, 17, 18, 23, 41)):
            _, history = random_history(number)
            with open(self.path('history'), 'wb') as file:
                file.write(bytes(history))
            self.check_same(number)
            packed += self.content() != bytes(history)
        self.assertGreater(packed, 1)

    def check_same(self, number):
        outcomes = []
        for pack_process in True, True, False:
            with self.subTest(number, pack_process=pack_process):
                shutil.copy(self.path('history'), self.path())
                with contextlib.suppress(FileNotFoundError):
                    os.remove(self.path('Data.fs.index'))
                storage = FsyncStorage(
                    self.path(), pack_process=pack_process)
                outcome = None
                try:
                    storage.pack(time.time(), referencesf)
                except Exception as error:
                    outcome = type(error), str(error)
                storage.close()
                outcomes.append((outcome, self.content()))
        self.assertEqual(*outcomes[:2])
        self.assertEqual(*outcomes[1:])
        self.assertTrue(self.started)

    def test_what_is_freed(self):
        storage = self.packable()
        before = len(self.content())
        self.assertEqual(len(self.blobs()), 20)
        self.pack(storage)
        self.assertEqual(len(self.started), 1)
        self.assertLess(len(self.content()), before / 2)
        self.assertEqual(len(self.blobs()), 1)
        self.check_nothing_is_left()
        storage.close()
        with ZODB.DB(self.open(blob_dir=self.path('blobs'))
                     ).transaction() as connection:
            self.assertEqual(connection.root()['text'], 'x' * 1900)
            with connection.root()['blob'].open() as file:
                self.assertEqual(file.read(), b'19')

    def test_what_is_committed_meanwhile(self):
        """In every phase; the process copies once more, then the storage."""
        storage = self.packable()
        committed = {}  # phase -> oid

        def commit_one(phase):
            if phase not in committed:
                committed[phase] = 1000 + len(committed)
                commit(storage, {committed[phase]: b'meanwhile'})

        with mock.patch.object(bulk, 'REST_OF_PROCESS', 1):
            self.pack(storage, commit_one)
        self.assertEqual(list(committed), PHASES)
        for _ in range(2):
            for number in committed.values():
                self.assertEqual(storage.load(oid(number))[0], b'meanwhile')
            storage.close()
            storage = self.open(blob_dir=self.path('blobs'))

    def test_the_loop_of_a_server_commits_until_the_swap(self):
        """Then it leaves that to threads, because the append lock is taken."""
        storage = self.packable()
        hold_still = storage.hold_still
        swapping = []

        def told(phase):
            swapping.append((phase == progress.SWAP, storage.is_swapping))

        def hold():
            swapping.append((True, storage.is_swapping))
            hold_still()

        storage.hold_still = hold
        self.pack(storage, told)
        self.assertIn((False, False), swapping)
        self.assertNotIn((False, True), swapping)
        self.assertEqual(swapping[-2:], 2 * [(True, True)])
        self.assertFalse(storage.is_swapping)

    def test_it_gives_way(self):
        storage = self.packable()
        found = set()

        def told(phase):
            if phase != progress.SWAP:
                found.add((
                    os.getpriority(os.PRIO_PROCESS, self.started[0])
                    - os.getpriority(os.PRIO_PROCESS, 0),
                    at_the_disk(self.started[0]),
                    said_in('autogroup', self.started[0]),
                    said_in('oom_score_adj', self.started[0])))

        self.pack(storage, told)
        [(nicer, of_disk, of_session, of_memory)] = found
        # Nobody is nicer than 19, as the tests themselves may be.
        self.assertEqual(
            nicer > 0, os.getpriority(os.PRIO_PROCESS, 0) < NICEST)
        self.assertIn(of_disk, (LOWEST, None))
        if of_session is not None:
            self.assertRegex(of_session, ' nice 10$')
        self.assertIn(of_memory, ('1000', None))

    @on_linux
    def test_it_has_no_file_but_those_of_the_pack(self):
        storage = self.packable()
        found = set()

        def told(phase):
            if phase != progress.SWAP:
                home = f'/proc/{self.started[0]}/fd'
                for number in os.listdir(home):
                    # It reads other files now and then, and closes them.
                    with contextlib.suppress(FileNotFoundError):
                        found.add(os.readlink(os.path.join(home, number)))

        self.pack(storage, told)
        found = {name for name in found if name.startswith(self.directory)}
        # That of the objects that go has no name.
        [nameless] = [name for name in found if name.endswith(' (deleted)')]
        self.assertEqual(
            found - {nameless},
            {self.path(name) for name in (
                'Data.fs', 'Data.fs.pack', 'Data.fs.pack.index',
                'blobs/.removed')})

    def rests_under_the_lock(self, storage, sizes):
        """Pack, with a commit of the next size in each round; return how much
        was left to copy when the append lock was taken, each time."""
        copy_meanwhile = packing._Packing._copy_while_others_commit
        copy_rest = packing._Packing._copy_rest
        rests = []

        def copy_and_commit(packing_it, copier):
            copy_meanwhile(packing_it, copier)
            if sizes:
                commit(storage, {1000 + len(sizes): bytes(sizes.pop(0))})

        def copy(packing_it, copier):
            if storage._commit_lock.locked():
                rests.append(storage.getSize() - copier.copied_to)
            copy_rest(packing_it, copier)

        with mock.patch.multiple(
                packing._Packing, _copy_rest=copy,
                _copy_while_others_commit=copy_and_commit):
            self.pack(storage)
        return rests

    def test_a_rest_that_becomes_smaller(self):
        """It is copied without the append lock, while it halves."""
        sizes = [500_000, 200_000, 90_000, 80_000, 100]
        rest, = self.rests_under_the_lock(self.packable(), sizes)
        self.assertEqual(sizes, [100])
        self.assertAlmostEqual(rest, 80_000, delta=200)

    def test_a_large_transaction_in_a_later_round(self):
        """The append lock is not taken for all of it (I2)."""
        self.assertEqual(
            self.rests_under_the_lock(
                self.packable(), [2 * packing.TINY_REST, 8 << 20]),
            [0])

    def test_no_process_copies_without_end(self):
        size = mock.Mock()
        next_end = bulk.Bulk._next_end(mock.Mock(_size=size))
        for _ in range(2):
            ends = []
            for rest in range(2 * bulk.MOST_ROUNDS, 0, -1):
                size.return_value = rest * bulk.REST_OF_PROCESS
                ends.append(next_end(0))
                if ends[-1] is None:
                    break
            self.assertEqual(len(ends), 1 + bulk.MOST_ROUNDS)

    def test_committers_that_are_faster_have_to_wait(self):
        storage = self.packable()
        hold_still, numbers = storage.hold_still, iter(range(1000, 2000))
        held = []

        def hold():
            commit(storage, {next(numbers): bytes(packing.SMALL_REST)})
            hold_still()
            held.append(storage._commit_lock.locked())

        storage.hold_still = hold
        with mock.patch.object(packing, 'MOST_ROUNDS', 2):
            self.pack(storage)
        self.assertEqual(held, 3 * [True])
        self.assertFalse(storage._commit_lock.locked())
        self.assertEqual(
            storage.load(oid(1002))[0], bytes(packing.SMALL_REST))

    def test_where_sockets_have_a_timeout(self):
        self.addCleanup(socket.setdefaulttimeout, socket.getdefaulttimeout())
        socket.setdefaulttimeout(.001)
        storage = self.packable()
        self.pack(storage)
        self.assertEqual(len(self.started), 1)
        self.assertEqual(len(self.blobs()), 1)

    def test_a_record_that_takes_gigabytes_to_unpickle(self):
        """ZODB's referencesf takes 4 GB for it, and 34 for the next one."""
        storage = self.open()
        tid = commit(storage, {0: state(random.Random(1), [])})
        hostile = (b'\x80\x03cpersistent.mapping\nPersistentMapping\n.'
                   b'\x80\x03Nr\xff\xff\xff\xff.')
        commit(storage, {0: hostile}, {0: tid})
        self.pack(storage)
        self.assertEqual(len(self.started), 1)
        self.assertEqual(storage.load(oid(0))[0], hostile)

    def test_a_record_that_takes_much_to_unpickle_here(self):
        """ZODB's referencesf takes 256 MB for it."""
        storage = self.open(pack_process=False)
        tid = commit(storage, {0: state(random.Random(1), [])})
        commit(storage, {0: (
            b'\x80\x03cpersistent.mapping\nPersistentMapping\n.'
            b'\x80\x03Nr\xff\xff\xff\x00.')}, {0: tid})
        tracemalloc.start()
        self.addCleanup(tracemalloc.stop)
        self.pack(storage)
        self.assertLess(tracemalloc.get_traced_memory()[1], 32 << 20)


NICEST = 19
# Of ioprio_get(2): the lowest priority of those that get their turn.
LOWEST = 2 << 13 | 7
_IOPRIO_GET = {'x86_64': 252, 'aarch64': 31}


def at_the_disk(pid):
    """None: not known on this system."""
    number = _IOPRIO_GET.get(platform.machine())
    if sys.platform != 'linux' or number is None:
        return None
    return ctypes.CDLL(None).syscall(number, 1, pid)


def said_in(name, pid):
    """What /proc has about a process; None: nothing on this system."""
    try:
        with open(f'/proc/{pid}/{name}') as file:
            return file.read().strip()
    except OSError:
        return None
