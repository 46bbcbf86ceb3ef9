"""A storage whose packs are agreed on with other nodes."""

import contextlib
import typing

from ZODB.Connection import TransactionMetaData
from ZODB.POSException import POSKeyError
from ZODB.POSException import UndoError
from ZODB.utils import newTid
from ZODB.utils import z64

from ..support import commit
from ..support import oid
from .histories import OBJECTS
from .histories import state
from .undos import undo


class Begin(typing.NamedTuple):

    end: int
    stop: bytes
    collects_garbage: bool


class Hooks:
    """Of a storage; a test replaces what it wants."""

    def __init__(self, storage):
        self.storage = storage
        #: What was called.
        self.calls = []
        #: What the pack is to be done to, and what the file becomes.
        self.begin = self.becoming = None
        storage.pack_hooks = self

    def begins(self, stop, collects_garbage):
        self.calls.append('begins')
        self.begin = Begin(self.storage.getSize(), stop, collects_garbage)
        return self.begin.end

    def ready(self, part, look):
        self.part = part

    def swaps(self, becoming):
        self.calls.append('swaps')
        self.becoming = becoming

    def over(self, swapped):
        self.calls.append(f'over: {swapped}')


class Committer:
    """Changes objects of a storage at random, and undoes and restores."""

    def __init__(self, rng, storage):
        self._rng = rng
        self._storage = storage
        self.tids = []
        self.store([0, 1, 2])

    def do(self):
        rng = self._rng
        what = rng.random()
        if what < .5:
            self.store(rng.sample(range(OBJECTS), rng.randrange(1, 4)))
        elif what < .85:
            self.undo(rng.choice(self.tids[-6:]))
        else:
            self.restore(rng.randrange(OBJECTS))

    def _serial(self, number):
        with contextlib.suppress(POSKeyError):
            return self._storage.getTid(oid(number))
        return None

    def store(self, numbers):
        rng = self._rng
        there = [0, 1, 2, *(
            each for each in range(3, OBJECTS) if self._serial(each))]
        serials = {each: self._serial(each) or z64 for each in numbers}
        self.tids.append(commit(self._storage, {
            each: state(rng, rng.sample(there, rng.randrange(3)))
            for each in numbers
            if serials[each] > z64 or oid(each) not in self._storage._index
        }, serials))

    def undo(self, tid):
        """Not of the first transaction, which has the root."""
        if tid != self.tids[0]:
            with contextlib.suppress(UndoError):
                self.tids.append(undo(self._storage, tid))

    def restore(self, number):
        """The data that the object had in some transaction: the record points
        back, wherever that is."""
        storage, rng = self._storage, self._rng
        prev = rng.choice(self.tids)
        try:
            data = storage.loadSerial(oid(number), prev)
        except POSKeyError:
            return
        transaction = TransactionMetaData()
        tid = newTid(storage.lastTransaction())
        storage.tpc_begin(transaction, tid)
        storage.restore(oid(number), tid, data, '', prev, transaction)
        storage.tpc_vote(transaction)
        self.tids.append(storage.tpc_finish(transaction))
