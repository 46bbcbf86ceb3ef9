"""Interrupts and errors at the worst moments: I7 and I10, line by line."""

import contextlib
import linecache
import sys
import threading
from unittest import mock

from ZODB.Connection import TransactionMetaData
from ZODB.FileStorage import FileStorage
from ZODB.POSException import ConflictError
from ZODB.POSException import POSKeyError
from ZODB.POSException import StorageTransactionError
from ZODB.utils import p64
from ZODB.utils import u64
from ZODB.utils import z64

from fsyncstorage import AsyncFinish
from fsyncstorage.commit import policies
from fsyncstorage.commit import sequencer
from fsyncstorage.errors import OutcomeUnknown
from fsyncstorage.errors import WritingStopped
from fsyncstorage.storage.transaction import Transaction

from ..often import often
from ..support import TestCase
from ..support import Thread
from ..support import begin
from ..support import commit
from ..support import oid
from ..support import owners
from ..support import until
from ..support import vote

EIO = OSError(5, 'Input/output error')
PROMISING = 'group-commit', 'per-commit', 'two-sync'


class Interrupter:
    """Raises KeyboardInterrupt, or another error, at the n-th line that this
    thread executes in the package.

    Not at `with` and `try`: there a trace function comes between the end of a
    block and the release of its lock, or before the handlers are in force,
    where the interpreter lets no signal in.
    """

    def __init__(self, at, error=KeyboardInterrupt):
        self._left = at
        self._error = error
        self.fired = False

    def __enter__(self):
        sys.settrace(self._trace)

    def __exit__(self, *ignored):
        sys.settrace(None)

    def _trace(self, frame, event, arg):
        if not self._is_ours(frame.f_code.co_filename):
            return None
        if (event == 'line' and not self.fired
                and not self._line(frame).startswith(('with ', 'try:'))):
            self._left -= 1
            if not self._left:
                self.fired = True
                raise self._error
        return self._trace

    def _is_ours(self, file_name):
        return 'fsyncstorage' in file_name and '/tests/' not in file_name

    @staticmethod
    def _line(frame):
        return linecache.getline(
            frame.f_code.co_filename, frame.f_lineno).strip()


class EveryLine(TestCase):
    """An interrupt at each line (or some) of a commit, beside others.

    Nobody hangs, and nothing is lost, half done, or done twice.  Afterwards
    commits go on, or writing has stopped, and the log says so once.
    """

    level = 2

    def setUp(self):
        super().setUp()
        self.critical = mock.Mock()
        self.patch(sequencer.logger, critical=self.critical)
        self.opened = None

    def opened_for(self, policy):
        if self.opened is None:
            self.opened = self.open(
                policy, durability=policy, sync_interval='1h')
        return self.opened

    def test_of_one_whose_object_another_wants(self):
        for policy in often(('none',), policies.POLICIES):
            with self.subTest(policy):
                self.at_every_line(policy, self.wanted_by_another)

    def test_of_one_that_leads_others(self):
        self.disk = self.controlled_disk()
        for policy in often(('group-commit',), PROMISING):
            with self.subTest(policy):
                self.at_every_line(policy, self.leads_others)

    def test_of_one_that_waits_for_another(self):
        self.disk = self.controlled_disk()
        for policy in often(('group-commit',), PROMISING):
            with self.subTest(policy):
                self.at_every_line(policy, self.waits_for_another)

    def at_every_line(self, policy, beside):
        at, fired, endings = 0, True, set()
        while fired:
            at += often(3, 1)
            self.critical.reset_mock()
            storage = self.opened_for(policy)
            interrupter = Interrupter(at)
            acknowledged = beside(storage, at * 10, interrupter)
            fired = interrupter.fired
            until(lambda: not storage.stats()['waiting'], 'all is settled')
            endings.add(self.ending(storage))
            self.check(policy, at * 10, acknowledged)
        self.assertGreater(at, 30)
        self.assertEqual(endings, {'it goes on', 'it has stopped'})
        expected = [each.tid for each in self.opened.iterator()]
        self.opened.close()
        self.opened = None
        stock = FileStorage(self.path(policy))
        self.assertEqual([each.tid for each in stock.iterator()], expected)
        stock.close()

    def ending(self, storage):
        """Close it if it does not go on."""
        stopped = storage.stats()['writing_stopped']
        if stopped is None:
            self.critical.assert_not_called()
            return 'it goes on'
        self.assertRegex(
            stopped, r'an interrupt \(KeyboardInterrupt\) came in the middle'
            ' of a commit; open the storage again')
        with self.assertRaises(WritingStopped):
            begin(storage)
        storage.close()
        self.critical.assert_called_once_with(stopped)
        self.opened = None
        return 'it has stopped'

    def check(self, policy, number, acknowledged):
        """Each transaction is there once, or not at all."""
        storage = self.opened_for(policy)
        found = [(transaction.tid, [(u64(record.oid), record.data)
                                    for record in transaction])
                 for transaction in storage.iterator()]
        of_this = [records for _, records in found
                   if records[0][0] >= number]
        for records in of_this:
            self.assertEqual(len(records), 1)
            self.assertEqual(of_this.count(records), 1)
        self.assertEqual(storage.lastTransaction(), found[-1][0])
        self.assertLessEqual(acknowledged, {tid for tid, _ in found})
        for tid, ((changed, data),) in found[-len(of_this):]:
            self.assertEqual(storage.load(oid(changed)), (data, tid))

    # What is interrupted, and beside what

    def wanted_by_another(self, storage, number, interrupter):
        """Return the tids of what was acknowledged."""
        transaction, waiting = TransactionMetaData(), []
        acknowledged = set()
        try:
            with interrupter:
                storage.tpc_begin(transaction)
                storage.store(oid(number), z64, b'its', '', transaction)
                storage.tpc_vote(transaction)
            waiting.append(Thread(commit, storage, {number: b'of another'}))
            until(lambda: owners(storage._turns) == 2, 'it is wanted')
            with interrupter:
                acknowledged.add(storage.tpc_finish(transaction))
        except KeyboardInterrupt:
            pass
        try:
            with interrupter:
                storage.tpc_abort(transaction)  # as transaction managers do
        except KeyboardInterrupt:
            storage.tpc_abort(transaction)
        waiting += [Thread(commit, storage, {number + n: b'x'})
                    for n in (1, 2)]
        return acknowledged | self.results(storage, waiting)

    def results(self, storage, threads):
        acknowledged = set()
        for thread in threads:
            try:
                acknowledged.add(thread.result())
            except WritingStopped:
                self.assertTrue(storage.stats()['writing_stopped'])
            except (ConflictError, OutcomeUnknown, KeyboardInterrupt):
                pass
        return acknowledged

    def leads_others(self, storage, number, interrupter):
        return self.side_by_side(storage, number, interrupter, 0)

    def waits_for_another(self, storage, number, interrupter):
        return self.side_by_side(storage, number, interrupter, 1)

    def side_by_side(self, storage, number, interrupter, which):
        """Interrupt the finish of one of three, which begin in order."""
        called, told = [], []
        voted = [vote(storage, {number + n: b'x'}) for n in range(3)]

        def finish(transaction, is_interrupted):
            with interrupter if is_interrupted else contextlib.nullcontext():
                return storage.tpc_finish(transaction, called.append)

        threads = []
        self.disk.hold_again()
        for n, transaction in enumerate(voted):
            before = storage.stats()['commits']
            threads.append(Thread(finish, transaction, n == which))
            until(lambda: storage.stats()['commits'] > before
                  or not threads[-1].is_alive(), 'it is appended')
        if which:  # else nobody but the interrupted thread wakes the others
            self.finish_later(storage, number + 3, told)
        self.disk.release_syncs()
        acknowledged = self.results(storage, threads)
        for transaction in voted:
            storage.tpc_abort(transaction)
        until(lambda: len(told) == which, 'it is told')
        # Each f was called in order; one that was broken off, once more.
        self.assertEqual(called, sorted(called))
        self.assertLessEqual(len(called), len(set(called)) + 1)
        self.assertLessEqual(acknowledged, set(called))
        return acknowledged | set(told) - {None}

    def finish_later(self, storage, number, told):
        try:
            storage.tpc_finish(vote(storage, {number: b'x'}), AsyncFinish(
                lambda tid, error: told.append(tid)))
        except (WritingStopped, OutcomeUnknown):
            told.append(None)


class Blobs(TestCase):

    def test_an_abort_after_the_append_takes_nothing_back(self):
        for policy in policies.POLICIES:
            with self.subTest(policy):
                self.interrupted_after_its_append(self.open(
                    policy, durability=policy,
                    blob_dir=self.path(policy + '-blobs')))

    def interrupted_after_its_append(self, storage):
        transaction = begin(storage)
        self.store_blob(storage, transaction, 1)
        storage.tpc_vote(transaction)
        with (mock.patch.object(Transaction, 'close',
                                side_effect=KeyboardInterrupt),
              self.assertRaises(KeyboardInterrupt)):
            storage.tpc_finish(transaction)
        tid = storage.stats()['last_appended']
        storage.tpc_abort(transaction)
        commit(storage, {2: b'x'})
        self.assertEqual(storage.load(oid(1)), (b'record', tid))
        with open(storage.loadBlob(oid(1), tid), 'rb') as file:
            self.assertEqual(file.read(), b'content')


class FailingSyncs(TestCase):

    def test_an_interrupt_does_not_hide_the_failure(self):
        """I7: else the thread would sync again, and succeed."""
        disk = self.controlled_disk()
        storage = self.open()
        commit(storage, {1: b'x'})
        disk.fail_sync(EIO)
        because = storage._sequencer._because

        def interrupted(*reason):
            storage._sequencer._because = because
            raise KeyboardInterrupt

        storage._sequencer._because = interrupted
        with self.assertRaises(KeyboardInterrupt):
            commit(storage, {2: b'x'})
        until(lambda: storage.stats()['failed'], 'failed')
        with self.assertRaises(POSKeyError):
            storage.load(oid(2))
        with self.assertRaises(WritingStopped):
            begin(storage)

    def test_no_memory_in_the_middle_of_an_append(self):
        """The index may have half of it: nothing more is written."""
        for is_done in False, True:
            with self.subTest(is_done=is_done):
                storage = self.open(f'{is_done}.fs')
                first = commit(storage, {1: b'a', 2: b'b'})
                transaction = vote(storage, {1: b'x', 2: b'y'}, {
                    1: first, 2: first})
                put = storage.journal.positions.put

                def fail(entries):
                    put(entries[:1] if is_done else [])
                    raise MemoryError

                storage.journal.positions.put = fail
                with self.assertRaises(MemoryError):
                    storage.tpc_finish(transaction)
                self.assertEqual(storage.load(oid(2)), (b'b', first))
                with self.assertRaises(WritingStopped):
                    begin(storage)
                storage.close()
                again = self.open(f'{is_done}.fs')
                self.assertEqual(again.load(oid(1))[0], b'x')
                self.assertEqual(again.load(oid(2))[0], b'y')

    def test_a_failure_between_the_check_and_the_append(self):
        storage = self.open()
        transaction = vote(storage, {1: b'x'})
        append = storage.journal.append

        def stop_first(under_way, commit):
            storage._sequencer.stop_writing('of a test')
            append(under_way, commit)

        storage.journal.append = stop_first
        with self.assertRaisesRegex(OutcomeUnknown, 'of a test'):
            storage.tpc_finish(transaction)

    def test_an_unpromised_commit_is_not_lost_while_it_is_published(self):
        disk = self.controlled_disk()
        storage = self.open(durability='none')

        def f(tid):
            disk.fail_sync(EIO)
            with self.assertRaises(WritingStopped):
                storage._sequencer.sync_to(storage._pos)

        tid = commit(storage, {1: b'x'}, f=f)
        self.assertTrue(tid)
        # Acknowledged as the policy says; read is what is durable.
        self.assertLess(storage.lastTransaction(), tid)


class Publishing(TestCase):

    def test_a_notify_that_fails_leaves_nobody_waiting(self):
        disk = self.controlled_disk()
        storage = self.open()

        def closed():
            raise RuntimeError('Event loop is closed')

        storage.own_publishing(closed)
        disk.hold_syncs()
        first = Thread(storage.tpc_finish, vote(storage, {1: b'x'}))
        disk.wait_for_sync()
        second = Thread(storage.tpc_finish, vote(storage, {2: b'x'}))
        until(lambda: storage.stats()['waiting'] == 2, 'appended')
        disk.fail_sync(EIO)
        disk.release_syncs()
        for thread in first, second:
            with self.assertRaises((OutcomeUnknown, RuntimeError)):
                thread.result()

    def test_done_may_commit_and_close(self):
        """Under `none` too, where it is called by the committer itself."""
        for policy in policies.POLICIES:
            with self.subTest(policy):
                self.assert_done_may_commit_and_close(
                    self.open(policy + '.fs', durability=policy))

    def assert_done_may_commit_and_close(self, storage):
        events = []
        closed = threading.Event()

        def done(tid, error):
            events.append(commit(storage, {2: b'y'}) > tid)
            storage.close()
            closed.set()

        finishing = Thread(storage.tpc_finish, vote(storage, {1: b'x'}),
                           AsyncFinish(done))
        self.assertTrue(closed.wait(30))
        finishing.result()
        self.assertEqual(events, [True])

    def test_one_that_is_published_just_before_its_thread_waits(self):
        storage = self.open()
        storage.own_publishing(lambda: None)
        storage.tpc_finish(vote(storage, {1: b'x'}), AsyncFinish(
            lambda tid, error: None))
        until(lambda: storage.stats()['last_durable']
              == storage.stats()['last_appended'], 'durable')
        sequencer = storage._sequencer
        mutex = sequencer.mutex

        class PublishedFirst:

            def __enter__(self):
                sequencer.mutex = mutex
                storage.publish()
                mutex.acquire()

            def __exit__(self, *ignored):
                mutex.release()

        commit, = sequencer.pipeline.queue
        sequencer.mutex = PublishedFirst()
        Thread(sequencer.settle, commit).result()

    def test_draining_ends_although_others_commit(self):
        disk = self.controlled_disk()
        storage = self.open()
        disk.hold_syncs()

        def finish(number):
            storage.tpc_finish(vote(storage, {number: b'x'}), AsyncFinish(
                lambda tid, error: None))

        finish(1)
        disk.wait_for_sync()
        first, = storage._sequencer.pipeline.queue
        draining = Thread(storage._sequencer.drain)
        until(lambda: first.sleepers, 'waiting')
        finish(2)
        disk.let_one_sync_end()
        draining.result()
        self.assertEqual(storage.stats()['waiting'], 1)
        disk.release_syncs()


class Misuse(TestCase):

    def test_a_tid_that_is_not_later(self):
        storage = self.open()
        tid = commit(storage, {1: b'x'})
        for wrong in tid, p64(u64(tid) - 1):
            with self.assertRaisesRegex(
                    StorageTransactionError, 'not later .*move its files'):
                storage.tpc_begin(TransactionMetaData(), wrong)
        commit(storage, {2: b'x'})
        # Also when the last transaction is in the future.
        future = p64(u64(tid) + (1 << 40))
        transaction = TransactionMetaData()
        storage.tpc_begin(transaction, future)
        storage.tpc_vote(transaction)
        storage.tpc_finish(transaction)
        with self.assertRaises(StorageTransactionError):
            storage.tpc_begin(TransactionMetaData(), tid)
        self.assertGreater(commit(storage, {3: b'x'}), future)

    def test_a_vote_that_fails(self):
        for alone in False, True:
            with self.subTest(alone=alone):
                storage = self.open('alone' if alone else 'one')
                storage.journal.reserve.is_real = not alone
                transaction = begin(storage)
                storage.store(oid(1), b'\0' * 8, b'x', '', transaction)
                with mock.patch.object(storage.journal.reserve, 'promise',
                                       side_effect=OSError(28, 'full')):
                    with self.assertRaisesRegex(OSError, 'full'):
                        storage.tpc_vote(transaction)
                with self.assertRaisesRegex(
                        StorageTransactionError, 'before'):
                    storage.tpc_finish(transaction)
                # Its objects are free already.
                commit(storage, {1: b'y'})
                storage.tpc_abort(transaction)

    def test_a_given_tid_that_is_aborted(self):
        """Later ones are not of the future because of it."""
        for is_voted in False, True:
            with self.subTest(is_voted=is_voted):
                storage = self.open(f'voted {is_voted}')
                tid = commit(storage, {1: b'x'})
                transaction = TransactionMetaData()
                future = p64(u64(tid) + (1 << 45))
                storage.tpc_begin(transaction, future)
                if is_voted:
                    storage.tpc_vote(transaction)
                storage.tpc_abort(transaction)
                self.assertLess(commit(storage, {2: b'x'}), future)


class Iterating(TestCase):

    def test_a_file_whose_tids_do_not_rise(self):
        """Stock writes and reads such files; a copy must not lose the rest."""
        stock = FileStorage(self.path())
        tid = None
        for number in range(4):
            transaction = TransactionMetaData()
            stock.tpc_begin(
                transaction, None if number < 3 else p64(u64(tid) - 5))
            stock.store(oid(number), b'\0' * 8, b'x', '', transaction)
            stock.tpc_vote(transaction)
            tid = stock.tpc_finish(transaction)
        expected = [each.tid for each in stock.iterator()]
        stock.close()
        storage = self.open()
        self.assertEqual([each.tid for each in storage.iterator()], expected)
        self.assertEqual(len(storage.lastInvalidations(9)), 4)
