"""Packs: beside commits and readers, with blobs, on a full disk.

How much of the file is copied under the append lock (I2), and who waits for
that: a transaction that is alone has it from its vote until its client ends
it, which may be never.
"""

import contextlib
import os
import threading
import time
import weakref
from unittest import mock

from ZODB.Connection import TransactionMetaData
from ZODB.serialize import referencesf
from ZODB.utils import newTid

from fsyncstorage import datafile
from fsyncstorage.errors import WritingStopped
from fsyncstorage.format import index
from fsyncstorage.pack import packing
from fsyncstorage.pack import progress
from fsyncstorage.pack.progress import COPY
from fsyncstorage.pack.progress import Cancelled
from fsyncstorage.storage import storage as storages

from ..support import PATIENCE
from ..support import TestCase
from ..support import Thread
from ..support import begin
from ..support import commit
from ..support import oid
from ..support import vote
from .phases import at
from .phases import fill
from .undos import GONE
from .undos import LEAF
from .undos import UndoInPackCase
from .undos import finish


class Packing(TestCase):

    def test_a_restart_at_any_moment_knows_the_index(self):
        """Once Data.fs is another file, its index is there."""
        disk = self.controlled_disk()
        storage = fill(self.open())
        storage.journal.checkpoints.write()
        before = os.stat(self.path()).st_ino
        belongs = []

        def look(name):
            original = getattr(disk, name)

            def call(*args):
                original(*args)
                replaced = os.stat(self.path()).st_ino != before
                belongs.append((replaced, self.index_belongs()))

            setattr(disk, name, call)

        look('sync_directory')
        look('replace')
        storage.pack(time.time() + 1, referencesf)
        self.assertEqual(belongs, [
            (False, False),     # its index gets the name first
            (False, False),     # for good
            (True, True), (True, True)])
        self.assertEqual(
            index.load(self.path('Data.fs.index')).position,
            os.path.getsize(self.path()))

    def index_belongs(self):
        loaded = index.load(self.path('Data.fs.index'))
        with contextlib.closing(
                datafile.open_existing(self.path(), read_only=True)) as file:
            return loaded.fingerprint == index.fingerprint(
                file, loaded.position)

    def test_what_was_cut_off_before_does_not_matter_any_more(self):
        """It was in another file; `none` need not sync for its sake."""
        disk = self.controlled_disk()
        storage = self.open(durability='none')
        tid = commit(storage, {0: b'x' * 9000})
        tid = commit(storage, {0: b'y' * 9000}, {0: tid})
        storage.journal.reserve.is_real = False  # so the vote writes
        storage.tpc_abort(vote(storage, {1: b'z'}))
        storage.journal.reserve.is_real = True
        self.assertGreater(storage.journal.cut_off_at, 0)
        storage.pack(time.time() + 1, lambda data: [], gc=False)
        del disk.log[:]
        commit(storage, {1: b'z'})
        self.assertEqual(disk.log, ['write'])

    def test_an_interrupt_leaves_the_append_lock_free(self):
        """Just after it was taken; and when all is ready to be swapped."""
        storage = self.open()
        first = commit(storage, {0: b'a'})
        commit(storage, {0: b'b'}, {0: first})
        hold_still = storage.hold_still

        def hold_still_and_interrupt():
            hold_still()
            self.assertTrue(storage._commit_lock.locked())
            raise KeyboardInterrupt

        for number, patch in enumerate((
            mock.patch.object(
                storage, 'hold_still', hold_still_and_interrupt),
            mock.patch.object(
                packing, '_freed_later', side_effect=KeyboardInterrupt),
        ), 1):
            with patch, self.assertRaises(KeyboardInterrupt):
                storage.pack(time.time() + 1, lambda data: [], gc=False)
            self.assertFalse(storage._commit_lock.locked())
            commit(storage, {number: b'x'})
        storage.pack(time.time() + 1, lambda data: [], gc=False)

    def test_the_old_file_is_closed_with_its_last_reader(self):
        """Else a file without a name would keep its blocks."""
        storage = fill(self.open(pack_keep_old=False))
        old = weakref.ref(storage._file)
        view = storage.journal.view
        storage.pack(time.time() + 1, referencesf)
        self.assertIsNotNone(old())
        del view
        self.assertIsNone(old())


class Order(TestCase):

    def test_a_closed_storage_replaces_nothing(self):
        """Somebody else may have opened the file meanwhile."""
        storage = self.open()
        first = commit(storage, {0: b'a'})
        commit(storage, {0: b'b'}, {0: first})
        hold_still = storage.hold_still

        def close_first():
            hold_still()
            storage.close()
            other = self.open()
            commit(other, {7: b'of another'})
            other.close()

        storage.hold_still = close_first
        with self.assertRaisesRegex(ValueError, 'closed'):
            storage.pack(time.time() + 1, lambda data: [], gc=False)
        self.assertEqual(self.open().load(oid(7))[0], b'of another')

    def test_a_close_waits_for_the_lock_that_a_pack_has_let_go(self):
        """Somebody may have it, and be writing, before the pack goes on."""
        storage = self.open()
        storage.hold_still()
        seen = []
        storage._still.callback(lambda: seen.append(storage._still))
        storage.move_on()
        self.assertEqual(seen, [None])

    def test_a_swap_that_is_broken_off_stops_writing(self):
        for name in 'replace_file', 'sync_directory':
            with self.subTest(name):
                disk = self.controlled_disk()
                storage = self.open(name)
                first = commit(storage, {0: b'a'})
                commit(storage, {0: b'b'}, {0: first})
                calls = []

                def fail(*args):
                    calls.append(args)
                    if name == 'replace_file' or len(calls) == 2:
                        raise KeyboardInterrupt

                owner = storage if name == 'replace_file' else disk
                setattr(owner, name, fail)
                with self.assertRaises(KeyboardInterrupt):
                    storage.pack(time.time() + 1, lambda data: [], gc=False)
                with self.assertRaisesRegex(WritingStopped, 'a pack failed'):
                    commit(storage, {1: b'x'})
                storage.close()
                self.assertEqual(self.open(name).load(oid(0))[0], b'b')


class Restored(UndoInPackCase):

    def test_what_is_restored_beside_a_pack_has_its_own_data(self):
        """The pack has not seen what it would point back to; and data that
        take the place of a pointer are not counted as a rest."""
        for pack_process in True, False:
            storage = self.filled(pack_process=pack_process)
            data = self.state() + os.urandom(5000)
            stored = self.store({LEAF: data})
            self.store({LEAF: self.state()})
            self.later()
            sizes = [self.restored(data, stored)]
            self.assertEqual(storage.load(oid(LEAF))[0], data)
            self.pack(COPY, lambda sizes=sizes, data=data, stored=stored: (
                sizes.append(self.restored(data, stored))))
            with self.subTest(pack_process=pack_process):
                self.assertLess(sizes[0], 1000)
                self.assertGreater(sizes[1], len(data))

    def restored(self, data, stored):
        """As a copy from another storage does; return the bytes that it takes.
        """
        storage = self.storage
        size, transaction = storage.getSize(), TransactionMetaData()
        tid = newTid(storage.lastTransaction())
        storage.tpc_begin(transaction, tid)
        storage.restore(oid(LEAF), tid, data, '', stored, transaction)
        finish(storage, transaction)
        self.wanted[LEAF] = data
        return storage.getSize() - size


class Waiting(UndoInPackCase):

    def voted(self):
        """A transaction that is written behind the end of the file."""
        storage = self.storage
        transaction = begin(storage)
        self.wanted = {GONE: self.state(), LEAF: self.first[LEAF]}
        storage.restore(oid(GONE), self.deleted, self.wanted[GONE], '', None,
                        transaction)
        storage.tpc_vote(transaction)
        return transaction

    def waiting(self):
        """A pack that looks, again and again, whether it must end."""
        looks = threading.Semaphore(0)

        class PackWatch(progress.PackWatch):
            def go_on(self):
                looks.release()
                super().go_on()

        self.patch(storages, LOOK_EVERY=.001)
        self.patch(packing, PackWatch=PackWatch)
        pack = Thread(self.storage.pack, self.time, referencesf)
        for _ in range(100):
            self.assertTrue(looks.acquire(timeout=PATIENCE), 'it waits')
        return pack

    def check_as_before(self):
        storage = self.storage
        self.assertIsNone(storage.pack_watch)
        self.assertFalse(storage.is_packing)
        self.assertNotIn(self.name + '.pack', os.listdir(self.directory))

    def cancel(self, transaction, pack):
        """The transaction is not disturbed."""
        storage = self.storage
        storage.packs.cancel()
        with self.assertRaises(Cancelled):
            pack.result()
        self.check_as_before()
        storage.tpc_finish(transaction)
        storage.pack(self.time, referencesf)
        self.check()

    def close(self, transaction, pack):
        storage = self.storage
        storage.close()
        with self.assertRaisesRegex(ValueError, 'closed'):
            pack.result()
        self.check_as_before()
        storage.tpc_abort(transaction)

    def go_on(self, transaction, pack):
        """The wait is over when the transaction is."""
        storage = self.storage
        storage.tpc_finish(transaction)
        pack.result()
        self.check_as_before()
        self.check()

    def at_its_begin(self):
        transaction = self.voted()
        return transaction, self.waiting()

    def at_its_end(self):
        voted = []
        with at(COPY, lambda watch: voted.append(self.voted())):
            pack = self.waiting()
        return *voted, pack

    def test_each(self):
        for begin_to_wait in self.at_its_begin, self.at_its_end:
            for end in self.cancel, self.close, self.go_on:
                with self.subTest(begin_to_wait.__name__, end=end.__name__):
                    self.filled(pack_process=False)
                    end(*begin_to_wait())
