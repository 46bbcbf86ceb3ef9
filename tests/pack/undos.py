"""What tests of an undo beside a pack have in common."""

import base64
import random
import time

from ZODB.FileStorage import FileStorage
from ZODB.POSException import POSKeyError
from ZODB.POSException import UndoError
from ZODB.serialize import referencesf
from ZODB.TimeStamp import TimeStamp
from ZODB.utils import z64

from fsyncstorage.pack.progress import CHECK
from fsyncstorage.pack.progress import COPY
from fsyncstorage.pack.progress import MARK
from fsyncstorage.pack.progress import REFERENCES
from fsyncstorage.pack.progress import SWAP

from ..often import often
from ..support import TestCase
from ..support import begin
from ..support import commit
from ..support import oid
from ..support import until
from .histories import state
from .phases import PHASES
from .phases import at

# The objects: the root, two that are reached, one that only the second of them
# refers to; and two that are not reached, the first of which refers to the
# second.
ROOT, LEAF, NODE, DEEP, LOST, DEEP_LOST = range(6)
# It has no revision at the pack time.
GONE = 6

# The phases of packs that are looked at: of one that collects garbage, and of
# one that does not; and by a process, which takes long to begin.
WITH_GC = often((REFERENCES, COPY, SWAP), PHASES)
WITHOUT_GC = often((COPY,), (CHECK, COPY, SWAP))
OF_PROCESS = often((), (MARK, COPY))


def undo_of(storage, tid):
    """A transaction that is to undo that one."""
    transaction = begin(storage)
    try:
        storage.undo(base64.encodebytes(tid).rstrip(), transaction)
    except UndoError:
        storage.tpc_abort(transaction)
        raise
    return transaction


def finish(storage, transaction):
    try:
        storage.tpc_vote(transaction)
    except UndoError:
        storage.tpc_abort(transaction)
        raise
    return storage.tpc_finish(transaction)


def undo(storage, tid):
    return finish(storage, undo_of(storage, tid))


class UndoInPackCase(TestCase):

    def setUp(self):
        super().setUp()
        self.rng = random.Random(1)
        self.number = 0
        #: number -> the data that the object must have in the end; None: it
        #: must not be there.
        self.wanted = {}
        #: The pack time.
        self.time = None

    def state(self, *numbers):
        return state(self.rng, numbers)

    def filled(self, **options):
        self.number += 1
        self.name = f'{self.number}.fs'
        self.storage = storage = self.open(
            self.name, durability='none', **options)
        self.first = {
            ROOT: self.state(LEAF, NODE), LEAF: self.state(),
            NODE: self.state(DEEP), DEEP: self.state(),
            LOST: self.state(DEEP_LOST), DEEP_LOST: self.state()}
        self.created = commit(storage, {
            **{number: self.state() for number in self.first},
            GONE: self.state()})
        self.before = self.store(self.first)
        transaction = begin(storage)
        storage.deleteObject(oid(GONE), self.created, transaction)
        storage.tpc_vote(transaction)
        self.deleted = storage.tpc_finish(transaction)
        self.later()
        return storage

    def later(self):
        """The pack time is now."""
        last = TimeStamp(self.storage.lastTransaction()).timeTime()
        until(lambda: time.time() > last + .001, 'later')
        self.time = time.time()
        until(lambda: time.time() > self.time + .001, 'later')

    def store(self, records):
        """A change of these objects, by their numbers."""
        storage = self.storage
        serials = {}
        for number in records:
            try:
                serials[number] = storage.getTid(oid(number))
            except POSKeyError:
                serials[number] = (
                    self.deleted if number == GONE else z64)
        return commit(storage, records, serials)

    def refused(self, why, tid):
        with self.assertRaisesRegex(UndoError, why):
            undo(self.storage, tid)

    def pack(self, phase, do, gc=True):
        """`do()` is called in a phase of it."""
        done = []

        def call(watch):
            do()
            done.append(phase)

        with at(phase, call):
            self.storage.pack(self.time, referencesf, gc=gc)
        self.assertEqual(done, [phase])
        self.check()

    def check(self):
        """All is there, and nothing that is reached refers to nothing; and so
        it is for stock."""
        self.check_in(self.storage)
        self.storage.close()
        stock = FileStorage(self.path(self.name), read_only=True)
        self.addCleanup(stock.close)
        self.check_in(stock)

    def check_in(self, storage):
        for number, data in self.wanted.items():
            if data is None:
                with self.assertRaises(POSKeyError):
                    storage.load(oid(number))
            else:
                self.assertEqual(storage.load(oid(number))[0], data)
        todo, seen = [z64], set()
        while todo:
            each = todo.pop()
            if each not in seen:
                seen.add(each)
                todo += referencesf(storage.load(each)[0])

    def each(self, check, phases=PHASES, gcs=(True, False)):
        """Call it with a phase, and whether garbage is collected."""
        for pack_process in True, False:
            for phase in phases:
                for gc in gcs:
                    if (phase not in (WITH_GC if gc else WITHOUT_GC)
                            or pack_process and phase not in OF_PROCESS):
                        continue
                    with self.subTest(
                            phase, pack_process=pack_process, gc=gc):
                        self.wanted.clear()
                        self.filled(pack_process=pack_process)
                        check(phase, gc)
