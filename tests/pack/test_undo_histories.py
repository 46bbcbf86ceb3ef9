"""Random histories: an undo that a pack overtakes restores what it was called
for, or is refused."""

import base64
import collections
from unittest import mock

from ZODB.POSException import POSKeyError
from ZODB.POSException import UndoError
from ZODB.POSException import Unsupported
from ZODB.serialize import referencesf

from fsyncstorage.pack import packing
from fsyncstorage.pack.progress import COPY

from ..often import often
from ..support import TestCase
from ..support import begin
from .histories import random_history
from .histories import tid
from .phases import at

SAME, REFUSED = 'the same', 'refused'


class Histories(TestCase):

    level = 2
    histories = often(60, 2000)

    def test_called_before_the_pack_or_beside_it(self):
        outcomes = collections.Counter()
        for number in range(self.histories):
            with self.subTest(number):
                outcomes.update(self.outcomes(number))
        self.assertGreater(outcomes[SAME], self.histories / 2)
        self.assertGreater(outcomes[REFUSED], self.histories / 2)

    def outcomes(self, number):
        """Of the undo of each transaction, voted behind the swap."""
        rng, history = random_history(number)
        name = f'{number}.fs'
        with open(self.path(name), 'wb') as file:
            file.write(bytes(history))
        storage = self.open(name, durability='none', pack_process=False)
        all_of_them = range(history.last + 1)
        early = [each for each in all_of_them if rng.random() < .5]
        called = []
        self.call(storage, early, called)
        with at(COPY, lambda watch: self.call(
                    storage, set(all_of_them) - {*early}, called)), \
                mock.patch.object(packing, 'stop_of', return_value=tid(
                    rng.choice(all_of_them))):
            try:
                storage.pack(0, referencesf, gc=rng.random() < .8)
            except POSKeyError:
                pass    # a reference leads nowhere
        for transaction, wanted in called:
            try:
                storage.tpc_vote(transaction)
            except UndoError:
                yield REFUSED
            else:
                self.assertEqual(self.restored(storage, transaction), wanted)
                yield SAME
            storage.tpc_abort(transaction)
        storage.close()

    def call(self, storage, numbers, called):
        """Undo these transactions, each by itself, as far as that can be."""
        for number in numbers:
            transaction = begin(storage)
            try:
                storage.undo(
                    base64.encodebytes(tid(number)).rstrip(), transaction)
            except (UndoError, Unsupported):
                storage.tpc_abort(transaction)
            else:
                called.append(
                    (transaction, self.restored(storage, transaction)))

    @staticmethod
    def restored(storage, transaction):
        """What the objects would have; None: they would not be there."""
        found = {}
        for record in storage._find(transaction).records:
            try:
                found[record.oid] = record.data or storage._appended.load_back(
                    record.oid, record.back)[0]
            except POSKeyError:
                found[record.oid] = None
        return found
