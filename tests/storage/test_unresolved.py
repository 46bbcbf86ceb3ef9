"""A vote that finds a conflict where it must not resolve one (Unresolved).

Nothing of it is kept: its transaction is begun anew by a thread that may
resolve the conflict.
"""

import base64

from ZODB.Connection import TransactionMetaData
from ZODB.POSException import StorageTransactionError
from ZODB.utils import z64

from fsyncstorage.errors import Unresolved

from ..server.serving import Served
from ..server.serving import counter
from ..server.serving import record
from ..server.serving import state_of
from ..support import TestCase
from ..support import commit
from ..support import oid
from ..support import until


class OfAStorage(TestCase):

    def setUp(self):
        super().setUp()
        self.storage = self.open()
        first = commit(self.storage, {1: counter(1)})
        self.undone = commit(self.storage, {1: counter(2)}, {1: first})

    def begin(self, resolve=False):
        transaction = TransactionMetaData()
        self.storage.tpc_begin(transaction)
        self.storage.never_wait_for_publishing(transaction, resolve)
        return transaction

    def undo(self, transaction):
        self.storage.store(oid(2), z64, record(), '', transaction)
        self.storage.undo(
            base64.encodebytes(self.undone).rstrip(), transaction)

    def change(self):
        commit(self.storage, {1: counter(5)}, {1: self.undone})

    def check_only_aborted(self, transaction):
        """A vote that was ended half way is never repeated."""
        with self.assertRaises(Unresolved):
            self.storage.tpc_vote(transaction, wait=False)
        self.storage.never_wait_for_publishing(transaction)
        with self.assertRaises(StorageTransactionError):
            self.storage.tpc_vote(transaction)
        # It holds nothing.
        other = commit(self.storage, {3: record()})
        self.storage.tpc_abort(transaction)
        self.assertEqual(self.storage.lastTransaction(), other)

    def test_an_undo_that_its_vote_works_out_again(self):
        transaction = self.begin()
        self.undo(transaction)
        self.change()
        self.check_only_aborted(transaction)
        again = self.begin(resolve=True)
        self.undo(again)
        self.storage.tpc_vote(again, wait=False)
        tid = self.storage.tpc_finish(again)
        self.assertEqual(self.storage.load(oid(1))[1], tid)
        self.assertEqual(state_of(self.storage.load(oid(1))[0]), 4)
        self.assertEqual(self.storage.load(oid(2))[1], tid)

    def test_a_store_that_its_vote_checks_again(self):
        transaction = self.begin()
        self.storage.store(oid(1), self.undone, counter(3), '', transaction)
        self.change()
        self.check_only_aborted(transaction)


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
