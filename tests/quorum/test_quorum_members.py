"""M4: no single member of the log has the last word.  Goes with
`quorum/log/members.py`.
"""

import unittest

from fsyncstorage.quorum.history import fold
from fsyncstorage.quorum.history.fold import Refuse
from fsyncstorage.quorum.history.fold import Why
from fsyncstorage.quorum.history.fold import beginning
from fsyncstorage.quorum.history.record import Trim
from fsyncstorage.quorum.leading.writer import Fenced
from fsyncstorage.quorum.leading.writer import Writer
from fsyncstorage.quorum.log.interface import Unanswered
from fsyncstorage.quorum.log.members import Nothing
from fsyncstorage.quorum.log.members import ask
from fsyncstorage.quorum.log.members import confirmed
from fsyncstorage.quorum.log.members import hear

from .fakelog import MEMBERS
from .samples import LOG
from .samples import identify
from .samples import leader
from .samples import settle
from .wrongmember import EngineWithWrong
from .wrongmember import LogThroughOne
from .wrongmember import wrong_ends

START = beginning(LOG, 0, 4)


class OneWrongMember(unittest.TestCase):

    def setUp(self):
        self.engine = EngineWithWrong(LOG)
        self.log = LogThroughOne(self.engine)
        self.writer = leader(self.log, START)
        self.places = [START.place, self.writer.state.place]
        for _ in range(3):
            self.writer.say(Trim(1))
            settle(self.writer)
            self.places.append(self.writer.state.place)

    def each_wrong(self):
        """Each member in turn has each of the wrong ends."""
        right = self.engine.ends()
        for wrong in range(MEMBERS):
            self.engine.wrong = wrong
            for lie in wrong_ends(right):
                self.engine.lie = lie
                with self.subTest(wrong=wrong, lie=lie):
                    yield
        self.engine.lie = None

    def state(self, number):
        """Of a node that has applied so many records."""
        state = START
        for raw in self.engine.records[:number]:
            state = fold.step(state, raw).state
        return state

    def refused(self, why, state):
        found = ask(self.log, state)
        self.assertIsInstance(found, Refuse)
        self.assertIs(found.why, why)

    def unanswered(self, pattern, state):
        with self.assertRaisesRegex(Unanswered, pattern):
            ask(self.log, state)

    # What all of them say

    def test_whatever_ends_one_member_says(self):
        for _ in self.each_wrong():
            self.assertEqual(
                ask(self.log, self.state(2)).raw, self.engine.records[2])
            self.assertEqual(ask(self.log, self.writer.state), Nothing())

    def test_it_is_damaged_on_all(self):
        """The node stops when all have said so."""
        for member in range(MEMBERS):
            self.engine.damage(member, 3, 300)
        self.refused(Why.DAMAGED, self.state(2))
        self.engine.away = {1}
        self.unanswered('is wrong', self.state(2))

    def test_when_a_majority_has_answered(self):
        self.engine.restore(self.places[2])
        for away in [], [0], [1], [2]:
            self.engine.away = {*away}
            self.refused(Why.BEHIND, self.writer.state)
        self.engine.away = {0, 2}
        self.unanswered('record 4 was confirmed', self.writer.state)

    # What a node may keep

    def test_whatever_one_member_says(self):
        for _ in self.each_wrong():
            for number in range(len(self.places)):
                self.assertTrue(confirmed(self.log, self.state(number)))
        self.engine.lose(0, self.places[0])
        for number in range(len(self.places)):
            self.assertTrue(confirmed(self.log, self.state(number)))

    def test_what_one_member_alone_has(self):
        state = self.state(2)
        self.engine.lose(2, self.places[2])
        self.log.through = self.engine.wrong
        late = Writer(self.log, state, identify('late'))
        late.lead(LOG)
        with self.assertRaises(Fenced):
            late.advance()
        state = hear(self.log, state, self.engine.wrong).applied.state
        self.assertEqual(state.writer, late.id)
        self.assertFalse(confirmed(self.log, state))
        self.engine.away = {0}
        with self.assertRaises(Unanswered):
            confirmed(self.log, state)
