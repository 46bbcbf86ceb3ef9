"""The invariants of the design, each by its name.

I1 order, I2 the append lock, I3 acknowledgement, I4 visibility, I5 publishing,
I6 conflicts with what is not published, I8 no acknowledged commit behind an
unfinished one, I9 a lone committer, I10 nobody is left waiting, I12 what a
transaction holds between vote and finish.  I7 (failing disks) is in
test_failures.py, I11 (blobs) in test_blobs.py.
"""

import functools
import os
import threading
import time
from unittest import mock

from ZODB.Connection import TransactionMetaData
from ZODB.FileStorage.FileStorage import FileStorageQuotaError
from ZODB.POSException import ConflictError
from ZODB.POSException import POSKeyError
from ZODB.POSException import ReadConflictError
from ZODB.POSException import StorageTransactionError
from ZODB.POSException import UndoError
from ZODB.tests.ConflictResolution import PCounter
from ZODB.tests.StorageTestBase import zodb_pickle
from ZODB.tests.StorageTestBase import zodb_unpickle
from ZODB.utils import p64
from ZODB.utils import u64
from ZODB.utils import z64

from fsyncstorage import AsyncFinish
from fsyncstorage.commit import policies
from fsyncstorage.errors import Occupied

from ..support import TestCase
from ..support import Thread
from ..support import begin
from ..support import commit
from ..support import oid
from ..support import owners
from ..support import under_way
from ..support import until
from ..support import vote

PROMISING = 'group-commit', 'per-commit', 'two-sync'
#: Policy, and what the transactions ask for, where that is more.
PROMISED = [(policy, None) for policy in PROMISING] + [
    (policy, asks) for policy in ('none', 'interval') for asks in PROMISING
] + [('none', 'interval')]
FOREVER = b'\x7f' + b'\xff' * 7


class InvariantCase(TestCase):

    #: Of the transactions that are voted.
    metadata = {}

    def held(self, policy='group-commit', asks=None, **options):
        """A storage with object 1, whose syncs are held up from here on."""
        self.disk = self.controlled_disk()
        self.metadata = {'extension': {'durability': asks}} if asks else {}
        self.storage = self.open(
            f'{policy}-{asks}' if asks else policy, durability=policy,
            **{'sync_interval': '1h', **options})
        self.addCleanup(self.disk.release_syncs)
        self.first = commit(self.storage, {1: b'first'})
        self.disk.hold_syncs()
        return self.storage

    def start(self, records, serials={}, f=None):
        """Commit in a thread; return when it is appended."""
        return self.finish(
            vote(self.storage, records, serials, **self.metadata), f)

    def finish(self, voted, f=None):
        appended = self.storage.stats()['last_appended']
        thread = Thread(self.storage.tpc_finish, voted, f)
        until(lambda: self.storage.stats()['last_appended'] != appended,
              'appended')
        return thread


class I1_Order(InvariantCase):

    def test_file_order_is_tid_order_is_publishing_order(self):
        for policy in policies.POLICIES:
            with self.subTest(policy):
                storage = self.open(policy, durability=policy)
                published = []

                def work(number):
                    for i in range(20):
                        commit(storage, {number * 100 + i: b'x'},
                               f=published.append)

                for thread in [Thread(work, n) for n in range(8)]:
                    thread.result()
                in_file = [record.tid for record in storage.iterator()]
                self.assertEqual(len(in_file), 160)
                self.assertEqual(in_file, sorted(in_file))
                self.assertEqual(in_file, published)


class I2_AppendLock(InvariantCase):

    def test_it_is_free_while_another_commit_is_synced(self):
        for policy in PROMISING:
            with self.subTest(policy):
                storage = self.held(policy)
                first = self.start({2: b'a'})
                self.disk.wait_for_sync()
                # A whole second transaction, up to its append.
                second = self.start({3: b'b'})
                self.disk.release_syncs()
                self.assertLess(first.result(), second.result())
                storage.close()

    def test_no_code_of_users_runs_under_it(self):
        for policy in policies.POLICIES:
            with self.subTest(policy):
                storage = self.open(policy, durability=policy)
                locked = []

                def f(tid):
                    locked.append(storage._commit_lock.locked())

                commit(storage, {1: b'x'}, f=f)
                self.assertEqual(locked, [False])

    def test_no_sync_happens_under_it(self):
        disk = self.controlled_disk()
        for policy in policies.POLICIES:
            with self.subTest(policy):
                storage = self.open(
                    policy, durability=policy, sync_interval='2ms',
                    blob_dir=self.path(policy + '-blobs'))
                locked, sync = [], disk.sync

                def watched(fd):
                    locked.append(storage._commit_lock.locked())
                    sync(fd)

                disk.sync = watched
                for number in range(1, 4):
                    transaction = begin(storage)
                    self.store_blob(storage, transaction, number, b'blob')
                    storage.tpc_vote(transaction)
                    storage.tpc_finish(transaction)
                storage.close()
                self.assertNotIn(True, locked)
                self.assertGreater(len(locked), 1)
                del disk.sync

    def test_waiting_commits_share_one_sync(self):
        storage = self.held()
        first = self.start({2: b'a'})
        self.disk.wait_for_sync()
        others = [self.start({number: b'b'}) for number in range(3, 9)]
        before = self.disk.syncs
        self.disk.release_syncs()
        for thread in [first] + others:
            thread.result()
        self.assertEqual(self.disk.syncs, before + 2)
        self.assertEqual(storage.stats()['commits'], 8)

    def test_per_commit_shares_none(self):
        self.held('per-commit')
        threads = [self.start({number: b'b'}) for number in range(3, 9)]
        before = self.disk.syncs
        self.disk.release_syncs()
        for thread in threads:
            thread.result()
        self.assertEqual(self.disk.syncs, before + 6)


class I3_Acknowledgement(InvariantCase):

    def test_none_and_interval_do_not(self):
        for policy in 'none', 'interval':
            with self.subTest(policy):
                storage = self.held(policy, sync_interval='1h')
                tid = commit(storage, {2: b'a'})
                self.assertEqual(storage.lastTransaction(), tid)
                self.assertLess(storage.stats()['last_durable'], tid)
                self.disk.release_syncs()
                storage.close()

    def test_interval_syncs_in_the_background(self):
        disk = self.controlled_disk()
        storage = self.open(durability='interval', sync_interval='2ms')
        before = disk.syncs
        tid = commit(storage, {1: b'a'})
        until(lambda: storage.stats()['last_durable'] == tid, 'durable')
        self.assertGreater(disk.syncs, before)

    def test_interval_makes_commits_wait_when_a_sync_is_overdue(self):
        storage = self.held('interval', sync_interval='1h')
        second = commit(storage, {2: b'a'})
        storage._sequencer._exposed_since -= 2 * 3600  # as if it were so long
        storage._sequencer.flusher.wake()
        self.disk.wait_for_sync()
        third = self.start({3: b'b'})
        self.assertTrue(third.is_alive())
        self.assertEqual(storage.lastTransaction(), second)
        self.disk.release_syncs()
        third.result()
        self.assertEqual(storage.stats()['last_durable'],
                         storage.lastTransaction())

    def test_two_sync_syncs_the_data_before_the_status(self):
        self.held('two-sync')
        self.disk.release_syncs()
        del self.disk.log[:]
        commit(self.storage, {2: b'a'})
        self.assertEqual(self.disk.log, ['write', 'sync', 'status', 'sync'])

    def test_an_asynchronous_finish_says_when(self):
        for policy, asks in PROMISED:
            with self.subTest(policy, asks=asks):
                storage = self.held(policy, asks)
                events = []
                told = threading.Event()

                def done(tid, error):
                    events.append(('done', tid, error))
                    told.set()

                finish = AsyncFinish(
                    done, lambda tid: events.append(('published', tid)))
                tid = storage.tpc_finish(
                    vote(storage, {2: b'a'}, **self.metadata), finish)
                self.disk.wait_for_sync()
                self.assertEqual(events, [])
                vote_of_another = vote(storage, {3: b'b'})  # the lock is free
                storage.tpc_abort(vote_of_another)
                self.disk.release_syncs()
                self.assertTrue(told.wait(30))
                self.assertEqual(events, [('published', tid),
                                          ('done', tid, None)])
                storage.close()

    def test_the_owner_of_publishing_publishes(self):
        storage = self.open()
        notified = threading.Event()
        storage.own_publishing(notified.set)
        events = []
        tid = storage.tpc_finish(vote(storage, {1: b'a'}), AsyncFinish(
            lambda tid, error: events.append('done'),
            lambda tid: events.append(threading.current_thread())))
        self.assertTrue(notified.wait(30))
        self.assertEqual(events, [])
        self.assertLess(storage.lastTransaction(), tid)
        storage.publish()
        self.assertEqual(events, [threading.current_thread(), 'done'])
        self.assertEqual(storage.lastTransaction(), tid)


class I4_Visibility(InvariantCase):

    def state(self, number=1):
        """All that a reader can ask for."""
        storage, key = self.storage, oid(number)

        def ask(call, *args):
            try:
                return call(*args)
            except (KeyError, ValueError) as error:
                return type(error)

        return {
            'load': ask(storage.load, key),
            'loadBefore': ask(storage.loadBefore, key, FOREVER),
            'loadBefore next': ask(
                storage.loadBefore, key,
                p64(u64(storage.lastTransaction()) + 1)),
            'loadSerial': ask(storage.loadSerial, key, self.second_tid()),
            'getTid': ask(storage.getTid, key),
            'lastTid': ask(storage.lastTid, key),
            'history': ask(storage.history, key, 9),
            'undoLog': storage.undoLog(0, 9),
            'undoInfo': storage.undoInfo(0, 9),
            'iterator': [record.tid for record in storage.iterator()],
            'iterator from': [
                record.tid for record in storage.iterator(self.first)],
            'lastTransaction': storage.lastTransaction(),
            'lastInvalidations': storage.lastInvalidations(9),
            'records': list(self.records()),
            'size': storage.getSize(),
        }

    def second_tid(self):
        return self.storage.stats()['last_appended']

    def records(self):
        following = None
        while True:
            *record, following = self.storage.record_iternext(following)
            yield record
            if following is None:
                return

    def test_an_unpublished_change_is_seen_by_nobody(self):
        for policy, asks in PROMISED:
            with self.subTest(policy, asks=asks):
                self.held(policy, asks)
                before = self.state()
                thread = self.start({1: b'second'}, {1: self.first})
                self.disk.wait_for_sync()
                during = self.state()
                self.assertEqual(before['loadSerial'], b'first')
                self.assertIs(during.pop('loadSerial'), POSKeyError)
                del before['loadSerial']
                self.assertEqual(during, before)
                self.disk.release_syncs()
                tid = thread.result()
                after = self.state()
                self.assertEqual(after['load'], (b'second', tid))
                self.assertEqual(after['lastTransaction'], tid)
                self.assertEqual(len(after['history']), 2)
                self.storage.close()

    def test_a_voted_transaction_is_seen_by_nobody(self):
        self.held('none')
        before = self.state()
        transaction = vote(self.storage, {1: b'second'}, {1: self.first})
        self.assertEqual(self.state(), before)
        self.storage.tpc_abort(transaction)
        self.assertEqual(self.state(), before)

    def test_an_unpublished_blob_does_not_exist(self):
        storage = self.held(blob_dir=self.path('blobs'))
        transaction = begin(storage)
        self.store_blob(storage, transaction, 2, b'blob')
        self.disk.release_syncs()  # of its content
        storage.tpc_vote(transaction)
        self.disk.hold_again()
        thread = Thread(storage.tpc_finish, transaction)
        self.disk.wait_for_sync()
        tid = storage.stats()['last_appended']
        with self.assertRaises(POSKeyError):
            storage.loadBlob(oid(2), tid)
        self.disk.release_syncs()
        self.assertEqual(thread.result(), tid)
        with open(storage.loadBlob(oid(2), tid), 'rb') as blob:
            self.assertEqual(blob.read(), b'blob')

    def test_published_implies_durable(self):
        for policy in PROMISING:
            with self.subTest(policy):
                disk = self.controlled_disk()
                storage = self.open(policy, durability=policy)

                def published(tid):
                    self.assertEqual(disk.log[-1], 'sync')
                    self.assertGreaterEqual(
                        storage.stats()['last_durable'], tid)

                for number in range(5):
                    commit(storage, {number: b'x'}, f=published)


class I5_Publishing(InvariantCase):

    def blocked(self):
        """A publication whose f does not return."""
        self.storage = self.open()
        self.first = commit(self.storage, {1: b'first'})
        entered, self.go_on = threading.Event(), threading.Event()
        self.addCleanup(self.go_on.set)

        def f(tid):
            entered.set()
            self.go_on.wait(30)

        thread = Thread(
            commit, self.storage, {1: b'second'}, {1: self.first}, f)
        self.assertTrue(entered.wait(30))
        return thread

    def test_who_asks_for_the_current_state_waits(self):
        thread = self.blocked()
        storage, key = self.storage, oid(1)
        readers = [
            Thread(storage.lastTransaction),
            Thread(storage.getTid, key),
            Thread(lambda: storage.load(key)[1]),
            Thread(lambda: storage.loadBefore(key, FOREVER)[1]),
            Thread(lambda: storage.lastInvalidations(1)[0][0]),
            Thread(lambda: [each.tid for each in storage.iterator()][-1]),
            Thread(lambda: storage.history(key)[0]['tid']),
        ]
        self.assertTrue(all(reader.is_alive() for reader in readers))
        self.go_on.set()
        tid = thread.result()
        self.assertEqual({reader.result() for reader in readers}, {tid})

    def test_who_reads_as_of_a_tid_does_not(self):
        thread = self.blocked()
        start = p64(u64(self.first) + 1)
        self.assertEqual(self.storage.loadBefore(oid(1), start),
                         (b'first', self.first, None))
        self.assertEqual(self.storage.loadSerial(oid(1), self.first),
                         b'first')
        self.go_on.set()
        thread.result()

    def test_nobody_waits_for_a_write(self):
        """Of a vote, or of a finish."""
        for is_real in True, False:
            with self.subTest(is_real=is_real):
                self.nobody_waits_for_a_write(is_real)

    def nobody_waits_for_a_write(self, is_real):
        disk = self.controlled_disk()
        storage = self.open(f'reserves {is_real}')
        storage.journal.reserve.is_real = is_real
        first = commit(storage, {1: b'first'})
        writing, go_on = threading.Event(), threading.Event()

        def block(data, position):
            writing.set()
            go_on.wait(30)

        disk.before_write = block
        committer = Thread(commit, storage, {1: b'second'}, {1: first})
        self.assertTrue(writing.wait(30))
        self.assertEqual(storage.lastTransaction(), first)
        self.assertEqual(storage.getTid(oid(1)), first)
        self.assertEqual(storage.loadSerial(oid(1), first), b'first')
        self.assertEqual(storage.load(oid(1)), (b'first', first))
        go_on.set()
        committer.result()

    def test_f_is_called_once_and_before_it_is_visible(self):
        storage = self.open()
        seen = []

        def f(tid):
            seen.append(tid)
            # The publishing thread passes its own gate.
            self.assertLess(storage.lastTransaction(), tid)

        tid = commit(storage, {1: b'a'}, f=f)
        self.assertEqual(seen, [tid])
        self.assertEqual(storage.lastTransaction(), tid)

    def test_a_failing_f_does_not_take_the_commit_back(self):
        for policy in policies.POLICIES:
            with self.subTest(policy):
                storage = self.open(policy, durability=policy)

                def f(tid):
                    raise RuntimeError('f')

                with self.assertRaisesRegex(RuntimeError, 'f'):
                    commit(storage, {1: b'a'}, f=f)
                self.assertEqual(storage.load(oid(1))[0], b'a')
                commit(storage, {2: b'b'})  # and all goes on

    def test_a_failing_f_of_another_is_not_ours(self):
        self.held()

        def f(tid):
            raise RuntimeError('f')

        leader = self.start({2: b'a'})
        self.disk.wait_for_sync()
        second = self.start({3: b'b'}, f=f)
        third = self.start({4: b'c'})
        self.disk.release_syncs()
        leader.result()
        third.result()
        with self.assertRaisesRegex(RuntimeError, 'f'):
            second.result()


class I6_Conflicts(InvariantCase):

    def conflicting(self):
        """Object 1 is changed by a transaction that is not published."""
        self.held()
        thread = self.start({1: b'second'}, {1: self.first})
        self.disk.wait_for_sync()
        return thread

    def doomed(self, act):
        """What `act(transaction)` raises in a thread; when it waits, the
        commit lock is free, and when it is told, a retry can see why."""
        first = self.conflicting()
        transaction = begin(self.storage)

        def act_and_vote():
            act(transaction)
            self.storage.tpc_vote(transaction)

        thread = Thread(act_and_vote)
        another = Thread(vote, self.storage, {7: b'x'}).result()
        self.assertTrue(thread.is_alive())
        self.storage.tpc_abort(another)
        self.disk.release_syncs()
        tid = first.result()
        try:
            thread.result()
        except Exception as error:
            self.assertEqual(self.storage.lastTransaction(), tid)
            self.storage.tpc_abort(transaction)  # harmless, as ever
            with self.assertRaises(StorageTransactionError):
                self.storage.tpc_vote(transaction)
            return error

    def test_store(self):
        error = self.doomed(lambda transaction: self.storage.store(
            oid(1), self.first, b'third', '', transaction))
        self.assertIsInstance(error, ConflictError)
        self.assertEqual(error.serials,
                         (self.storage.lastTransaction(), self.first))

    def test_delete(self):
        error = self.doomed(lambda transaction: self.storage.deleteObject(
            oid(1), self.first, transaction))
        self.assertIsInstance(error, ConflictError)

    def test_check_current_serial(self):
        error = self.doomed(
            lambda transaction:
            self.storage.checkCurrentSerialInTransaction(
                oid(1), self.first, transaction))
        self.assertIsInstance(error, ReadConflictError)

    def test_undo(self):
        def undo(transaction):
            return self.storage.undo(
                self.storage.undoLog(0, 1)[0]['id'], transaction)

        self.assertIsInstance(self.doomed(undo), UndoError)

    def test_a_record_that_was_restored_with_a_later_tid(self):
        """It is published, though no transaction of its tid ever is."""
        storage = self.open()
        first = commit(storage, {1: b'first'})
        transaction = begin(storage)
        storage.restore(oid(1), FOREVER, b'x', '', None, transaction)
        storage.tpc_vote(transaction)
        storage.tpc_finish(transaction)
        storage.own_publishing(lambda: None)
        transaction = begin(storage)
        storage.store(oid(1), first, b'y', '', transaction)
        with self.assertRaises(ConflictError):
            storage.tpc_vote(transaction)
        storage.tpc_abort(transaction)

    def test_a_thread_beside_an_event_loop_waits(self):
        """It holds nothing meanwhile."""
        storage = self.open()
        first = commit(storage, {1: b'first'})
        storage.own_publishing(lambda: None)
        second = storage.tpc_finish(
            vote(storage, {1: b'second'}, {1: first}),
            AsyncFinish(lambda tid, error: None))
        appended, = storage._sequencer.pipeline.queue
        store = Thread(vote, storage, {1: b'y'}, {1: first})
        until(lambda: appended.sleepers, 'it waits')
        storage.tpc_abort(
            Thread(vote, storage, {1: b'z'}, {1: second}).result())
        self.assertTrue(store.is_alive())
        # (It may not be durable yet, and then is not published.)
        until(lambda: storage.publish() or not store.is_alive(), 'it is told')
        with self.assertRaises(ConflictError):
            store.result()

    def test_resolution_sees_what_is_appended(self):
        def counter(value):
            result = PCounter()
            result.inc(value)
            return zodb_pickle(result)

        disk = self.disk = self.controlled_disk()
        storage = self.storage = self.open()
        first = commit(storage, {1: counter(0)})
        disk.hold_syncs()
        one = self.start({1: counter(10)}, {1: first})
        disk.wait_for_sync()
        transaction = begin(storage)
        storage.store(oid(1), first, counter(5), '', transaction)
        self.assertEqual(storage.tpc_vote(transaction), [oid(1)])
        two = Thread(storage.tpc_finish, transaction)
        disk.release_syncs()
        one.result(), two.result()
        self.assertEqual(zodb_unpickle(storage.load(oid(1))[0])._value, 15)


class I8_NothingUnfinishedBeforeAnAcknowledgedCommit(InvariantCase):

    def test_status_bytes_are_written_before_anything_is_acknowledged(self):
        for policy in policies.POLICIES:
            with self.subTest(policy):
                storage = self.open(policy, durability=policy)

                def check(tid):
                    with open(storage._file_name, 'rb') as file:
                        file.seek(4)
                        while True:
                            header = file.read(23)
                            self.assertIn(header[16:17], b' p')
                            if header[:8] == tid:
                                break
                            length = int.from_bytes(header[8:16], 'big')
                            file.seek(length + 8 - 23, 1)

                def work(base):
                    for number in range(20):
                        commit(storage, {base + number: b'x'}, f=check)

                for thread in [Thread(work, n * 100) for n in range(4)]:
                    thread.result()


class I9_LoneCommitter(InvariantCase):

    def test_it_syncs_for_itself_once(self):
        disk = self.controlled_disk()
        storage = self.open()
        threads = []
        disk_sync = disk.sync

        def sync(fd):
            threads.append(threading.current_thread())
            disk_sync(fd)

        disk.sync = sync
        for number in range(10):
            commit(storage, {number: b'x'})
        self.assertEqual(threads, [threading.current_thread()] * 10)

    def test_it_never_waits_for_company(self):
        company = policies.Company(None)
        for _ in range(5):
            company.synced(1, 0, 0.010)
            self.assertEqual(company.patience(1), 0.0)

    def test_company_is_waited_for_when_it_was_seen_and_syncs_are_slow(self):
        company = policies.Company(None)
        company.synced(8, 8, 0.010)
        self.assertEqual(company.patience(3), 0.005)
        self.assertFalse(company.complete(15))
        self.assertTrue(company.complete(16))
        company.synced(3, 0, 0.010)   # the others went away
        self.assertEqual(company.patience(3), 0.0)

    def test_a_configured_delay_is_kept(self):
        company = policies.Company(0.002)
        self.assertEqual(company.patience(1), 0.002)
        self.assertFalse(company.complete(99))


class I10_NobodyIsLeftWaiting(InvariantCase):

    def test_an_interrupted_publisher_hands_on(self):
        self.held()
        calls = []

        def f(tid):
            calls.append(tid)
            if len(calls) == 1:
                raise KeyboardInterrupt

        leader = self.start({2: b'a'}, f=f)
        self.disk.wait_for_sync()
        others = [self.start({number: b'b'}) for number in (3, 4, 5)]
        self.disk.release_syncs()
        with self.assertRaises(KeyboardInterrupt):
            leader.result()
        for thread in others:
            thread.result()
        self.assertEqual(self.storage.load(oid(2))[0], b'a')
        # What was broken off was done again: a missing invalidation would
        # show old objects for good.
        self.assertEqual(len(calls), 2)

    def test_closing_drains(self):
        """Also what is asynchronous, each with a sync of its own."""
        for policy, asks in ('per-commit', None), ('none', 'group-commit'):
            with self.subTest(policy, asks=asks):
                storage = self.held(policy, asks)
                told = []
                threads = [self.start({number: b'b'}) for number in (3, 4, 5)]
                for number in 6, 7:
                    tid = storage.tpc_finish(
                        vote(storage, {number: b'c'}, **self.metadata),
                        AsyncFinish(lambda tid, error: told.append(error)))
                closing = Thread(storage.close)
                until(lambda: storage.journal.closed_because, 'closing')
                self.disk.release_syncs()
                closing.result()
                self.assertEqual(told, [None] * 2)
                for thread in threads:
                    thread.result()
                reopened = self.open(
                    os.path.basename(storage._file_name), read_only=True)
                self.assertEqual(reopened.lastTransaction(), tid)

    def test_closing_syncs_what_nobody_waits_for(self):
        storage = self.open(durability='none')
        commit(storage, {1: b'x'})
        disk = self.controlled_disk()
        storage.close()
        self.assertEqual(disk.log[0], 'sync')

    def test_closing_waits_for_what_is_being_written(self):
        """The next one that opens the file would write there, too."""
        for is_real in True, False:
            with self.subTest(is_real=is_real):
                self.closed_while_it_writes(is_real)

    def closed_while_it_writes(self, is_real):
        disk = self.controlled_disk()
        storage = self.open(f'reserves {is_real}')
        storage.journal.reserve.is_real = is_real
        first = commit(storage, {1: b'first'})
        events, writing, closing = [], threading.Event(), threading.Event()
        lock, release = storage._commit_lock, storage._release

        class Seen:
            """The lock; tells when the close is about to wait for it."""

            acquire, release = lock.acquire, lock.release

            def __enter__(self):
                if storage.journal.closed_because:
                    closing.set()
                lock.acquire()

            def __exit__(self, *ignored):
                lock.release()

        def block(data, position):
            writing.set()
            closing.wait(30)
            events.append('written')

        def released():
            closing.set()
            events.append('released')
            release()

        storage._commit_lock, storage._release = Seen(), released
        disk.before_write = block
        committer = Thread(commit, storage, {2: b'second'})
        self.assertTrue(writing.wait(30))
        disk.before_write = lambda data, position: None
        storage.close()
        self.assertEqual(events, ['written', 'released'])
        try:
            tid = committer.result()
        except ValueError:  # its vote has written, and it came too late
            tid = first
        self.assertEqual(
            self.open(f'reserves {is_real}').lastTransaction(), tid)

    def test_closing_while_a_pack_waits_for_what_an_owner_publishes(self):
        """The owner publishes nothing any more."""
        storage = self.open()
        storage.own_publishing(lambda: None)
        told = []
        storage.tpc_finish(vote(storage, {1: b'x'}), AsyncFinish(
            lambda tid, error: told.append(error)))

        def hold_still():
            storage.hold_still()
            storage.move_on()

        pack = Thread(hold_still)
        until(storage._commit_lock.locked, 'it holds the lock')
        Thread(storage.close).result()
        pack.result()
        self.assertEqual(told, [None])

    def test_closing_refuses_what_comes_too_late(self):
        storage = self.open()
        commit(storage, {1: b'x'})
        transaction = vote(storage, {2: b'x'})
        storage.close()
        with self.assertRaisesRegex(ValueError, 'closed'):
            storage.tpc_finish(transaction)
        with self.assertRaisesRegex(ValueError, 'closed'):
            begin(storage)
        with self.assertRaisesRegex(ValueError, 'closed'):
            storage.load(oid(1))
        self.assertEqual(len(list(self.open().iterator())), 1)

    def test_an_abort_ends_the_waiting_of_its_vote(self):
        """By another thread: of a server whose client is gone."""
        storage = self.open()
        holder = vote(storage, {1: b'x'})
        transaction = begin(storage)
        storage.store(oid(1), z64, b'y', '', transaction)
        voting = Thread(storage.tpc_vote, transaction)
        until(lambda: owners(storage._turns) == 2, 'waits')
        storage.tpc_abort(transaction)
        with self.assertRaises(StorageTransactionError):
            voting.result()
        storage.tpc_abort(holder)
        self.assertEqual(owners(storage._turns), 0)

    def test_closing_ends_the_waiting_of_a_vote(self):
        storage = self.open()
        voted = vote(storage, {1: b'x'})
        waiting = Thread(vote, storage, {1: b'y'})
        until(lambda: owners(storage._turns) == 2, 'waits')
        storage.close()
        with self.assertRaisesRegex(ValueError, 'Data.fs is closed'):
            waiting.result()
        storage.tpc_abort(voted)


class I12_BetweenVoteAndFinish(InvariantCase):
    """A transaction holds its objects, and nothing else."""

    def test_others_vote_and_finish_meanwhile(self):
        for policy in policies.POLICIES:
            with self.subTest(policy):
                storage = self.open(policy, durability=policy)
                first = vote(storage, {1: b'first'})
                size = os.path.getsize(storage._file_name)
                self.assertFalse(storage._commit_lock.locked())
                others = [Thread(vote, storage, {number: b'other'}).result()
                          for number in range(2, 6)]
                self.assertEqual(os.path.getsize(storage._file_name), size)
                tids = [storage.tpc_finish(other)
                        for other in [*reversed(others), first]]
                self.assertEqual(tids, sorted(tids))
                self.assertEqual(
                    [each.tid for each in storage.iterator()], tids)

    def test_who_wants_one_of_its_objects_waits(self):
        storage = self.open()
        zero = commit(storage, {1: b'zero', 2: b'zero'})
        first = vote(storage, {1: b'first'}, {1: zero})
        second = Thread(vote, storage, {1: b'second', 3: b'x'}, {1: zero})
        until(lambda: owners(storage._turns) == 2, 'waits')
        # And holds nothing.
        storage.tpc_finish(vote(storage, {3: b'y'}))
        storage.tpc_abort(first)
        with self.assertRaises(ConflictError):  # 3 was changed
            second.result()

    def test_what_is_known_to_lose_does_not_wait(self):
        storage = self.open()
        zero = commit(storage, {1: b'zero', 2: b'zero'})
        loser = begin(storage)
        for number in 1, 2:
            storage.store(oid(number), zero, b'loser', '', loser)
        commit(storage, {2: b'other'}, {2: zero})
        holder = vote(storage, {1: b'holder'}, {1: zero})
        with self.assertRaises(ConflictError):
            Thread(storage.tpc_vote, loser).result()
        self.assertEqual(owners(storage._turns), 1)
        storage.tpc_abort(loser)
        storage.tpc_finish(holder)

    def test_what_was_read_is_shared(self):
        storage = self.open()
        zero = commit(storage, {1: b'zero'})
        readers = []
        for number in 2, 3:
            readers.append(begin(storage))
            storage.checkCurrentSerialInTransaction(
                oid(1), zero, readers[-1])
            storage.store(oid(number), z64, b'x', '', readers[-1])
            storage.tpc_vote(readers[-1])
        writer = Thread(vote, storage, {1: b'one'}, {1: zero})
        until(lambda: owners(storage._turns) == 3, 'waits')
        for reader in readers:
            self.assertTrue(writer.is_alive())
            storage.tpc_finish(reader)
        storage.tpc_finish(writer.result())

    def test_an_undo_is_shared(self):
        """Others vote and finish before, beside and behind it."""
        storage = self.open()
        zero = commit(storage, {1: b'zero'})
        one = commit(storage, {1: b'one'}, {1: zero})
        undoing = begin(storage)
        storage.undo(storage.undoLog(0, 1)[0]['id'], undoing)
        first = vote(storage, {2: b'x'})
        commit(storage, {3: b'x'})  # so it is worked out once more
        storage.tpc_vote(undoing)
        same = Thread(vote, storage, {1: b'two'}, {1: one})
        until(lambda: owners(storage._turns) == 3, 'waits')
        commit(storage, {4: b'x'})
        tid = storage.tpc_finish(undoing)
        self.assertEqual(storage.load(oid(1)), (b'zero', tid))
        with self.assertRaises(ConflictError):
            same.result()
        storage.tpc_finish(first)
        self.assertEqual(storage.history(oid(1), 9)[1]['tid'], one)
        for transaction in storage.iterator(tid, tid):
            self.assertEqual([each.data_txn for each in transaction], [zero])

    def test_an_undo_that_waits_for_a_pack_holds_nothing(self):
        storage = self.open()
        one = commit(storage, {1: b'one'})
        undoing = begin(storage)
        storage.undo(storage.undoLog(0, 1)[0]['id'], undoing)
        with storage.nobody_holds_the_file():
            with self.assertRaises(Occupied):
                storage.tpc_vote(undoing, wait=False)
            commit(storage, {1: b'two'}, {1: one})
        with self.assertRaises(UndoError):
            storage.tpc_vote(undoing, wait=False)

    def test_a_transaction_that_is_dropped_lets_go(self):
        for is_real in True, False:
            with self.subTest(is_real=is_real):
                storage = self.open(f'reserves {is_real}')
                storage.journal.reserve.is_real = is_real
                with self.assertLogs('fsyncstorage', 'WARNING') as logs:
                    dropped = vote(storage, {1: b'dropped'})
                    waiting = Thread(vote, storage, {1: b'next'})
                    until(lambda: owners(storage._turns) == 2, 'waits')
                    del dropped
                    storage.tpc_finish(waiting.result())
                    until(lambda: logs.output, 'it is said')
                self.assertEqual(len(logs.output), 1)
                self.assertIn('was dropped', logs.output[0])

    def test_a_pack_just_before_a_vote_looks(self):
        """What points back is worked out for the new file."""
        storage = self.open()
        tid = z64
        for number in range(5):
            tid = commit(storage, {1: b'%d' % number}, {1: tid})
        transaction = TransactionMetaData()
        later = p64(u64(tid) + (1 << 30))
        storage.tpc_begin(transaction, later)
        storage.restore(oid(1), later, b'4', '', tid, transaction)
        ask_alone = storage._turns.ask_alone

        def pack_then(owner):
            storage.pack(time.time() + 1, lambda data: [], gc=False)
            return ask_alone(owner)

        with mock.patch.object(storage._turns, 'ask_alone', pack_then):
            storage.tpc_vote(transaction)
        back = under_way(storage).records[0].back
        self.assertTrue(0 < back < storage.getSize())
        storage.tpc_finish(transaction)
        self.assertEqual(storage.load(oid(1)), (b'4', later))
        storage.close()
        self.assertEqual(self.open().load(oid(1)), (b'4', later))

    def test_a_vote_in_the_middle_of_a_swap(self):
        """What it replaces was looked up in the old file."""
        for step in 'before', 'behind':
            with self.subTest(step):
                self.voted_in_a_swap(self.open(step), step)

    def voted_in_a_swap(self, storage, step):
        tid = z64
        for number in range(5):
            tid = commit(storage, {1: b'%d' % number}, {1: tid})
        voted = []
        rebase = storage._sequencer.rebase

        def vote_and_rebase(point):
            if step == 'behind':
                rebase(point)
            voted.append(vote(storage, {1: b'last'}, {1: tid}))
            if step == 'before':
                rebase(point)

        storage._sequencer.rebase = vote_and_rebase
        storage.pack(time.time() + 1, lambda data: [], gc=False)
        last = storage.tpc_finish(voted[0])
        self.assertEqual(
            [each['tid'] for each in storage.history(oid(1), 9)],
            [last, tid])

    def test_no_code_of_users_and_no_sync_of_one_that_is_alone(self):
        """Neither under the append lock."""
        disk = self.controlled_disk()
        storage = self.open(blob_dir=self.path('blobs'))
        storage.journal.reserve.is_real = False
        first = commit(storage, {1: b'zero'})
        commit(storage, {1: b'one'}, {1: first})
        locked, sync = [], disk.sync

        def resolve(*args):
            locked.append(storage._commit_lock.locked())
            return b'merged'

        def watched(fd):
            locked.append(storage._commit_lock.locked())
            sync(fd)

        storage.tryToResolveConflict, disk.sync = resolve, watched
        transaction = begin(storage)
        storage.store(oid(1), first, b'two', '', transaction)
        self.store_blob(storage, transaction, 2, b'blob')
        second = begin(storage)
        storage.store(oid(1), storage.getTid(oid(1)), b'x', '', second)
        storage.tpc_vote(second)
        storage.tpc_finish(second)  # so it is resolved once more
        storage.tpc_vote(transaction)
        self.assertEqual(locked.count(True), 0)
        self.assertGreaterEqual(len(locked), 3)
        storage.tpc_finish(transaction)
        self.assertEqual(storage.load(oid(1))[0], b'merged')

    def test_wrong_calls(self):
        storage = self.open()
        transaction = vote(storage, {1: b'x'})
        for call in (
            lambda: storage.store(oid(2), z64, b'x', '', transaction),
            lambda: storage.deleteObject(oid(1), z64, transaction),
            lambda: storage.restore(
                oid(2), z64, b'x', '', None, transaction),
            lambda: storage.undo(z64, transaction),
            lambda: storage.checkCurrentSerialInTransaction(
                oid(1), z64, transaction),
            lambda: storage.tpc_vote(transaction),
            lambda: storage.tpc_begin(transaction),
            lambda: storage.tpc_finish(TransactionMetaData()),
        ):
            with self.assertRaises((StorageTransactionError, POSKeyError)):
                call()
        tid = storage.tpc_finish(transaction)
        self.assertEqual(storage.load(oid(1)), (b'x', tid))
        self.assertEqual(len(storage), 1)

    def test_what_must_not_wait_does_not(self):
        """It keeps its place, and is told when its turn has come."""
        storage = self.open()
        holder = vote(storage, {1: b'x'})
        first, second = begin(storage), begin(storage)
        called = []
        for each in first, second:
            storage.store(oid(1), z64, b'y', '', each)
            with self.assertRaises(Occupied):
                storage.tpc_vote(each, wait=False)
            self.assertTrue(storage.call_when_served(
                each, functools.partial(called.append, each)))
        with self.assertRaisesRegex(StorageTransactionError, 'no more'):
            storage.store(oid(2), z64, b'y', '', first)
        storage.tpc_abort(holder)
        self.assertEqual(called, [first])
        self.assertFalse(storage.call_when_served(first, self.fail))
        storage.tpc_vote(first, wait=False)
        storage.tpc_finish(first)
        self.assertEqual(called, [first, second])
        with self.assertRaises(ConflictError):
            storage.tpc_vote(second, wait=False)
        self.assertFalse(storage.call_when_served(second, self.fail))
        self.assertEqual(owners(storage._turns), 0)

    def test_a_finish_that_must_not_wait_does_not(self):
        """It stays voted, and is finished later."""
        storage = self.open()
        transaction = vote(storage, {1: b'x'})
        now = AsyncFinish(lambda tid, error: None, wait=False)
        with storage._commit_lock:
            with self.assertRaises(Occupied):
                storage.tpc_finish(transaction, now)
        tid = storage.tpc_finish(transaction, now)
        storage._sequencer.drain()
        self.assertEqual(storage.lastTransaction(), tid)

    def test_a_pack_comes_just_before_a_finish_that_must_not_wait(self):
        """The pack has the append lock until that very caller publishes."""
        storage = self.open()
        storage.own_publishing(lambda: None)
        now = AsyncFinish(lambda tid, error: None, wait=False)
        first = storage.tpc_finish(vote(storage, {1: b'x'}), now)
        transaction = vote(storage, {2: b'x'})
        append_shared = storage._append_shared
        packs = []

        def hold_first(*arguments):
            packs.append(Thread(storage.hold_still))
            until(storage._commit_lock.locked, 'the pack has the lock')
            return append_shared(*arguments)

        with mock.patch.object(storage, '_append_shared', hold_first):
            with self.assertRaises(Occupied):
                Thread(storage.tpc_finish, transaction, now).result()
        self.assertTrue(packs[0].is_alive())

        def is_published():
            storage.publish()
            return storage.lastTransaction() == first

        until(is_published, 'published')
        packs[0].result()
        storage.move_on()
        storage.tpc_finish(transaction, now)
        storage.own_publishing(None)
        storage._sequencer.drain()
        self.assertEqual(storage.load(oid(2))[0], b'x')

    def test_a_pack_comes_just_before_a_vote_that_must_not_wait(self):
        storage = self.open()
        storage.journal.reserve.is_real = False  # so it is alone
        transaction = begin(storage)
        storage.store(oid(1), z64, b'x', '', transaction)
        ask_alone = storage._turns.ask_alone

        def hold_next(owner):
            storage.hold_still()
            return ask_alone(owner)

        with mock.patch.object(storage._turns, 'ask_alone', hold_next):
            with self.assertRaises(Occupied):
                Thread(storage.tpc_vote, transaction, wait=False).result()
        storage.move_on()
        storage.tpc_vote(transaction, wait=False)
        storage.tpc_finish(transaction)
        self.assertFalse(storage._commit_lock.locked())

    def test_the_bytes_of_all_count_against_the_quota(self):
        storage = self.open(quota=1000)
        first = vote(storage, {1: bytes(600)})
        second = begin(storage)
        with self.assertRaises(FileStorageQuotaError):
            storage.store(oid(2), z64, bytes(600), '', second)
            storage.store(oid(3), z64, bytes(600), '', second)
        storage.tpc_abort(second)
        storage.tpc_finish(first)
        self.assertEqual(storage.journal.reserve.total, 0)

    def test_a_vote_holds_restores_to_the_quota(self):
        """Others have used it up since they were called."""
        storage = self.open(quota=1000)
        transaction = begin(storage)
        for number in 1, 2:
            storage.restore(
                oid(number), z64, bytes(200), '', None, transaction)
        commit(storage, {3: bytes(900)})
        with self.assertRaises(FileStorageQuotaError):
            storage.tpc_vote(transaction)
        storage.tpc_abort(transaction)
