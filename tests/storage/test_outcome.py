"""What became of a commit whose answer was lost: `outcome` and `bar`.

COMMITTED only for what is published; NOT_COMMITTED only for what is not there,
and never will be.  What a crash leaves is asked in tests/crash.
"""

import collections
import contextlib
import errno
import os
import pickle
import random
import time
from unittest import mock

from ZODB.Connection import TransactionMetaData
from ZODB.FileStorage import FileStorage
from ZODB.POSException import ConflictError
from ZODB.POSException import StorageTransactionError
from ZODB.serialize import referencesf
from ZODB.TimeStamp import TimeStamp
from ZODB.utils import newTid
from ZODB.utils import z64

from fsyncstorage import AsyncFinish
from fsyncstorage import datafile
from fsyncstorage.errors import Barred
from fsyncstorage.errors import DiskError
from fsyncstorage.errors import Occupied
from fsyncstorage.errors import OutcomeUnknown
from fsyncstorage.errors import SyncFailed
from fsyncstorage.errors import WritingStopped
from fsyncstorage.format import scan
from fsyncstorage.format import seal
from fsyncstorage.format.window import Window
from fsyncstorage.storage import outcome
from fsyncstorage.storage import tids
from fsyncstorage.storage import transaction as transactions
from fsyncstorage.storage.outcome import COMMITTED
from fsyncstorage.storage.outcome import NOT_COMMITTED
from fsyncstorage.storage.outcome import UNKNOWN

from ..often import often
from ..support import ControlledDisk
from ..support import TestCase
from ..support import Thread
from ..support import commit
from ..support import oid
from ..support import until

ID = b'the id of it ...'
OTHER = b'that of another.'
LATER_THAN_ALL = b'\x7f' * 8


def voted(storage, id, number=1, serial=z64, tid=None, data=b'x', **metadata):
    transaction = TransactionMetaData(**metadata)
    if id is not None:
        outcome.name(transaction, id)
    storage.tpc_begin(transaction, tid)
    storage.store(oid(number), serial, data, '', transaction)
    storage.tpc_vote(transaction)
    return transaction


def committed(storage, id, number=1, serial=z64, **more):
    return storage.tpc_finish(voted(storage, id, number, serial, **more))


class OutcomeCase(TestCase):

    def assert_committed(self, storage, id, since, tid):
        self.assertEqual(storage.outcome(id, since), (COMMITTED, tid, ''))

    def assert_not_committed(self, storage, id, since):
        self.assertEqual(
            storage.outcome(id, since), (NOT_COMMITTED, None, ''))

    def assert_unknown(self, storage, id, since, words='.'):
        found = storage.outcome(id, since)
        self.assertEqual(found[:2], (UNKNOWN, None))
        self.assertRegex(found.reason, words)


class Outcomes(OutcomeCase):

    def test_what_is_there_and_what_is_not(self):
        storage = self.open()
        self.assert_not_committed(storage, ID, z64)
        before = commit(storage, {0: b'x'})
        tid = committed(storage, ID)
        after = commit(storage, {2: b'x' * 200_000})
        for since in z64, before:
            self.assert_committed(storage, ID, since, tid)
        for since in z64, before, tid, after:
            self.assert_not_committed(storage, OTHER, since)
        storage.close()
        for options in {}, {'checksums': False}:
            with contextlib.closing(self.open(**options)) as storage:
                self.assert_committed(storage, ID, before, tid)
                self.assert_not_committed(storage, OTHER, before)

    def test_after_a_transaction_that_is_not_there(self):
        storage = self.open()
        first = commit(storage, {0: b'x'})
        second = committed(storage, ID)
        between = bytes(first[:-1]) + bytes([first[-1] ^ 1])
        for since in LATER_THAN_ALL, b'\0' * 7 + b'\1', between:
            self.assert_unknown(storage, OTHER, since, 'is not there')
        self.assert_committed(storage, ID, between, second)

    def test_it_is_not_told_before_it_is_published(self):
        disk = self.controlled_disk()
        storage = self.open()
        since = commit(storage, {0: b'x'})
        for fails in False, True:
            with self.subTest(fails=fails):
                disk.hold_again()
                id = ID if fails else OTHER
                finish = Thread(committed, storage, id, 1 + fails)
                disk.wait_for_sync()
                asking = Thread(storage.outcome, id, since)
                until(lambda: any(
                    each.sleepers for each in
                    storage._sequencer.pipeline.queue), 'it waits')
                self.assertTrue(asking.is_alive())
                if fails:
                    disk.fail_sync(OSError('the disk is gone'))
                disk.release_syncs()
                if fails:
                    self.assertRaises(SyncFailed, finish.result)
                    self.assertEqual(asking.result().word, UNKNOWN)
                else:
                    self.assertEqual(
                        asking.result(), (COMMITTED, finish.result(), ''))
        # That one is durable.
        self.assertEqual(storage.outcome(OTHER, since).word, COMMITTED)
        self.assert_unknown(storage, b'never heard of..', since, 'sync')

    def test_the_bound(self):
        self.patch(outcome, MOST_TRANSACTIONS=3)
        storage = self.open()
        tids = [committed(storage, number.to_bytes(16, 'big'), number)
                for number in range(1, 6)]
        self.assert_not_committed(storage, ID, tids[2])
        self.assert_unknown(storage, ID, tids[1], 'has ended')
        self.assert_unknown(storage, ID, z64, 'has ended')


class WithoutId(OutcomeCase):
    """Of what has none, nothing is claimed, nor of what is before that."""

    def assert_hides(self, write, **options):
        name = self.id()
        storage = self.open(name)
        since = commit(storage, {0: b'x'})
        tid = committed(storage, ID)
        storage.close()
        write(since)
        storage = self.open(name, **options)
        last = storage.lastTransaction()
        self.assertGreater(last, tid)
        self.assert_committed(storage, ID, since, tid)
        self.assert_unknown(storage, OTHER, since, 'no commit id')
        self.assert_unknown(storage, OTHER, z64)
        self.assert_not_committed(storage, OTHER, last)
        return storage

    def test_a_given_tid(self):
        def write(since):
            with contextlib.closing(self.open(self.id())) as storage:
                committed(storage, None, 2, tid=newTid(
                    storage.lastTransaction()))

        storage = self.assert_hides(write)
        for call in voted, committed:  # and there is no transaction under way
            with self.assertRaisesRegex(StorageTransactionError, 'commit id'):
                call(storage, OTHER, 3, tid=LATER_THAN_ALL)

    def test_no_room_for_a_seal(self):
        def write(since):
            with contextlib.closing(self.open(self.id())) as storage:
                committed(storage, OTHER, 2, extension=pickle.dumps(
                    {'x': 'y' * 65480}))

        self.assert_hides(write)

    def test_stock(self):
        def write(since):
            with contextlib.closing(
                    FileStorage(self.path(self.id()))) as storage:
                commit(storage, {2: b'x'})

        self.assert_hides(write)

    def test_what_stock_has_moved(self):
        """By a pack up to before it."""
        storage = self.open()
        first = commit(storage, {0: b'old'})
        since = commit(storage, {0: b'x'}, {0: first})
        committed(storage, ID)
        last = commit(storage, {2: b'x'})
        storage.close()
        stock = FileStorage(self.path())
        stock.pack(TimeStamp(since).timeTime() + 1e-6, referencesf, gc=False)
        stock.close()
        storage = self.open()
        # Its seal was made for another place.  A pack of ours makes one for
        # this place; but what is in the other one was not checked.
        self.assert_unknown(storage, ID, since)
        commit(storage, {2: b'something to pack'}, {2: last})
        size = storage.getSize()
        storage.pack(time.time(), referencesf, gc=False)
        self.assertLess(storage.getSize(), size)
        self.assert_unknown(storage, ID, since)


class Packs(OutcomeCase):

    def pack(self, storage, tid):
        storage.pack(
            TimeStamp(tid).timeTime() + 1e-6, referencesf, gc=False)

    def test_a_pack(self):
        storage = self.open()
        first = committed(storage, ID)
        gone = committed(storage, OTHER, 0)
        last_packed = commit(storage, {0: b'x'}, {0: gone})
        self.let_the_clock_go_on(last_packed)
        later_id = b'x' * 16
        later = committed(storage, later_id, 0, last_packed)
        self.pack(storage, last_packed)
        for _ in range(2):
            self.assert_committed(storage, ID, z64, first)
            self.assert_committed(storage, later_id, last_packed, later)
            for since in z64, first, last_packed:
                self.assert_unknown(storage, OTHER, since, 'pack')
            self.assert_unknown(storage, OTHER, gone)
            self.assert_not_committed(storage, OTHER, later)
            storage.close()
            storage = self.open()
        self.pack(storage, later)
        self.assert_unknown(storage, OTHER, later, 'pack')
        self.assert_committed(storage, later_id, z64, later)

    def let_the_clock_go_on(self, tid):
        """A pack time has microseconds, and tids are nearer to each other."""
        until(lambda: time.time() > TimeStamp(tid).timeTime() + 1e-4,
              'the clock goes on')

    def test_it_is_asked_while_a_pack_replaces_the_file(self):
        """By the file as it was when the walk began."""
        storage = self.open()
        first = commit(storage, {0: b'old'})
        since = commit(storage, {0: b'x'}, {0: first})
        tid = committed(storage, ID)
        real = outcome.headers_before

        def packed(*args):
            self.pack(storage, tid)
            return real(*args)

        with mock.patch.object(outcome, 'headers_before', packed):
            self.assert_not_committed(storage, OTHER, since)
        self.assert_unknown(storage, OTHER, since, 'pack')
        self.assert_committed(storage, ID, since, tid)


class Bars(OutcomeCase):

    def assert_barred(self, storage, transaction, since):
        size = storage.getSize()
        self.assert_not_committed(storage, ID, since)
        with self.assertRaisesRegex(Barred, 'given it up'):
            storage.tpc_finish(transaction)
        self.assertEqual(storage.getSize(), size)
        self.assert_not_committed(storage, ID, since)
        # Its objects, and its place, are free.
        committed(storage, OTHER)
        self.assert_not_committed(storage, ID, since)

    def test_one_that_is_alone(self):
        self.patch(transactions, MOST_OBJECTS_AT_ONCE=0)
        storage = self.open()
        since = commit(storage, {0: b'x'})
        self.assert_barred(storage, voted(storage, ID), since)

    def test_one_that_has_begun(self):
        storage = self.open()
        since = commit(storage, {0: b'x'})
        transaction = TransactionMetaData()
        outcome.name(transaction, ID)
        storage.tpc_begin(transaction)
        self.assert_not_committed(storage, ID, since)
        storage.store(oid(1), z64, b'x', '', transaction)
        storage.tpc_vote(transaction)
        self.assert_barred(storage, transaction, since)

    def test_one_that_is_told_later(self):
        """Its finish waits for its sync while somebody asks."""
        disk = self.controlled_disk()
        storage = self.open()
        since = commit(storage, {0: b'x'})
        disk.hold_syncs()
        told = []
        tid = storage.tpc_finish(
            voted(storage, ID), AsyncFinish(lambda *args: told.append(args)))
        disk.wait_for_sync()
        asking = Thread(storage.outcome, ID, since)
        disk.release_syncs()
        self.assertEqual(asking.result(), (COMMITTED, tid, ''))
        self.assertEqual(told, [(tid, None)])

    def test_others_go_on(self):
        storage = self.open()
        since = commit(storage, {0: b'x'})
        others = [voted(storage, OTHER, 1), voted(storage, None, 2)]
        storage.bar(ID)
        for other in others:
            storage.tpc_finish(other)
        self.assertEqual(storage.outcome(OTHER, since).word, COMMITTED)

    def test_a_wrapper_passes_the_id_on(self):
        """It passes on the metadata, and none of our arguments."""
        storage = self.open()
        since = commit(storage, {0: b'x'})

        class Wrapper:
            store, tpc_vote, tpc_finish = (
                storage.store, storage.tpc_vote, storage.tpc_finish)

            def tpc_begin(self, transaction, tid=None, status=' '):
                storage.tpc_begin(transaction, tid, status)

        tid = committed(Wrapper(), ID)
        self.assert_committed(storage, ID, since, tid)


class Failures(OutcomeCase):

    def test_what_was_cut_off_is_gone_from_the_disk_before_that_is_told(self):
        disk = self.controlled_disk()
        storage = self.open()
        since = commit(storage, {0: b'x'})
        transaction = voted(storage, ID)
        self.fail_to_write(disk, storage, transaction)
        del disk.log[:]
        self.assert_not_committed(storage, ID, since)
        self.assertEqual(disk.log, ['sync'])
        disk.fail_sync(OSError('the disk is gone'))
        self.assert_unknown(storage, ID, since, 'the disk is gone')

    def fail_to_write(self, disk, storage, transaction, error=OSError):
        """All of it is written, and the disk says that it is not."""
        def before_write(data, position):
            os.pwrite(storage._file.fileno(), data, position)
            raise OSError(errno.ENOSPC, 'no room')

        disk.before_write = before_write
        with self.assertRaisesRegex(error, 'no room'):
            storage.tpc_finish(transaction)
        disk.before_write = lambda data, position: None

    def test_what_could_not_be_cut_off(self):
        for alone in False, True:
            with self.subTest(alone=alone):
                disk = self.controlled_disk()
                storage = self.open(f'{alone}')
                since = commit(storage, {0: b'x'})
                storage.journal.reserve.is_real = not alone
                transaction = voted(storage, ID)
                with mock.patch.object(
                        disk, 'truncate', side_effect=OSError('!')):
                    self.fail_to_write(
                        disk, storage, transaction, OutcomeUnknown)
                self.assertRaises(WritingStopped, commit, storage, {2: b'x'})
                self.assert_unknown(storage, ID, since, 'cut back')
                storage.close()
                storage = self.open(f'{alone}')
                self.assertEqual(storage.outcome(ID, since).word, COMMITTED)

    def test_what_is_not_durable_is_in_doubt_after_a_failed_sync(self):
        """Though it was published, as the policy says."""
        disk = self.controlled_disk()
        storage = self.open(durability='none')
        tid = committed(storage, ID)
        self.assert_committed(storage, ID, z64, tid)
        disk.fail_sync(OSError('the disk is gone'))
        with self.assertRaises(SyncFailed):
            committed(storage, OTHER, 2, extension={
                'durability': 'group-commit'})
        for id in ID, OTHER:
            self.assert_unknown(storage, id, z64, 'the disk is gone')

    def test_a_read_only_storage_denies_nothing(self):
        """Another process may append, and this one does not see it."""
        storage = self.open()
        since = commit(storage, {0: b'x'})
        tid = committed(storage, ID)
        other = self.open(read_only=True)
        self.assert_unknown(other, OTHER, since, 'read-only')
        self.assert_committed(other, ID, since, tid)

    def test_a_closed_storage(self):
        storage = self.open()
        storage.close()
        for call, args in (storage.outcome, (ID, z64)), (storage.bar, (ID,)):
            self.assertRaisesRegex(ValueError, 'is closed', call, *args)

    def test_what_is_no_id_and_no_tid(self):
        storage = self.open()
        for wrong in (b'', b'x' * 15, b'x' * 17, bytes(16), 'x' * 16, None,
                      bytearray(16), 16):
            for call in (storage.bar, lambda id: storage.outcome(id, z64),
                         lambda id: outcome.name(TransactionMetaData(), id)):
                self.assertRaisesRegex(ValueError, '16 bytes', call, wrong)
            if wrong is not None:
                transaction = TransactionMetaData()
                transaction.commit_id = wrong
                self.assertRaisesRegex(
                    ValueError, '16 bytes', storage.tpc_begin, transaction)
        for wrong in b'', b'x' * 7, 'x' * 8, None:
            self.assertRaisesRegex(
                ValueError, '8 bytes', storage.outcome, ID, wrong)


class Histories(OutcomeCase):
    """Random ones: packs, restarts, failed syncs, aborts, bars and clocks
    that jump; and somebody asks again and again."""

    level = 2

    def test_no_answer_is_wrong(self):
        answers = collections.Counter()
        for seed in range(often(15, 400)):
            with self.subTest(seed=seed):
                History(self, random.Random(seed), answers).run(40)
        for word in COMMITTED, NOT_COMMITTED, UNKNOWN:
            self.assertGreater(answers[word], sum(answers.values()) / 20)


class History:

    def __init__(self, case, rng, answers):
        self.case, self.rng, self.answers = case, rng, answers
        self.name = f'{rng.random()}'
        self.disk = ControlledDisk()
        self.ids = []       # (id, how many tids were known at its begin)
        self.denied = set()     # of which it was said: not committed
        self.shown = set()      # that were in the file, and may be packed away
        self.known = [z64]      # tids that a client may know
        self.open_ones = []     # what is voted

    def run(self, steps):
        clock = mock.patch.object(tids.time, 'time', self.time)
        with mock.patch.object(datafile, 'disk', self.disk), clock:
            self.open()
            for _ in range(steps):
                self.rng.choice([
                    self.commit, self.commit, self.commit, self.begin,
                    self.begin, self.finish, self.finish, self.abort,
                    self.pack, self.reopen, self.ask, self.ask, self.ask])()
                self.look()
            self.reopen()
            self.look()
            self.storage.close()

    def time(self):
        return 1.7e9 + self.rng.randrange(10_000)

    def open(self):
        self.storage = self.case.open(
            self.name, pack_process=False, durability=self.rng.choice(
                ['none', 'group-commit', 'two-sync']),
            checksums=self.rng.random() < .9)
        # Under a policy that promises nothing, what a client knows of may
        # never have been durable; but only power cuts take it away.
        self.known.append(self.storage.lastTransaction())

    def reopen(self):
        for transaction in self.open_ones:
            self.storage.tpc_abort(transaction)
        self.open_ones = []
        self.storage.close()
        self.open()

    def begin(self):
        """A transaction that is voted: alone, or with a name, or neither."""
        transaction = TransactionMetaData()
        tid = None
        if self.rng.random() < .9:
            id = self.rng.randbytes(16)
            self.ids.append((id, len(self.known)))
            outcome.name(transaction, id)
        elif not self.open_ones:
            tid = newTid(self.storage._sequencer.appended.tid)
        with contextlib.suppress(WritingStopped):
            self.storage.tpc_begin(transaction, tid)
            oid_ = oid(self.rng.randrange(4) + 4 * len(self.open_ones))
            try:
                serial = self.storage.getTid(oid_)
            except KeyError:
                serial = z64
            self.storage.store(oid_, serial, b'x' * self.rng.choice(
                (9, 9, 9, 70_000)), '', transaction)
            try:
                self.storage.tpc_vote(transaction, wait=False)
            except (Occupied, ConflictError):
                self.storage.tpc_abort(transaction)
            else:
                self.open_ones.append(transaction)

    def commit(self):
        self.begin()
        self.finish()

    def finish(self):
        """Its write, or its sync, may fail."""
        if not self.open_ones:
            return
        chance = self.rng.random()
        if chance < .05:
            self.disk.fail_sync(OSError(errno.EIO, 'no sync'))
        elif chance < .1:
            self.disk.before_write = self.fail
        with contextlib.suppress(Barred, DiskError, OSError):
            self.known.append(
                self.storage.tpc_finish(self.open_ones.pop()))
        self.disk.before_write = lambda data, position: None
        del self.disk._errors[:]

    def fail(self, data, position):
        raise OSError(errno.ENOSPC, 'no room')

    def abort(self):
        if self.open_ones:
            self.storage.tpc_abort(self.open_ones.pop())

    def pack(self):
        later = [tid for tid in self.known if tid > z64]
        if not self.open_ones and later:
            with contextlib.suppress(DiskError):
                self.storage.pack(
                    TimeStamp(self.rng.choice(later)).timeTime(),
                    referencesf, gc=False)

    def ask(self):
        if not self.ids:
            return
        id, known = self.rng.choice(self.ids[-8:])
        since = self.rng.choice(self.known[:known][-4:])
        found = self.storage.outcome(id, since)
        self.answers[found.word] += 1
        if found.word == NOT_COMMITTED:
            self.denied.add(id)
            self.case.assertNotIn(id, self.shown)
        elif found.word == COMMITTED:
            self.case.assertIn(found.tid, {
                each.tid for each in self.storage.iterator()})

    def look(self):
        with open(self.case.path(self.name), 'rb') as file:
            content = file.read()
        window = Window(lambda length, position: content[
            position:position + length], self.storage.getSize())
        self.shown |= {
            seal.find(each.field).id for each in scan.transactions(window)
            if each.seal == seal.SOUND}
        self.case.assertFalse(self.denied & self.shown)
