"""A fork after the opening: the child must not use what is its parent's."""

import contextlib
import os
import sys
import threading
import time

from fsyncstorage import FsyncStorage
from fsyncstorage.storage.transaction import SPOOL_IN_MEMORY

from ..support import TestCase
from ..support import Thread
from ..support import begin
from ..support import commit
from ..support import in_a_child
from ..support import oid
from ..support import under_way
from ..support import vote


def refused(function, *args):
    """Why the storage does not do it; None if it does."""
    try:
        function(*args)
    except ValueError as error:
        return str(error)


class Forks(TestCase):

    def setUp(self):
        super().setUp()
        self.storage = self.open(
            durability='none', blob_dir=self.path('blobs'))
        self.first = commit(self.storage, {1: b'first'})

    def content(self):
        with open(self.path(), 'rb') as file:
            return file.read()

    def test_the_child_is_refused(self):
        storage, before = self.storage, self.content()

        def child():
            return [
                refused(begin, storage),
                refused(commit, storage, {2: b'child'}),
                refused(storage.load, oid(1)),
                refused(storage.loadSerial, oid(1), self.first),
                refused(lambda: list(storage.iterator())),
                refused(storage.undoLog),
                refused(storage.history, oid(1)),
                refused(storage.pack, time.time(), lambda data: []),
            ]

        for reason in in_a_child(child):
            self.assertRegex(reason, 'opened by another process, before a'
                             ' fork')
        self.assertEqual(self.content(), before)
        self.goes_on()

    def goes_on(self):
        """The parent."""
        tid = commit(self.storage, {2: b'second'})
        self.assertEqual(self.storage.load(oid(1)), (b'first', self.first))
        self.storage.close()
        self.assertEqual(
            [transaction.tid for transaction in self.open().iterator()][-1],
            tid)

    def test_what_is_dropped_in_the_child(self):
        """It was the parent's, and nothing comes of it."""
        held = [vote(self.storage, {3: b'x'})]
        said = []

        def child():
            sys.unraisablehook = lambda error: said.append(str(error))
            del held[:]
            return said

        self.assertEqual(in_a_child(child), [])
        self.storage.tpc_finish(held.pop())
        self.goes_on()

    def test_a_close_in_the_child(self):
        """It removes no mark, writes no index, and frees no lock."""
        said = in_a_child(self.locked)
        self.assertIn('is open for writing', said)
        self.assertTrue(os.path.exists(self.path('Data.fs.unsynced')))
        self.goes_on()
        self.assertFalse(os.path.exists(self.path('Data.fs.unsynced')))

    def locked(self):
        """Close it; then what another opening is told."""
        self.storage.close()
        try:
            FsyncStorage(self.path()).close()
        except Exception as error:
            return str(error)

    def test_the_lock_of_a_parent_that_is_gone(self):
        """A child that lives on does not keep it."""
        end, begun = os.pipe(), os.pipe()
        self.storage.close()

        def child():
            storage = FsyncStorage(self.path())
            if os.fork() == 0:      # the grandchild lives on
                os.write(begun[1], b'x')
                os.close(end[1])
                os.read(end[0], 1)
                os._exit(0)
            os.read(begun[0], 1)
            return storage.lastTransaction().hex()

        self.assertEqual(in_a_child(child), self.first.hex())
        self.storage = self.open()  # the parent left without closing it
        os.write(end[1], b'x')
        for fd in end + begun:
            os.close(fd)
        self.goes_on()

    def test_locks_that_others_held(self):
        """In the child there is nobody to free them."""
        storage = self.storage
        held, free = threading.Event(), threading.Event()

        def hold():
            with contextlib.ExitStack() as stack:
                for lock in (storage._lock, storage._commit_lock,
                             storage._sequencer.mutex,
                             storage._turns._mutex, storage._swapping,
                             storage._sequencer._gate,
                             storage._sequencer._one_sync):
                    stack.enter_context(lock)
                storage._sequencer.publishing = True
                held.set()
                free.wait(30)
            storage._sequencer.publishing = False

        def child():
            answers = [refused(begin, storage),
                       refused(storage.load, oid(1))]
            storage.stats(), storage.new_oid()
            storage.close()
            return answers

        thread = Thread(hold)
        held.wait(30)
        answers = in_a_child(child)
        free.set()
        thread.result()
        for reason in answers:
            self.assertIn('fork', reason)
        self.goes_on()

    def test_a_transaction_in_progress_stays_the_parents(self):
        """The child takes nothing of it back, and writes none of it."""
        storage = self.storage
        transaction = begin(storage)
        self.store_blob(storage, transaction, 5)
        # What was not written yet to the file of a large transaction.
        large = bytes(SPOOL_IN_MEMORY + 1)
        storage.store(oid(6), b'\0' * 8, large, '', transaction)
        storage.store(oid(7), b'\0' * 8, b'buffered', '', transaction)

        spool = under_way(storage)._spool

        def child():
            storage.tpc_abort(transaction)
            spool.flush()
            storage.close()

        self.assertIsNone(in_a_child(child))
        storage.tpc_vote(transaction)
        tid = storage.tpc_finish(transaction)
        self.assertEqual(storage.load(oid(6)), (large, tid))
        self.assertEqual(storage.load(oid(7)), (b'buffered', tid))
        with open(storage.loadBlob(oid(5), tid), 'rb') as file:
            self.assertEqual(file.read(), b'content')
        self.goes_on()

    def test_a_voted_transaction_is_not_cut_off(self):
        transaction = vote(self.storage, {3: b'x'})
        before = self.content()
        in_a_child(lambda: self.storage.tpc_abort(transaction))
        self.assertEqual(self.content(), before)
        self.storage.tpc_finish(transaction)
        self.goes_on()
