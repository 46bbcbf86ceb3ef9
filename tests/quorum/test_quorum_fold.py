"""What a node makes of the next record: each reason to refuse one by itself.

(In whatever order things happen: test_quorum_histories.)
"""

import unittest

from fsyncstorage.quorum.history.fold import Apply
from fsyncstorage.quorum.history.fold import Refuse
from fsyncstorage.quorum.history.fold import Why
from fsyncstorage.quorum.history.fold import beginning
from fsyncstorage.quorum.history.fold import step
from fsyncstorage.quorum.history.record import Data
from fsyncstorage.quorum.history.record import Epoch
from fsyncstorage.quorum.history.record import PackBegin
from fsyncstorage.quorum.history.record import PackEnd
from fsyncstorage.quorum.history.record import PackSwap
from fsyncstorage.quorum.history.record import Trim

from .samples import LOG
from .samples import OTHER
from .samples import data
from .samples import following

NODE, WRITER, SUCCESSOR, PACK, NEXT_PACK = (name.ljust(16) for name in (
    b'node', b'writer', b'successor', b'pack', b'next pack'))


class FoldTest(unittest.TestCase):

    def setUp(self):
        self.state = beginning(LOG, 3, 100)
        self.lead(WRITER)

    def lead(self, writer):
        return self.apply(
            Epoch(NODE), self.state.end, epoch=self.state.epoch + 1,
            writer=writer)

    def apply(self, body, position=None, **fields):
        found = step(
            self.state, following(self.state, body, position, **fields))
        self.assertIsInstance(found, Apply)
        self.state = found.state
        return found

    def refused(self, why, body, position=None, **fields):
        found = step(
            self.state, following(self.state, body, position, **fields))
        self.assertIsInstance(found, Refuse)
        self.assertIs(found.why, why)
        return found

    def chunk(self, content=b'bytes', end=None):
        return data(self.state, content, end)


class Refused(FoldTest):

    def test_damage(self):
        raw = bytearray(following(self.state, self.chunk()))
        raw[-1] ^= 1
        self.assertIs(step(self.state, bytes(raw)).why, Why.DAMAGED)

    def test_another_log(self):
        self.refused(Why.OTHER_LOG, self.chunk(), log=OTHER)
        self.refused(Why.OTHER_LOG, self.chunk(), log=OTHER, sequence=1)

    def test_a_hole(self):
        self.refused(
            Why.HOLE, self.chunk(), sequence=self.state.place.sequence + 2)

    def test_another_history(self):
        self.refused(Why.FORKED, self.chunk(), previous=bytes(16))

    def test_an_epoch_that_is_over(self):
        """I16: it is no reason to go on without it."""
        self.lead(SUCCESSOR)
        self.refused(Why.STALE, self.chunk(), epoch=1, writer=WRITER)
        self.refused(Why.STALE, Epoch(NODE), epoch=1, writer=WRITER)

    def test_a_writer_that_does_not_lead(self):
        self.refused(Why.USURPED, self.chunk(), writer=SUCCESSOR)
        self.refused(Why.USURPED, self.chunk(), epoch=2)
        self.refused(Why.USURPED, Epoch(NODE))
        self.refused(Why.USURPED, Epoch(NODE), epoch=3)

    def test_another_place_of_the_file(self):
        for position in 99, 101:
            self.refused(Why.MISPLACED, Data(
                position, position + 1, (), (), b'x'), position)
            self.refused(Why.MISPLACED, Trim(1), position)
            self.refused(
                Why.MISPLACED, Epoch(NODE), position, epoch=2,
                writer=SUCCESSOR)
        # The chunk is in place, and its batch is not.
        self.refused(Why.MISPLACED, Data(99, 105, (), (), b'x'))
        self.refused(Why.MISPLACED, self.chunk(), generation=2)

    def test_an_epoch_begins_behind_whole_batches(self):
        self.apply(self.chunk(b'by', 105))
        self.refused(
            Why.MISPLACED, Epoch(NODE), self.state.next, epoch=2,
            writer=SUCCESSOR)

    def test_what_is_within_a_batch(self):
        self.apply(self.chunk(b'by', 105))
        self.refused(Why.INCOMPLETE, self.chunk(b'tes'), batch=PACK)
        self.refused(Why.INCOMPLETE, self.chunk(b'tes', 106))
        self.refused(Why.INCOMPLETE, Trim(1), self.state.end)
        self.refused(
            Why.INCOMPLETE, PackBegin(bytes(8), True, b'1'), self.state.end)

    def test_a_swap_or_an_end_without_its_pack(self):
        for body in PackSwap(PACK, 60, bytes(32)), PackEnd(PACK):
            with self.subTest(body):
                self.lead(WRITER)
                self.refused(Why.SENSELESS, body)
                self.apply(PackBegin(bytes(8), True, b'1'), batch=PACK)
                self.lead(SUCCESSOR)
                self.refused(Why.SENSELESS, body)
                self.apply(PackBegin(bytes(8), True, b'1'), batch=OTHER)
                self.refused(Why.SENSELESS, body)

    def test_a_trim_of_what_is_to_come(self):
        self.refused(Why.SENSELESS, Trim(self.state.place.sequence + 2))
        self.apply(Trim(self.state.place.sequence + 1))
