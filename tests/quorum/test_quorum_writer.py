"""The writer: what became of each record is known before anything else is
offered, whatever becomes of the answers."""

import unittest

from fsyncstorage.quorum.batch import Batch
from fsyncstorage.quorum.fold import Apply
from fsyncstorage.quorum.fold import beginning
from fsyncstorage.quorum.fold import step
from fsyncstorage.quorum.log import Unanswered
from fsyncstorage.quorum.record import MOST
from fsyncstorage.quorum.record import Place
from fsyncstorage.quorum.record import Trim
from fsyncstorage.quorum.record import place_of
from fsyncstorage.quorum.writer import Fenced
from fsyncstorage.quorum.writer import Writer

from .fakelog import MEMBERS
from .fakelog import Engine
from .fakelog import FakeLog
from .fakelog import Fault
from .samples import KIND
from .samples import LOG
from .samples import OTHER
from .samples import changed
from .samples import following
from .samples import identify
from .samples import leader
from .samples import settle


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

    def test_one_thing_at_a_time(self):
        self.write(b'bytes', Fault.BEFORE)
        self.unanswered()
        with self.assertRaises(AssertionError):
            self.write(b'other')
        settle(self.writer)
        self.assertEqual(self.written(), b'FS30bytes')

    def test_not_before_it_leads(self):
        follower = Writer(self.log, self.writer.state, identify('follower'))
        self.write(writer=follower)
        with self.assertRaisesRegex(AssertionError, 'no node would apply'):
            follower.advance()
        self.assertEqual(len(self.engine.records), 1)

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

    def test_it_arrives_when_it_was_repeated(self):
        self.write(b'bytes', Fault.DELAYED)
        self.unanswered()
        settle(self.writer)
        self.write(b'other')
        settle(self.writer)
        self.engine.deliver()
        self.assertEqual(self.written(), b'FS30bytesother')

    def test_each_question_behind_it_is_not_answered(self):
        """The append has moved the head; the ends, then the record are asked
        for."""
        self.write(
            b'bytes', Fault.AFTER, Fault.AFTER, Fault.NONE, Fault.BEFORE,
            Fault.NONE, Fault.NONE, Fault.BEFORE)
        self.unanswered(4)
        settle(self.writer)
        self.assertEqual(self.written(), b'FS30bytes')

    def test_its_own_record_is_damaged(self):
        """On all members but one."""
        for sound in range(MEMBERS):
            with self.subTest(sound=sound):
                self.write(b'bytes', Fault.AFTER)
                self.unanswered()
                for member in {*range(MEMBERS)} - {sound}:
                    self.engine.damage(
                        member, len(self.engine.records), 3000)
                for _ in range(MEMBERS):
                    try:
                        if self.writer.advance():
                            break
                    except Unanswered:
                        pass
                self.assertFalse(self.writer.left)

    def test_a_read_that_shows_others(self):
        for fault in Fault.HOLE, Fault.DOUBLED, Fault.REVERSED:
            with self.subTest(fault):
                self.write(
                    b'bytes', Fault.AFTER, Fault.NONE, Fault.NONE, fault)
                self.unanswered()
                if fault is Fault.HOLE:
                    self.unanswered()
                settle(self.writer)
        self.assertEqual(self.written(), b'FS30' + 3 * b'bytes')

    def test_the_epoch(self):
        successor = Writer(self.log, self.writer.state, identify('successor'))
        successor.lead(LOG)
        self.log.faults.append(Fault.AFTER)
        with self.assertRaises(Unanswered):
            successor.advance()
        settle(successor)
        self.assertEqual(len(self.engine.records), 2)
        self.assertEqual(successor.state.epoch, 2)


class TheFence(WriterTest):

    def test_another_one_leads(self):
        successor = leader(self.log, self.writer.state, 'successor')
        self.write(b'bytes')
        self.fenced('is of writer 737563.*, in epoch 2')
        self.write(b'other', writer=successor)
        settle(successor)
        self.writer = successor
        self.assertEqual(self.written(), b'FS30other')

    def test_between_two_tries(self):
        """What is on its way comes too late."""
        self.write(b'bytes', Fault.DELAYED)
        self.unanswered()
        leader(self.log, self.writer.state, 'successor')
        self.engine.deliver()
        self.fenced('in epoch 2')
        self.assertEqual(len(self.engine.records), 2)

    def test_what_came_before_the_next_epoch_is_known(self):
        """I16: it is in the log, and the successor has it."""
        self.write(b'bytes', Fault.AFTER)
        self.unanswered()
        state = step(self.writer.state, self.engine.records[-1]).state
        leader(self.log, state, 'successor')
        self.assertTrue(self.writer.advance())
        self.write(b'more')
        self.fenced('in epoch 2')

    def test_in_the_middle_of_a_batch(self):
        self.write(bytes(2 * MOST))
        self.writer.advance()
        successor = leader(self.log, self.writer.state, 'successor')
        self.fenced('in epoch 2')
        self.assertEqual(successor.state.end, 4)

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

    def test_and_went_on_since(self):
        state = self.writer.state
        self.write(b'first')
        settle(self.writer)
        self.engine.restore(state.place)
        leader(self.log, state, 'successor')
        self.write(b'second')
        self.fenced('another one than was confirmed')

    def test_another_log_in_its_place(self):
        other = Engine(OTHER)
        leader(FakeLog(other), beginning(OTHER, 0, 4))
        self.writer._log = FakeLog(other)
        self.write()
        self.fenced('not 746865')

    def test_its_record_was_trimmed(self):
        self.write(b'bytes', Fault.AFTER)
        self.unanswered()
        self.engine.trim(3)
        self.fenced('begins with record 3')

    def test_a_later_release_has_written(self):
        self.engine.append(*self.next_place(), changed(
            following(self.writer.state, Trim(1)), KIND, 'B', 200))
        self.write(b'bytes')
        self.fenced('does not know')

    def next_place(self):
        """Of any record."""
        place = self.writer.state.place
        return place, Place(place.sequence + 1, bytes(16))
