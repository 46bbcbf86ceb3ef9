"""What is reachable has the same bytes before a pack and after it.

It is read by stock FileStorage, and walked with ZODB's own `referencesf`.
Objects are changed, undone and in conflict before the pack and beside it.
"""

import os
import random
import time
from unittest import mock

from ZODB.FileStorage import FileStorage
from ZODB.POSException import ConflictError
from ZODB.POSException import UndoError
from ZODB.serialize import referencesf
from ZODB.utils import u64
from ZODB.utils import z64

from fsyncstorage.pack.progress import SWAP
from fsyncstorage.pack.progress import Watch

from ..often import often
from ..support import TestCase
from ..support import begin
from ..support import oid
from .histories import BLOB
from .histories import state

OBJECTS = 30
BLOBS = range(20, OBJECTS)
# So many of the last transactions may be undone.
UNDOABLE = 5


def read(storage, each):
    """Data, tid, and the content of the blob."""
    data, serial = storage.load(each)
    blob = None
    if data == BLOB:
        with open(storage.loadBlob(each, serial), 'rb') as file:
            blob = file.read()
    return data, serial, blob


def walked(storage):
    """oid -> what is read of it, of all that is reachable."""
    found = {}
    todo = [z64]
    while todo:
        each = todo.pop()
        if each not in found:
            found[each] = read(storage, each)
            todo += referencesf(found[each][0])
    return found


class Reachable(TestCase):

    level = 2
    lives = often(2, 20)

    def test_it_has_the_same_bytes(self):
        freed = refused = undone = refused_beside = 0
        for number in range(self.lives):
            for pack_process in True, False:
                with self.subTest(number, pack_process=pack_process):
                    life = Life(self, f'{number}-{pack_process}.fs',
                                random.Random(number), pack_process)
                    freed += life.live_through_a_pack()
                    refused += life.refused
                    undone += life.undone_beside
                    refused_beside += life.refused_beside
        self.assertGreater(freed, 0)
        self.assertGreater(refused, 0)
        self.assertGreater(undone, 0)
        self.assertGreater(refused_beside, 0)


class Life:

    def __init__(self, test, name, rng, pack_process):
        self.test, self.name, self.rng = test, name, rng
        self.storage = test.open(name, blob_dir=test.path(name + '.blobs'),
                                 pack_process=pack_process)
        #: What may be stored, and referred to.
        self.numbers = range(OBJECTS)
        self.refused = 0
        # Undos beside the pack.
        self.undone_beside = self.refused_beside = 0
        self.first = None
        #: oid -> what was committed last, and not undone.
        self.committed = {}

    def live_through_a_pack(self):
        """Return how many bytes the pack has freed."""
        test, storage = self.test, self.storage
        self.first = self.commit(self.numbers, z64)
        for _ in range(UNDOABLE):  # so that no creation is undone
            self.commit(self.rng.sample(self.numbers, 2))
        for _ in range(60):
            self.step()
        before = walked(storage)
        # Nothing else can be reached later, by a program that reads.
        self.numbers = [u64(each) for each in before]
        self.committed.clear()
        size = storage.getSize()
        self.pack()
        freed = size - storage.getSize()
        self.check(before, walked(storage))
        self.commit(self.rng.sample(self.numbers, 2))
        storage.close()
        stock = FileStorage(test.path(self.name), read_only=True,
                            blob_dir=test.path(self.name + '.blobs'))
        test.addCleanup(stock.close)
        self.check(before, walked(stock))
        return freed

    def check(self, before, after):
        self.test.assertEqual(
            after, {each: self.committed.get(each, before[each])
                    for each in after})

    def pack(self):
        tell, seen = Watch.tell, set()

        def commit_and_tell(watch, phase, done, total):
            if phase not in seen:
                seen.add(phase)
                for _ in range(2):
                    self.commit(self.rng.sample(self.numbers, 2))
                self.undo_beside()
            tell(watch, phase, done, total)

        with mock.patch.object(Watch, 'tell', commit_and_tell):
            self.storage.pack(time.time() + 1, referencesf)
        self.test.assertIn(SWAP, seen)

    def undo_beside(self):
        try:
            oids = self.undo()
        except UndoError:
            self.refused_beside += 1
            return
        self.undone_beside += 1
        for each in oids:
            self.committed[each] = read(self.storage, each)

    def step(self):
        try:
            if self.rng.random() < .3:
                self.undo()
            else:
                self.commit(
                    self.rng.sample(self.numbers, 2),
                    self.first if self.rng.random() < .1 else None)
        except (ConflictError, UndoError):
            self.refused += 1

    def undo(self):
        transaction = begin(self.storage)
        try:
            log = self.storage.undoLog(0, UNDOABLE)
            _, oids = self.storage.undo(
                self.rng.choice(log)['id'], transaction)
            self.storage.tpc_vote(transaction)
        except UndoError:
            self.storage.tpc_abort(transaction)
            raise
        self.storage.tpc_finish(transaction)
        return oids

    def commit(self, numbers, serial=None):
        storage, transaction = self.storage, begin(self.storage)
        stored = {}
        try:
            for number in numbers:
                data, blob = self.content(number)
                found = serial or storage.getTid(oid(number))
                if blob is None:
                    storage.store(oid(number), found, data, '', transaction)
                else:
                    path = os.path.join(storage.temporaryDirectory(), 'new')
                    with open(path, 'wb') as file:
                        file.write(blob)
                    storage.storeBlob(
                        oid(number), found, data, path, '', transaction)
                stored[oid(number)] = data, blob
            storage.tpc_vote(transaction)
        except ConflictError:
            storage.tpc_abort(transaction)
            raise
        tid = storage.tpc_finish(transaction)
        self.committed.update(
            (each, (data, tid, blob))
            for each, (data, blob) in stored.items())
        return tid

    def content(self, number):
        """The data of an object, and what its blob has."""
        if number in BLOBS:
            return BLOB, self.rng.randbytes(20)
        return state(self.rng, self.rng.sample(self.numbers, 2)), None
