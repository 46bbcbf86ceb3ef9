"""A local read equals the server's answer, whatever has happened (I14).

Random histories: changes, undos, undone creations, deletions, packs, restarts.
Each answer of a source, of the core and of its twin, of a local client and of
a process that reads, is compared with that of the storage itself.
"""

import contextlib
import os
import random
import time
import unittest

from ZODB.POSException import POSKeyError
from ZODB.POSException import UndoError
from ZODB.serialize import referencesf
from ZODB.utils import p64
from ZODB.utils import u64
from ZODB.utils import z64

from fsyncstorage import core
from fsyncstorage.format import UNCERTAIN
from fsyncstorage.format import objectmap as layout
from fsyncstorage.format.source import Source

from ..support import TestCase
from ..support import begin
from ..support import oid

OBJECTS = 40
#: Of a history; and how many loads are compared after each step.
STEPS, COMPARED = 60, 40


@unittest.skipUnless(layout.is_possible(), 'needs sealed memory')
class Equal(TestCase):

    level = 2
    histories = 2
    #: So many answers of the local source, at least: else it would show
    #: nothing.
    answers = 1_300

    def setUp(self):
        super().setUp()
        self.answered = 0

    def test_random_histories(self):
        for seed in range(self.histories):
            with self.subTest(seed):
                self.check(random.Random(seed), f'Data{seed}.fs')
        self.assertGreaterEqual(self.answered, self.answers)

    def check(self, choice, name):
        self.choice, self.name = choice, name
        self.policy = choice.choice(['group-commit', 'interval', 'none'])
        self.storage = None
        self.restart()
        self.tids = []
        for _ in range(STEPS):
            self.choice.choice(
                6 * [self.change] + 2 * [self.undo] + 2 * [self.delete]
                + [self.pack, self.restart] + 3 * [self.sync])()
            if any(each.is_retired for each in self.sources):
                self.take()
            revisions = self.revisions()
            for _ in range(COMPARED):
                self.compare(revisions)

    # What happens

    def restart(self):
        if self.storage is not None:
            self.storage.close()
        self.storage = self.open(
            self.name, durability=self.policy, sync_interval='1h',
            pack_process=False)
        self.take()

    def take(self):
        descriptors = self.storage.object_map().open()
        self.sources = [
            kind(*descriptors, self.storage.instance, of_child)
            for kind in {core.Source or Source, Source}
            for of_child in (False, True)]
        for each in descriptors:
            os.close(each)

    def commit(self, store):
        transaction = begin(self.storage)
        try:
            store(transaction)
            self.storage.tpc_vote(transaction)
        except Exception:
            self.storage.tpc_abort(transaction)
            raise
        self.tids.append(self.storage.tpc_finish(transaction))

    def serial(self, number):
        """Of its newest record, which may be of its deletion."""
        try:
            return self.storage.history(oid(number))[0]['tid']
        except POSKeyError:
            return z64

    def change(self):
        numbers = self.choice.sample(range(OBJECTS), self.choice.randint(1, 9))
        size = self.choice.choice([1, 50, 500, 5000, 20000])

        def store(transaction):
            for number in numbers:
                data = b'%d' % self.choice.getrandbits(64)
                self.storage.store(
                    oid(number), self.serial(number), data.ljust(size),
                    '', transaction)

        self.commit(store)

    def undo(self):
        log = self.storage.undoLog(0, 5)
        if log:
            undone = self.choice.choice(log)['id']
            # Not if others have changed the same objects since.
            with contextlib.suppress(UndoError):
                self.commit(lambda transaction: self.storage.undo(
                    undone, transaction))

    def delete(self):
        number = self.choice.randrange(1, OBJECTS)
        serial = self.serial(number)
        if serial != z64:
            self.commit(lambda transaction: self.storage.deleteObject(
                oid(number), serial, transaction))

    def pack(self):
        self.storage.pack(time.time(), referencesf, gc=False)

    def sync(self):
        self.storage._sequencer.sync_to(self.storage.getSize())

    # What is compared

    def revisions(self):
        """Of each object: (tid, data or None), as an iteration finds them."""
        found = {}
        for transaction in self.storage.iterator():
            for record in transaction:
                found.setdefault(record.oid, []).append(
                    (record.tid, record.data))
        return found

    @staticmethod
    def expected(revisions, tid):
        """What loadBefore returns, or raises."""
        end = None
        for serial, data in reversed(revisions):
            if serial < tid:
                return POSKeyError if data is None else (data, serial, end)
            end = serial
        return None if revisions else POSKeyError

    def compare(self, revisions):
        if not self.tids:
            return
        tid = self.choice.choice(self.tids)
        tid = p64(u64(tid) + self.choice.choice([-1, 0, 1]))
        if self.choice.random() < 0.5:
            tid = p64(u64(self.tids[-1]) + 1)
        number = self.choice.randrange(OBJECTS)
        for source in self.sources:
            answer = source.load_before(oid(number), tid)
            if answer is not UNCERTAIN:
                self.answered += 1
                self.assertEqual(answer, self.expected(
                    revisions.get(oid(number), []), tid))
                self.assertEqual(
                    answer, self.storage.loadBefore(oid(number), tid))


class EqualForLong(Equal):

    level = 3
    histories, answers = 80, 100_000
