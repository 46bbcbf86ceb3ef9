"""Interrupts and errors at the worst moments: I7 and I10, line by line."""

import itertools
import linecache
import os
import sys
import threading
from types import SimpleNamespace
from unittest import mock

from ZODB.Connection import TransactionMetaData
from ZODB.FileStorage import FileStorage
from ZODB.POSException import ConflictError
from ZODB.POSException import POSKeyError
from ZODB.POSException import StorageTransactionError
from ZODB.POSException import UndoError
from ZODB.utils import p64
from ZODB.utils import u64

from fsyncstorage import AsyncFinish
from fsyncstorage import FsyncStorage
from fsyncstorage.commit import policies
from fsyncstorage.commit.wakeable import taken_lock
from fsyncstorage.errors import OutcomeUnknown
from fsyncstorage.errors import WritingStopped
from fsyncstorage.pack.restorable import NothingRestorable
from fsyncstorage.storage.transaction import SPOOL_IN_MEMORY
from fsyncstorage.storage.transaction import Transaction

from ..support import TestCase
from ..support import Thread
from ..support import begin
from ..support import commit
from ..support import oid
from ..support import owners
from ..support import under_way
from ..support import until
from ..support import vote

EIO = OSError(5, 'Input/output error')


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


class AfterCalls(Interrupter):
    """The same, as the n-th call of a function that is not written in Python
    has returned to this function: before what it has returned is kept."""

    def __init__(self, at, caller):
        super().__init__(at)
        self._code = caller.__code__

    def __enter__(self):
        sys.setprofile(self._trace)

    def __exit__(self, *ignored):
        sys.setprofile(None)

    def _trace(self, frame, event, arg):
        if (event == 'c_return' and not self.fired
                and frame.f_code is self._code):
            self._left -= 1
            if not self._left:
                self.fired = True
                raise self._error


class WithinConditions(Interrupter):
    """The same, each time that this thread enters a Condition itself, instead
    of its lock: when it has locked, and the block has not begun."""

    def __init__(self):
        super().__init__(at=1)

    def __enter__(self):
        sys.setprofile(self._trace)

    def __exit__(self, *ignored):
        sys.setprofile(None)

    def _trace(self, frame, event, arg):
        if (event == 'return'
                and frame.f_code is threading.Condition.__enter__.__code__):
            raise self._error


class EveryLine(TestCase):
    """An interrupt at each line of a finish, with others waiting."""

    level = 2

    def test_of_a_finish(self):
        for policy in policies.POLICIES:
            with self.subTest(policy):
                self.at_every_line(policy)

    def test_of_a_finish_that_must_not_wait(self):
        for policy in policies.POLICIES:
            with self.subTest(policy):
                self.at_every_line(policy, AsyncFinish(
                    lambda tid, error: None, wait=False))

    def test_of_a_close(self):
        """Others that commit find it closed; none waits."""
        for at in itertools.count(1):
            storage = self.open(f'{at}.fs')
            interrupter = AfterCalls(at, FsyncStorage._close)
            try:
                with interrupter:
                    storage.close()
            except KeyboardInterrupt:
                storage._release()  # where it came before all else
            self.assertFalse(storage._commit_lock.locked())
            if not interrupter.fired:
                break

    def test_of_an_election(self):
        """Who leads then, and who is waited for no more, was woken."""
        sequencer = self.open()._sequencer
        for at in itertools.count(1):
            waiter = taken_lock()
            waited_for = SimpleNamespace(waiters=[waiter], orphan=False)
            sequencer._leader = None
            interrupter = Interrupter(at)
            try:
                with interrupter:
                    sequencer._elect_one_of([waited_for])
            except KeyboardInterrupt:
                pass
            if (sequencer._leader is waiter
                    or waiter not in waited_for.waiters):
                self.assertTrue(waiter.acquire(blocking=False))
            if not interrupter.fired:
                break
        self.assertIs(sequencer._leader, waiter)
        self.assertGreater(at, 4)
        sequencer._leader = None

    def at_every_line(self, policy, f=None):
        storage = self.open(policy, durability=policy, sync_interval='1h')
        number, at = 100, 0
        while True:
            at += 1
            number += 10
            interrupter = Interrupter(at)
            transaction = vote(storage, {number: b'%d' % number})
            before = storage.stats()['last_appended']
            others = []
            try:
                with interrupter:
                    storage.tpc_finish(transaction, f)
            except KeyboardInterrupt:
                pass
            storage.tpc_abort(transaction)  # as transaction managers do
            tid = storage.stats()['last_appended']
            if tid == before:
                tid = None  # it was broken off in time
            others = [Thread(commit, storage, {number + n: b'x'})
                      for n in (1, 2)]
            last = max(other.result() for other in others)
            self.assertEqual(storage.lastTransaction(), last)
            self.check_all_or_nothing(storage, number, tid)
            if not interrupter.fired:
                break
        self.assertGreater(at, 30)
        until(lambda: not storage.stats()['waiting'], 'settled')
        expected = [each.tid for each in storage.iterator()]
        storage.close()
        stock = FileStorage(self.path(policy))
        self.assertEqual([each.tid for each in stock.iterator()], expected)
        stock.close()

    def check_all_or_nothing(self, storage, number, tid):
        in_file = tid in {each.tid for each in storage.iterator()}
        self.assertEqual(in_file, tid is not None)
        try:
            self.assertEqual(storage.load(oid(number)),
                             (b'%d' % number, tid))
            found = True
        except POSKeyError:
            found = False
        self.assertEqual(found, in_file)


class BusyLock:
    """A signal is noticed whenever a lock was taken or freed by a call.

    Not in a `with`, where it comes before, or behind.
    """

    def __init__(self, lock):
        self._lock = lock
        self.locked = lock.locked
        self.interrupts = 1

    def __enter__(self):
        self._lock.acquire()

    def __exit__(self, *ignored):
        self._lock.release()
        self._interrupt()

    def acquire(self, *args, **kw):
        result = self._lock.acquire(*args, **kw)
        self._interrupt()
        return result

    def release(self):
        self._lock.release()
        self._interrupt()

    def _interrupt(self):
        self.interrupts -= 1
        if not self.interrupts:
            raise KeyboardInterrupt


class TheAppendLock(TestCase):
    """Of who is alone: an interrupt just when it is taken or freed."""

    level = 2

    def test_it_is_freed_once(self):
        for end in 'tpc_abort', 'tpc_finish':
            for at in 1, 2:
                with self.subTest(end, at=at):
                    self.interrupted(self.open(f'{end} {at}'), end, at)

    def interrupted(self, storage, end, at):
        storage._reserve.is_real = False  # so it is alone
        lock = storage._commit_lock
        storage._commit_lock = busy = BusyLock(lock)
        busy.interrupts = at
        transaction = begin(storage)
        storage.store(oid(1), b'\0' * 8, b'x', '', transaction)
        with self.assertRaises(KeyboardInterrupt):
            storage.tpc_vote(transaction)
            getattr(storage, end)(transaction)
            raise KeyboardInterrupt  # with fewer calls there were fewer
        storage._commit_lock = lock
        storage.tpc_abort(transaction)
        storage.tpc_abort(transaction)
        self.assertFalse(lock.locked())
        self.assertEqual(owners(storage._turns), 0)
        commit(storage, {2: b'y'})


class Blobs(TestCase):

    level = 2

    def test_an_abort_after_the_append_takes_nothing_back(self):
        for policy in policies.POLICIES:
            with self.subTest(policy):
                self.interrupted_after_its_append(self.open(
                    policy, durability=policy,
                    blob_dir=self.path(policy + '-blobs')))

    def interrupted_after_its_append(self, storage):
        with open(self.path('upload'), 'wb') as file:
            file.write(b'content')
        transaction = begin(storage)
        storage.storeBlob(oid(1), b'\0' * 8, b'blob', self.path('upload'), '',
                          transaction)
        storage.tpc_vote(transaction)
        with (mock.patch.object(Transaction, 'close',
                                side_effect=KeyboardInterrupt),
              self.assertRaises(KeyboardInterrupt)):
            storage.tpc_finish(transaction)
        tid = storage.stats()['last_appended']
        storage.tpc_abort(transaction)
        commit(storage, {2: b'x'})
        self.assertEqual(storage.load(oid(1)), (b'blob', tid))
        with open(storage.loadBlob(oid(1), tid), 'rb') as file:
            self.assertEqual(file.read(), b'content')


class FailingSyncs(TestCase):

    level = 2

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

    def test_any_error_of_a_sync_is_one(self):
        disk = self.controlled_disk()
        storage = self.open()
        disk.fail_sync(RuntimeError('a bug'))
        with self.assertRaisesRegex(OutcomeUnknown, 'a bug'):
            commit(storage, {1: b'x'})
        self.assertTrue(storage.stats()['failed'])

    def test_a_failure_between_the_check_and_the_append(self):
        storage = self.open()
        transaction = vote(storage, {1: b'x'})
        advance = storage._advance

        def stop_first(under_way, commit):
            storage._sequencer.stop_writing('of a test')
            advance(under_way, commit)

        storage._advance = stop_first
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

    level = 2

    def test_closing_publishes_what_an_owner_did_not(self):
        storage = self.open()
        storage.own_publishing(lambda: None)
        done = []
        storage.tpc_finish(vote(storage, {1: b'x'}), AsyncFinish(
            lambda tid, error: done.append((tid, error))))
        until(lambda: storage.stats()['last_durable']
              == storage.stats()['last_appended'], 'durable')
        storage.close()
        self.assertEqual([error for _, error in done], [None])

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

    def test_an_f_that_exits_does_not_end_the_thread(self):
        storage = self.open()
        told = threading.Event()

        def f(tid):
            if not told.is_set():
                told.set()
                raise SystemExit

        storage.tpc_finish(vote(storage, {1: b'x'}),
                           AsyncFinish(lambda tid, error: None, f))
        self.assertTrue(told.wait(30))
        commit(storage, {2: b'x'})
        self.assertEqual(storage.load(oid(1))[0], b'x')

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

    def test_who_waits_for_another_does_not_get_its_error(self):
        disk = self.controlled_disk()
        storage = self.open()
        first = commit(storage, {1: b'first'})

        def f(tid):
            raise RuntimeError('f of another')

        disk.hold_syncs()
        another = Thread(storage.tpc_finish,
                         vote(storage, {1: b'second'}, {1: first}), f)
        disk.wait_for_sync()
        conflicting = Thread(vote, storage, {1: b'third'}, {1: first})
        draining = Thread(storage._sequencer.drain)
        disk.release_syncs()
        with self.assertRaisesRegex(RuntimeError, 'f of another'):
            another.result()
        with self.assertRaises(ConflictError):
            conflicting.result()
        draining.result()

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
        until(lambda: first.waiters, 'waiting')
        finish(2)
        disk.let_one_sync_end()
        draining.result()
        self.assertEqual(storage.stats()['waiting'], 1)
        disk.release_syncs()


class Misuse(TestCase):

    level = 2

    def test_a_tid_that_is_not_later(self):
        storage = self.open()
        tid = commit(storage, {1: b'x'})
        for wrong in tid, p64(u64(tid) - 1):
            with self.assertRaisesRegex(StorageTransactionError, 'not later'):
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

    def test_only_an_asyncfinish_is_asynchronous(self):
        class Callable:
            done = publish = None
            called = False

            def __call__(self, tid):
                self.called = True

        storage, f = self.open(), Callable()
        commit(storage, {1: b'x'}, f=f)
        self.assertTrue(f.called)

    def test_a_second_vote(self):
        """It is refused, and takes nothing back."""
        storage = self.open()
        transaction = vote(storage, {1: b'x'})
        with self.assertRaisesRegex(StorageTransactionError, 'twice'):
            storage.tpc_vote(transaction)
        tid = storage.tpc_finish(transaction)
        self.assertEqual(storage.load(oid(1)), (b'x', tid))

    def test_a_vote_that_fails(self):
        for alone in False, True:
            with self.subTest(alone=alone):
                storage = self.open('alone' if alone else 'one')
                storage._reserve.is_real = not alone
                transaction = begin(storage)
                storage.store(oid(1), b'\0' * 8, b'x', '', transaction)
                with mock.patch.object(storage._reserve, 'promise',
                                       side_effect=OSError(28, 'full')):
                    with self.assertRaisesRegex(OSError, 'full'):
                        storage.tpc_vote(transaction)
                with self.assertRaisesRegex(
                        StorageTransactionError, 'before'):
                    storage.tpc_finish(transaction)
                # Its objects are free already.
                commit(storage, {1: b'y'})
                storage.tpc_abort(transaction)

    def test_a_vote_after_one_that_failed(self):
        """It is refused: what was worked out again may be a part of it."""
        storage = self.open()
        zero = commit(storage, {1: b'zero'})
        commit(storage, {1: b'one'}, {1: zero})
        undoing = begin(storage)
        storage.undo(storage.undoLog(0, 1)[0]['id'], undoing)
        commit(storage, {2: b'x'})
        storage.restorable = NothingRestorable()
        with self.assertRaisesRegex(UndoError, 'packed'):
            storage.tpc_vote(undoing)
        storage.restorable = None
        with self.assertRaisesRegex(StorageTransactionError, 'failed'):
            storage.tpc_vote(undoing)
        storage.tpc_abort(undoing)
        self.assertEqual(storage.load(oid(1))[0], b'one')

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

    def test_a_spool_that_cannot_be_flushed(self):
        storage = self.open()

        transaction = begin(storage)
        storage.store(oid(1), b'\0' * 8,
                      bytes(SPOOL_IN_MEMORY + 1), '', transaction)
        spool = under_way(storage)._spool
        closed = []

        class Failing:
            def __getattr__(self, name):
                return getattr(spool, name)

            def close(self):
                closed.append(spool.close())
                raise OSError(28, 'No space left on device')

        under_way(storage)._spool = Failing()
        storage.tpc_abort(transaction)
        self.assertEqual(closed, [None])
        commit(storage, {1: b'y'})

    def test_a_disk_that_is_full_at_the_vote(self):
        """Of what is spooled: the finish can rely on it."""
        storage = self.open()
        transaction = begin(storage)
        storage.store(oid(1), b'\0' * 8,
                      bytes(SPOOL_IN_MEMORY + 1), '', transaction)
        spool = under_way(storage)._spool
        under_way(storage)._spool = mock.Mock(
            flush=mock.Mock(side_effect=OSError(28, 'No space left')))
        with self.assertRaisesRegex(OSError, 'No space'):
            storage.tpc_vote(transaction)
        under_way(storage)._spool = spool
        self.assertFalse(spool.closed)
        storage.tpc_abort(transaction)
        self.assertTrue(spool.closed)
        commit(storage, {1: b'y'})

    def test_a_conflict_with_an_unpublished_deletion(self):
        disk = self.controlled_disk()
        storage = self.open()
        first = commit(storage, {1: b'first'})
        disk.hold_syncs()
        transaction = begin(storage)
        storage.deleteObject(oid(1), first, transaction)
        storage.tpc_vote(transaction)
        deletion = Thread(storage.tpc_finish, transaction)
        disk.wait_for_sync()
        doomed = begin(storage)
        thread = Thread(storage.checkCurrentSerialInTransaction,
                        oid(1), first, doomed)
        until(lambda: storage._transaction is None, 'gave way')
        self.assertTrue(thread.is_alive())
        disk.release_syncs()
        deletion.result()
        with self.assertRaises(POSKeyError):
            thread.result()
        with self.assertRaises(POSKeyError):
            storage.load(oid(1))


class Iterating(TestCase):

    level = 2

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

    def test_beside_a_vote_that_is_being_written(self):
        disk = self.controlled_disk()
        storage = self.open()
        commit(storage, {1: b'x'})

        def half(data, position):
            os.pwrite(storage._file.fileno(), data[:10], position)
            found.append(len(list(storage.iterator())))

        found = []
        storage._reserve.is_real = False  # so the vote writes
        disk.before_write = half
        storage.tpc_abort(vote(storage, {2: b'y'}))
        self.assertEqual(found, [1])
