"""The writer: what became of each record is known before anything else is
offered, whatever becomes of the answers."""

import contextlib
import os
import sys
import unittest

from fsyncstorage.quorum.history.batch import Batch
from fsyncstorage.quorum.history.fold import Apply
from fsyncstorage.quorum.history.fold import beginning
from fsyncstorage.quorum.history.fold import step
from fsyncstorage.quorum.history.record import MOST
from fsyncstorage.quorum.history.record import Place
from fsyncstorage.quorum.history.record import Trim
from fsyncstorage.quorum.history.record import place_of
from fsyncstorage.quorum.leading import writer
from fsyncstorage.quorum.leading.writer import Fenced
from fsyncstorage.quorum.leading.writer import Writer
from fsyncstorage.quorum.log.interface import Unanswered

from .fakelog import MEMBERS
from .fakelog import Engine
from .fakelog import FakeLog
from .fakelog import Fault
from .samples import KIND
from .samples import LOG
from .samples import changed
from .samples import following
from .samples import identify
from .samples import leader
from .samples import settle
from .wrongmember import EngineWithWrong
from .wrongmember import LogThroughOne
from .wrongmember import wrong_ends


class WriterTest(unittest.TestCase):

    def setUp(self):
        self.engine = Engine(LOG)
        self.log = FakeLog(self.engine)
        self.writer = leader(self.log, beginning(LOG, 0, 4))

    def write(self, content=b'bytes', *faults, writer=None):
        """Begin a batch."""
        writer = writer or self.writer
        begin = writer.state.end
        writer.write(Batch(
            begin, begin + len(content),
            lambda at, length: content[at - begin:at - begin + length]))
        self.log.faults.extend(faults)

    def unanswered(self, times=1):
        for _ in range(times):
            with self.assertRaises(Unanswered):
                self.writer.advance()

    def fenced(self, pattern, writer=None):
        writer = writer or self.writer
        for _ in range(2):
            with self.assertRaisesRegex(Fenced, pattern):
                writer.advance()
        before = list(self.engine.records)
        with self.assertRaisesRegex(Fenced, pattern):
            writer.say(Trim(1))
        self.assertEqual(self.engine.records, before)

    def written(self):
        """What a node makes of the log."""
        state, content = beginning(LOG, 0, 4), bytearray(b'FS30')
        for raw in self.engine.records:
            found = step(state, raw)
            self.assertIsInstance(found, Apply)
            state = found.state
            if hasattr(found.record.body, 'data'):
                content[found.record.position:] = found.record.body.data
        self.assertEqual(state, self.writer.state)
        return bytes(content[:state.end])


class Written(WriterTest):

    def test_a_batch(self):
        self.write(b'bytes')
        self.assertTrue(self.writer.advance())
        self.assertEqual(self.written(), b'FS30bytes')
        self.assertTrue(self.writer.advance())
        self.assertEqual(len(self.engine.records), 2)

    def test_a_large_batch(self):
        content = bytes(range(250)) * (2 * MOST // 250 + 1)
        self.write(content)
        self.assertEqual(
            [self.writer.advance() for _ in range(3)], [False, False, True])
        self.assertEqual(self.written(), b'FS30' + content)

    def test_a_file_that_cannot_be_read(self):
        def read(position, length):
            if failures:
                raise failures.pop()
            return bytes(length)

        failures = [OSError('the disk'), KeyboardInterrupt()]
        self.writer.write(Batch(4, 9, read))
        for expected in KeyboardInterrupt, OSError:
            with self.assertRaises(expected):
                self.writer.advance()
        self.assertEqual(self.writer.left, 1)
        settle(self.writer)
        self.assertEqual(self.written(), b'FS30' + bytes(5))


class LostAnswers(WriterTest):

    def test_it_had_no_effect(self):
        self.write(b'bytes', Fault.BEFORE)
        self.unanswered()
        settle(self.writer)
        self.assertEqual(self.written(), b'FS30bytes')

    def test_it_had_its_effect(self):
        self.write(b'bytes', Fault.AFTER)
        self.unanswered()
        settle(self.writer)
        self.assertEqual(self.written(), b'FS30bytes')
        self.assertEqual(len(self.engine.records), 2)

    def test_it_takes_effect_later(self):
        self.write(b'bytes', Fault.DELAYED, Fault.BEFORE)
        self.unanswered(2)
        self.engine.deliver()
        settle(self.writer)
        self.assertEqual(self.written(), b'FS30bytes')

    def test_each_question_behind_it_is_not_answered(self):
        """The append has moved the head; each member is asked for its ends,
        then for the record."""
        answered, not_answered = Fault.NONE, Fault.BEFORE
        self.write(
            b'bytes', Fault.AFTER, Fault.AFTER,
            answered, *[not_answered] * MEMBERS,
            answered, *[answered, not_answered] * MEMBERS)
        self.unanswered(4)
        settle(self.writer)
        self.assertEqual(self.written(), b'FS30bytes')

    def test_its_own_record_is_damaged(self):
        """On one member; if it is so on most, its fate is not known."""
        for member in range(MEMBERS):
            with self.subTest(member=member):
                self.write(b'bytes', Fault.AFTER)
                self.unanswered()
                number = len(self.engine.records)
                for each in range(MEMBERS):
                    self.engine.damage(each, number, 300)
                    self.engine.damaged.pop(
                        ((member + 1) % MEMBERS, number), None)
                self.unanswered(2)
                self.engine.damaged.clear()
                self.engine.damage(member, number, 300)
                self.assertTrue(self.writer.advance())

    def test_the_epoch(self):
        successor = Writer(self.log, self.writer.state, identify('successor'))
        successor.lead(LOG)
        self.log.faults.append(Fault.AFTER)
        with self.assertRaises(Unanswered):
            successor.advance()
        settle(successor)
        self.assertEqual(len(self.engine.records), 2)
        self.assertEqual(successor.state.epoch, 2)


class InTwoHalves(WriterTest):

    level = 2

    def test_something_else_is_done_between_them(self):
        self.write(b'bytes')
        self.writer.ask()
        self.assertEqual(len(self.engine.records), 2)
        self.assertEqual(self.writer.left, 1)
        self.assertTrue(self.writer.answered())
        self.assertEqual(self.written(), b'FS30bytes')

    def test_the_second_one_is_never_reached(self):
        for fault in Fault.NONE, Fault.BEFORE, Fault.AFTER:
            self.write(b'bytes', fault)
            self.writer.ask()
            settle(self.writer)
        self.assertEqual(self.written(), b'FS30' + 3 * b'bytes')

    def test_nothing_is_left(self):
        self.writer.ask()
        self.assertTrue(self.writer.answered())
        self.assertEqual(len(self.engine.records), 1)

    def test_an_interrupt_at_each_line(self):
        """The batch is in the log, once, whatever the answers are."""
        for faults in ([], [Fault.AFTER], [Fault.DELAYED],
                       [Fault.AFTER, Fault.NONE, Fault.NONE, Fault.HOLE]):
            at, fired = 1, True
            while fired:
                with self.subTest(faults, at=at):
                    self.setUp()
                    fired = self.interrupted_at(at, faults)
                    self.log.faults.clear()
                    self.deliver_all()
                    settle(self.writer)
                    self.assertEqual(self.written(), b'FS30bytes')
                at += 1
            self.assertGreater(at, 20)

    def deliver_all(self):
        while self.engine.delayed:
            self.engine.deliver()

    def interrupted_at(self, at, faults):
        self.write(b'bytes', *faults)
        with Interrupter(at) as interrupter:
            try:
                with contextlib.suppress(Unanswered):
                    self.writer.advance()
                self.writer.advance()
            except (KeyboardInterrupt, Unanswered):
                pass
        return interrupter.fired


class Interrupter:
    """A KeyboardInterrupt before the n-th line that quorum/ executes."""

    ROOM = os.path.dirname(writer.__file__)

    def __init__(self, at):
        self._left = at

    @property
    def fired(self):
        return self._left <= 0

    def __enter__(self):
        self._before = sys.gettrace()
        sys.settrace(self._trace)
        return self

    def __exit__(self, *exc_info):
        sys.settrace(self._before)

    def _trace(self, frame, event, arg):
        if os.path.dirname(frame.f_code.co_filename) != self.ROOM:
            return None
        if event == 'line' and not self.fired:
            self._left -= 1
            if self.fired:
                raise KeyboardInterrupt
        return self._trace


class TheFence(WriterTest):

    def test_another_one_leads(self):
        successor = leader(self.log, self.writer.state, 'successor')
        self.write(b'bytes')
        self.fenced('is of writer 737563.*, in epoch 2')
        self.write(b'other', writer=successor)
        settle(successor)
        self.writer = successor
        self.assertEqual(self.written(), b'FS30other')

    def test_what_came_before_the_next_epoch_is_known(self):
        """I16: it is in the log, and the successor has it."""
        self.write(b'bytes', Fault.AFTER)
        self.unanswered()
        state = step(self.writer.state, self.engine.records[-1]).state
        leader(self.log, state, 'successor')
        self.assertTrue(self.writer.advance())
        self.write(b'more')
        self.fenced('in epoch 2')

    def test_a_writer_that_has_not_applied_all(self):
        state = self.writer.state
        self.write()
        settle(self.writer)
        late = Writer(self.log, state, identify('late'))
        late.lead(LOG)
        self.fenced('in epoch 1', late)

    def test_a_log_that_has_lost_what_it_had(self):
        head = self.engine.head
        self.write(b'first')
        settle(self.writer)
        self.engine.restore(head)
        self.write(b'second')
        self.fenced('ends at record 1, and record 2 was confirmed')

    def test_it_stays_fenced(self):
        """Also if the log has again what it had lost."""
        self.write(b'first')
        settle(self.writer)
        head, raw = self.engine.head, self.engine.records[-1]
        self.engine.restore(Place(1, place_of(self.engine.records[0]).link))
        self.write(b'second')
        self.fenced('was confirmed')
        self.engine.append(self.engine.head, head, raw)
        self.fenced('was confirmed')
        self.assertEqual(len(self.engine.records), 2)

    def test_a_later_release_has_written(self):
        self.engine.append(*self.next_place(), changed(
            following(self.writer.state, Trim(1)), KIND, 'B', 200))
        self.write(b'bytes')
        self.fenced('does not know')

    def next_place(self):
        """Of any record."""
        place = self.writer.state.place
        return place, Place(place.sequence + 1, bytes(16))


class ASuccessor(WriterTest):
    """Found by a writer that has nothing to append."""

    def setUp(self):
        self.engine = EngineWithWrong(LOG)
        self.log = LogThroughOne(self.engine)
        self.writer = leader(self.log, beginning(LOG, 0, 4))

    def test_there_is_none(self):
        self.writer.find_successor()
        self.write(b'bytes')
        settle(self.writer)
        self.writer.find_successor()
        self.assertEqual(self.written(), b'FS30bytes')

    def test_another_one_leads(self):
        leader(FakeLog(self.engine), self.writer.state, 'successor')
        with self.assertRaisesRegex(Fenced, 'in epoch 2'):
            self.writer.find_successor()
        self.fenced('in epoch 2')

    def test_only_one_member_knows_of_it(self):
        self.write(b'bytes', Fault.AFTER)
        self.unanswered()
        self.engine.lose(1, self.writer.state.place)
        wrong = LogThroughOne(self.engine)
        wrong.through = self.engine.wrong
        other = Writer(wrong, self.writer.state, identify('other'))
        other.lead(LOG)
        with self.assertRaises(Fenced):
            other.advance()
        self.writer.find_successor()
        self.engine.away = {0}
        with self.assertRaisesRegex(Unanswered, 'not enough'):
            self.writer.find_successor()
        self.engine.away = set()
        settle(self.writer)
        self.assertEqual(self.written(), b'FS30bytes')


class OneWrongMember(WriterTest):
    """M4: one member alone fences nobody, and makes nobody a leader."""

    def setUp(self):
        self.engine = EngineWithWrong(LOG)
        self.log = LogThroughOne(self.engine)
        self.writer = leader(self.log, beginning(LOG, 0, 4))
        self.places = [Place(0, LOG), self.writer.state.place]

    def loses(self, number):
        """One member has only the first records."""
        self.engine.lose(number, self.places[number])

    def write_all(self, *contents):
        for content in contents:
            self.write(content)
            settle(self.writer)
            self.places.append(self.writer.state.place)

    def test_wrong_ends_and_a_lost_answer(self):
        contents = b''
        for wrong in range(MEMBERS):
            for number in range(len(wrong_ends(self.engine.ends()))):
                self.engine.wrong = wrong
                self.engine.lie = None
                self.write(b'bytes', Fault.AFTER)
                self.unanswered()
                self.engine.lie = wrong_ends(self.engine.ends())[number]
                with self.subTest(wrong=wrong, lie=self.engine.lie):
                    self.assertTrue(self.writer.advance())
                contents += b'bytes'
        self.assertEqual(self.written(), b'FS30' + contents)

    def test_a_member_that_says_of_all_appends_that_the_head_is_another(self):
        """It has lost its last records; the others take what it refuses."""
        self.write_all(b'first', b'second')
        self.loses(2)
        self.log.through = self.engine.wrong
        self.write_all(b'third', b'fourth')
        self.assertEqual(self.written(), b'FS30firstsecondthirdfourth')

    def test_a_member_that_has_lost_its_end_makes_no_leader(self):
        """A standby that reads from it takes its end for that of the log."""
        late = self.writer.state
        self.write_all(b'acknowledged')
        self.loses(1)
        self.log.through = self.engine.wrong
        standby = Writer(self.log, late, identify('standby'))
        standby.lead(LOG)
        self.fenced('is of writer', standby)
        self.assertEqual(self.written(), b'FS30acknowledged')

    def test_who_leads_is_known_when_a_majority_answers(self):
        successor = Writer(self.log, self.writer.state, identify('successor'))
        successor.lead(LOG)
        self.engine.away = {0, 2}
        for _ in range(2):
            with self.assertRaisesRegex(Unanswered, '1 of 3 members'):
                successor.advance()
        self.engine.away = {2}
        settle(successor)
        self.assertEqual(successor.state.epoch, 2)
        self.assertEqual(len(self.engine.records), 2)

    def test_what_a_majority_has_is_confirmed(self):
        self.write_all(b'first')
        self.assertEqual(self.writer.confirm(), self.writer.state)
        for away in range(MEMBERS):
            self.engine.away = {away}
            self.assertEqual(self.writer.confirm(), self.writer.state)
        self.engine.away = {0, 1}
        with self.assertRaisesRegex(Unanswered, '1 of 3 members have shown'):
            self.writer.confirm()

    def test_what_one_member_has_taken_is_not_confirmed(self):
        """It had lost the record of the next epoch, and no others."""
        self.write_all(b'first')
        leader(LogThroughOne(self.engine), self.writer.state, 'successor')
        self.loses(2)
        self.log.through = self.engine.wrong
        self.write_all(b'second')
        with self.assertRaisesRegex(Fenced, 'most members of the log'):
            self.writer.confirm()
        self.fenced('most members')

    def test_without_the_lease_one_member_alone_is_not_believed(self):
        """Another one may have led since, and this member has lost that."""
        self.write_all(b'first')
        leader(LogThroughOne(self.engine), self.writer.state, 'successor')
        self.loses(2)
        self.log.through = self.engine.wrong
        self.writer._has_lease = lambda: False
        self.write(b'second')
        self.fenced('in epoch 2')
