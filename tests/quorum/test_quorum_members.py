"""M4: no single member of the log has the last word."""

import unittest

from fsyncstorage.quorum.history import fold
from fsyncstorage.quorum.history.fold import Refuse
from fsyncstorage.quorum.history.fold import Why
from fsyncstorage.quorum.history.fold import beginning
from fsyncstorage.quorum.history.record import Place
from fsyncstorage.quorum.history.record import Trim
from fsyncstorage.quorum.leading.writer import Fenced
from fsyncstorage.quorum.leading.writer import Writer
from fsyncstorage.quorum.log.interface import Unanswered
from fsyncstorage.quorum.log.members import Nothing
from fsyncstorage.quorum.log.members import Shown
from fsyncstorage.quorum.log.members import ask
from fsyncstorage.quorum.log.members import confirmed
from fsyncstorage.quorum.log.members import hear

from .fakelog import MEMBERS
from .samples import LOG
from .samples import OTHER
from .samples import following
from .samples import identify
from .samples import leader
from .samples import settle
from .wrongmember import EngineWithWrong
from .wrongmember import LogThroughOne
from .wrongmember import wrong_ends

START = beginning(LOG, 0, 4)


class MembersTest(unittest.TestCase):

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

    def refused(self, why, state=None):
        found = ask(self.log, state or self.writer.state)
        self.assertIsInstance(found, Refuse)
        self.assertIs(found.why, why)

    def unanswered(self, pattern, state=None):
        with self.assertRaisesRegex(Unanswered, pattern):
            ask(self.log, state or self.writer.state)


class TheNextRecord(MembersTest):

    def test_it_is_shown(self):
        for number, raw in enumerate(self.engine.records):
            found = ask(self.log, self.state(number))
            self.assertEqual(found.raw, raw)
            self.assertEqual(found.applied.state, self.state(number + 1))

    def test_nothing_is_there(self):
        self.assertEqual(ask(self.log, self.writer.state), Nothing())

    def test_whatever_ends_one_member_says(self):
        for _ in self.each_wrong():
            self.assertEqual(
                ask(self.log, self.state(2)).raw, self.engine.records[2])
            self.assertEqual(ask(self.log, self.writer.state), Nothing())

    def test_one_has_lost_its_last_records(self):
        for wrong in range(MEMBERS):
            self.engine.wrong = wrong
            for number in range(len(self.engine.records)):
                self.engine.lose(number, self.places[number])
                with self.subTest(wrong=wrong, number=number):
                    for state in map(self.state, range(4)):
                        self.assertIsInstance(ask(self.log, state), Shown)
                    self.assertEqual(
                        ask(self.log, self.writer.state), Nothing())

    def test_two_that_show_other_records(self):
        """The third one decides."""
        late = Writer(self.log, self.state(2), identify('late'))
        late.lead(LOG)
        self.engine.lose(2, self.places[2])
        self.log.through = self.engine.wrong
        with self.assertRaises(Fenced):
            late.advance()
        self.engine.away = {0}
        self.unanswered('the record is shown; the rec', self.state(2))
        self.engine.away = set()
        self.assertEqual(
            ask(self.log, self.state(2)).raw, self.engine.records[2])

    def test_two_do_not_answer(self):
        self.engine.away = {0, 1}
        self.assertIsInstance(ask(self.log, self.state(2)), Shown)
        self.unanswered('1 of 3 members have answered')

    def test_it_is_damaged_on_all_members_but_one(self):
        for sound in range(MEMBERS):
            for member in {*range(MEMBERS)} - {sound}:
                self.engine.damage(member, 3, 300)
            self.assertIsInstance(ask(self.log, self.state(2)), Shown)
            self.engine.damaged.clear()

    def test_it_is_damaged_on_all(self):
        """The node stops when all have said so."""
        for member in range(MEMBERS):
            self.engine.damage(member, 3, 300)
        self.refused(Why.DAMAGED, self.state(2))
        self.engine.away = {1}
        self.unanswered('is wrong', self.state(2))


class Refused(MembersTest):
    """What is true of the log is said by all members, and believed."""

    def test_when_a_majority_has_answered(self):
        self.engine.restore(self.places[2])
        for away in [], [0], [1], [2]:
            self.engine.away = {*away}
            self.refused(Why.BEHIND)
        self.engine.away = {0, 2}
        self.unanswered('record 4 was confirmed')

    def test_a_log_that_was_restored_and_went_on(self):
        node = self.state(3)
        self.engine.restore(self.places[2])
        leader(self.log, self.state(2), 'successor')
        self.refused(Why.FORKED, node)
        self.writer = leader(self.log, self.state(3), 'another')
        self.refused(Why.FORKED, node)

    def test_one_that_begins_too_late(self):
        self.engine.trim(4)
        self.refused(Why.TRIMMED, self.state(2))
        self.assertIsInstance(ask(self.log, self.state(3)), Shown)

    def test_a_record_that_no_node_applies(self):
        raw = following(self.writer.state, Trim(1), writer=OTHER)
        self.engine.append(self.engine.head, Place(5, bytes(16)), raw)
        self.refused(Why.USURPED)


class Confirmed(MembersTest):
    """What a node may keep."""

    def unknown(self, state):
        with self.assertRaises(Unanswered):
            confirmed(self.log, state)

    def test_all_that_the_log_has(self):
        for number in range(len(self.places)):
            self.assertTrue(confirmed(self.log, self.state(number)))

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
        self.unknown(state)

    def test_what_was_lost(self):
        state = self.state(4)
        self.engine.restore(self.places[3])
        self.assertFalse(confirmed(self.log, state))


class OneByOne(MembersTest):

    def test_what_the_wrong_one_says(self):
        state = self.writer.state
        found = set()
        for lie in wrong_ends(self.engine.ends()):
            self.engine.lie = lie
            self.assertEqual(hear(self.log, state, 0), Nothing())
            found.add(hear(self.log, state, self.engine.wrong).why)
        self.assertEqual(found, {
            Why.OTHER_LOG, Why.TRIMMED, Why.HOLE, Why.BEHIND, Why.FORKED})
