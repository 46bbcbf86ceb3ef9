"""A vote that finds a conflict where it must not resolve one (VoteAgain).

Its transaction holds nothing then, and keeps what it stores: it is voted again
where the conflict may be resolved.
"""

import base64
from unittest import mock

from ZODB.POSException import ConflictError
from ZODB.POSException import POSKeyError
from ZODB.POSException import StorageTransactionError
from ZODB.POSException import UndoError
from ZODB.utils import z64

from fsyncstorage.errors import ConflictsLeft
from fsyncstorage.errors import Occupied
from fsyncstorage.errors import Unpublished
from fsyncstorage.errors import Unresolved
from fsyncstorage.storage import told
from fsyncstorage.storage import transaction as transactions
from fsyncstorage.storage.told import AsyncFinish
from fsyncstorage.storage.told import ForAClient

from ..server.serving import Served
from ..server.serving import counter
from ..server.serving import record
from ..server.serving import state_of
from ..support import TestCase
from ..support import begin
from ..support import commit
from ..support import oid
from ..support import until
from ..support import vote


class OfAStorage(TestCase):

    def setUp(self):
        super().setUp()
        self.storage = self.open()
        first = commit(self.storage, {1: counter(1)})
        self.undone = commit(self.storage, {1: counter(2)}, {1: first})

    def change(self):
        commit(self.storage, {1: counter(5)}, {1: self.undone})

    def check_voted_again(self, transaction):
        with self.assertRaises(Unresolved):
            self.storage.tpc_vote(
                transaction, False, ForAClient(resolve=False))
        # It holds nothing.
        commit(self.storage, {3: record()})
        self.storage.tpc_vote(transaction, False, ForAClient())
        tid = self.storage.tpc_finish(transaction)
        self.assertEqual(self.storage.load(oid(1))[1], tid)

    def test_an_undo_that_its_vote_works_out_again(self):
        transaction = begin(self.storage)
        self.storage.undo(
            base64.encodebytes(self.undone).rstrip(), transaction)
        self.change()
        self.check_voted_again(transaction)
        self.assertEqual(state_of(self.storage.load(oid(1))[0]), 4)

    def test_a_store(self):
        transaction = begin(self.storage)
        self.storage.store(oid(1), self.undone, counter(3), '', transaction)
        self.change()
        self.check_voted_again(transaction)
        self.assertEqual(state_of(self.storage.load(oid(1))[0]), 6)

    def test_what_fails_because_of_anybody_waits_once(self):
        """While others commit, something is always unpublished."""
        storage = self.storage
        storage.own_publishing(lambda: None)

        def append(number):
            storage.tpc_finish(vote(storage, {number: record()}),
                               AsyncFinish(lambda tid, error: None))

        append(5)
        transaction = begin(storage)
        storage.deleteObject(oid(99), z64, transaction)
        with self.assertRaises(Unpublished):
            storage.tpc_vote(transaction, False, ForAClient())
        storage.publish()
        append(6)
        with self.assertRaises(POSKeyError):
            storage.tpc_vote(transaction, False, ForAClient())

    def test_conflicts_take_so_much_memory(self):
        """One more is an error."""
        self.storage.distrust_records(resolve=False)
        commit(self.storage, {2: counter(1)})
        two = 2 * (told.OF_A_CONFLICT + len(counter(3)))
        for most, expected in (two, ConflictsLeft), (two - 1, ConflictError):
            transaction = begin(self.storage)
            for number in 1, 2:
                self.storage.store(
                    oid(number), z64, counter(3), '', transaction)
            with mock.patch.object(told, 'MOST_TO_RESOLVE', most):
                with self.assertRaises(expected):
                    self.storage.tpc_vote(transaction, False, ForAClient(
                        leaves_conflicts=True))
            self.storage.tpc_abort(transaction)

    def test_a_client_that_resolves_nothing(self):
        """It votes once more, and has stored nothing in between."""
        self.storage.distrust_records(resolve=False)
        transaction = begin(self.storage)
        self.storage.store(oid(1), self.undone, counter(3), '', transaction)
        self.change()
        for _ in range(2):
            with self.assertRaises(ConflictsLeft):
                self.storage.tpc_vote(
                    transaction, False, ForAClient(True, True))

    def test_conflicts_that_the_client_resolves(self):
        """They come all together; what it stores again is in their place."""
        self.storage.distrust_records(resolve=False)
        first = commit(self.storage, {2: counter(1), 4: counter(1)})
        transaction = begin(self.storage)
        for number, serial in (1, self.undone), (2, z64), (4, first):
            self.storage.store(
                oid(number), serial, counter(3), '', transaction)
        self.change()
        with self.assertRaises(ConflictsLeft) as raised:
            self.storage.tpc_vote(transaction, False, ForAClient(True, True))
        self.assertEqual(
            [(each['oid'], each['serials'], each['data'])
             for each in raised.exception.conflicts],
            [(oid(1), (self.storage.getTid(oid(1)), self.undone), counter(3)),
             (oid(2), (first, z64), counter(3))])
        for number in 1, 2:
            self.storage.store(oid(number), self.storage.getTid(oid(number)),
                               counter(7), '', transaction)
        self.storage.tpc_vote(transaction, False, ForAClient(True, True))
        tid = self.storage.tpc_finish(transaction)
        for committed in self.storage.iterator(tid):
            self.assertEqual(
                [(each.oid, state_of(each.data)) for each in committed],
                [(oid(1), 7), (oid(2), 7), (oid(4), 3)])


class Large(TestCase):
    """Undos whose data do not fit into memory."""

    def setUp(self):
        super().setUp()
        self.patch(transactions, SPOOL_IN_MEMORY=30)
        self.storage = self.open()

    def undo_of(self, tid):
        return base64.encodebytes(tid).rstrip()

    def test_an_undo_that_is_merged(self):
        """It is worked out by the call, and by the vote."""
        storage = self.storage
        for number, name in enumerate(('undo', 'undo_at_vote'), 1):
            tids = [z64]
            for value in 10, 110, 1110:
                tids.append(commit(storage, {number: counter(value)}, {
                    number: tids[-1]}))
            transaction = begin(storage)
            getattr(storage, name)(self.undo_of(tids[2]), transaction)
            commit(storage, {10 + number: record()})
            storage.tpc_vote(transaction)
            storage.tpc_finish(transaction)
            self.assertEqual(state_of(storage.load(oid(number))[0]), 1010)

    def test_it_does_nothing_else(self):
        storage = self.storage
        first = commit(storage, {1: record('a')})
        second = commit(storage, {1: record('b')}, {1: first})
        undo = self.undo_of(second)
        stores = [
            lambda to: storage.store(oid(2), z64, record(), '', to),
            lambda to: storage.store(oid(2), z64, bytes(99), '', to),
            lambda to: storage.deleteObject(oid(1), second, to),
            lambda to: storage.restore(oid(2), second, b'x', '', None, to),
            lambda to: storage.checkCurrentSerialInTransaction(
                oid(1), second, to)]
        for undoes in storage.undo, storage.undo_at_vote:
            for store in stores:
                transaction = begin(storage)
                store(transaction)
                with self.assertRaisesRegex(
                        StorageTransactionError, 'undoes no other'):
                    undoes(undo, transaction)
                storage.tpc_abort(transaction)
                transaction = begin(storage)
                undoes(undo, transaction)
                storage.spill(transaction)
                with self.assertRaisesRegex(
                        StorageTransactionError, 'nothing else'):
                    store(transaction)
                storage.tpc_vote(transaction)
                second = storage.tpc_finish(transaction)
                self.assertEqual(storage.loadSerial(oid(1), second),
                                 record('a'))
                undo = self.undo_of(second)
                storage.undo(undo, transaction := begin(storage))
                storage.tpc_vote(transaction)
                second = storage.tpc_finish(transaction)
                undo = self.undo_of(second)

    def test_so_many_at_once(self):
        storage = self.storage
        self.patch(transactions, MOST_UNDONE=2)
        tids = [z64]
        for name in 'abcd':
            tids.append(commit(storage, {1: record(name)}, {1: tids[-1]}))
        transaction = begin(storage)
        storage.undo(self.undo_of(tids[4]), transaction)
        with self.assertRaises(UndoError):
            storage.undo(self.undo_of(tids[1]), transaction)
        storage.undo(self.undo_of(tids[3]), transaction)
        with self.assertRaisesRegex(StorageTransactionError, 'at most 2'):
            storage.undo(self.undo_of(tids[2]), transaction)
        storage.tpc_vote(transaction)
        storage.tpc_finish(transaction)
        self.assertEqual(storage.load(oid(1))[0], record('b'))

    def test_one_that_grows_is_not_alone_beside_others(self):
        """It has its objects already when its conflict is resolved."""
        storage = self.storage
        first = commit(storage, {1: counter(1)})
        undone = commit(storage, {1: counter(2)}, {1: first})
        transaction = begin(storage)
        storage.undo(self.undo_of(undone), transaction)
        size = storage._begun[id(transaction)].length
        beside = vote(storage, {2: record()})
        with storage.nobody_holds_the_file(), mock.patch.object(
                transactions, 'MOST_BYTES_AT_ONCE', size):
            with self.assertRaises(Occupied):
                storage.tpc_vote(transaction, wait=False)
        with mock.patch.object(transactions, 'MOST_BYTES_AT_ONCE', size - 1):
            storage.tpc_vote(transaction, wait=False)
        storage.tpc_finish(beside)
        tid = storage.tpc_finish(transaction)
        self.assertEqual(storage.load(oid(1)), (counter(1), tid))
        storage.close()
        self.assertEqual(self.open().load(oid(1)), (counter(1), tid))


class OverZEO(Served):

    def test_an_undo_that_waited_for_its_turn(self):
        """What it undoes was changed meanwhile."""
        server = self.serve()
        first, second = map(self.connect, [server] * 2)
        undone = first.commit(
            {1: counter(2)}, first.commit({1: counter(1)}))
        first.vote({1: counter(5)}, undone)
        second.begin()
        second.post('undoa', base64.encodebytes(undone).rstrip(), second.id)
        vote = second.ask('vote', second.id)
        committer = server.services['1'].committer
        until(lambda: committer.waiting == 1, 'waiting')
        first.finish()
        self.assertEqual(second.answer(vote), [oid(1)])
        self.assertEqual(second.finish(), second.load(1)[1])
        self.assertEqual(state_of(second.load(1)[0]), 4)
