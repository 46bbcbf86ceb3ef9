"""A vote that finds a conflict where it must not resolve one (VoteAgain).

Its transaction holds nothing then, and keeps what it stores: it is voted again
where the conflict may be resolved.
"""

import base64
from unittest import mock

from ZODB.FileStorage.FileStorage import FileStorageQuotaError
from ZODB.POSException import ConflictError
from ZODB.POSException import POSKeyError
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

    def undo(self, transaction):
        self.storage.store(oid(2), z64, record(), '', transaction)
        self.storage.undo(
            base64.encodebytes(self.undone).rstrip(), transaction)

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
        self.undo(transaction)
        self.change()
        self.check_voted_again(transaction)
        self.assertEqual(state_of(self.storage.load(oid(1))[0]), 4)
        self.assertEqual(self.storage.load(oid(2))[0], record())

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

    def test_the_quota_holds_beside_an_undo(self):
        storage = self.open(self.path('small'), quota=2000)
        first = commit(storage, {1: record('a')})
        second = commit(storage, {1: record('b')}, {1: first})
        transaction = begin(storage)
        storage.undo(base64.encodebytes(second).rstrip(), transaction)
        with self.assertRaises(FileStorageQuotaError):
            for number in 2, 3:
                storage.store(
                    oid(number), z64, bytes(3000), '', transaction)

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

    def test_what_is_stored_after_an_undo_stays(self):
        """Also if the vote works the undo out again, or all was spilled."""
        storage = self.storage
        for number, name in enumerate(('undo', 'undo_at_vote'), 1):
            first = commit(storage, {number: record('a')})
            second = commit(storage, {number: record('b')}, {number: first})
            transaction = begin(storage)
            getattr(storage, name)(self.undo_of(second), transaction)
            storage.store(oid(number), second, record('c'), '', transaction)
            commit(storage, {10 + number: record()})
            storage.tpc_vote(transaction)
            storage.tpc_finish(transaction)
            self.assertEqual(storage.load(oid(number))[0], record('c'))

    def test_what_was_stored_beside_an_undo_that_grows_in_the_vote(self):
        storage = self.storage
        storage.distrust_records()
        tids = [z64]
        for value in 10, 110, 1110:
            tids.append(commit(storage, {1: counter(value)}, {1: tids[-1]}))
        first = commit(storage, {5: record('first')})
        transaction = begin(storage)
        with mock.patch.object(transactions, 'SPOOL_IN_MEMORY', 1 << 20):
            storage.undo_at_vote(self.undo_of(tids[2]), transaction)
            storage.store(oid(5), first, record('mine'), '', transaction)
            storage.store(oid(7), z64, record('kept'), '', transaction)
        holder = vote(storage, {5: record('other')}, {5: first})
        with self.assertRaises(Occupied):
            storage.tpc_vote(transaction, False, ForAClient(True, True))
        second = storage.tpc_finish(holder)
        with self.assertRaises(ConflictsLeft):
            storage.tpc_vote(transaction, False, ForAClient(True, True))
        storage.store(oid(5), second, record('again'), '', transaction)
        storage.tpc_vote(transaction, False, ForAClient(True, True))
        storage.tpc_finish(transaction)
        self.assertEqual(state_of(storage.load(oid(1))[0]), 1010)
        for number, value in (5, 'again'), (7, 'kept'):
            self.assertEqual(storage.load(oid(number))[0], record(value))

    def test_one_that_grows_is_not_alone_beside_others(self):
        """It has its objects already when its conflict is resolved."""
        storage = self.storage
        first = commit(storage, {1: counter(1)})
        undone = commit(storage, {1: counter(2)}, {1: first})
        transaction = begin(storage)
        storage.undo(self.undo_of(undone), transaction)
        size = storage._begun[id(transaction)].length
        beside = vote(storage, {2: record()})
        with storage.nobody_has_the_place(), mock.patch.object(
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

    def test_one_after_another_with_a_store_between(self):
        storage = self.storage
        first = commit(storage, {1: record('a1')})
        second = commit(storage, {1: record('a2')}, {1: first})
        third = commit(storage, {1: record('a3')}, {1: second})
        transaction = begin(storage)
        storage.undo(self.undo_of(third), transaction)
        storage.store(oid(3), z64, record('x' * 200), '', transaction)
        storage.undo(self.undo_of(second), transaction)
        storage.tpc_vote(transaction)
        storage.tpc_finish(transaction)
        self.assertEqual(storage.load(oid(1))[0], record('a1'))
        self.assertEqual(storage.load(oid(3))[0], record('x' * 200))


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
        second.store(2, record())
        vote = second.ask('vote', second.id)
        committer = server.services['1'].committer
        until(lambda: committer.waiting == 1, 'waiting')
        first.finish()
        self.assertEqual(second.answer(vote), [oid(1)])
        tid = second.finish()
        for number in 1, 2:
            self.assertEqual(second.load(number)[1], tid)
        self.assertEqual(state_of(second.load(1)[0]), 4)
