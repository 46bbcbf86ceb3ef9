"""Staged blobs are removed when no record names them, and none that one
names."""

import logging
from unittest import mock

from fsyncstorage.quorum.history.record import NOBODY
from fsyncstorage.quorum.history.record import Blob
from fsyncstorage.quorum.history.record import Data
from fsyncstorage.quorum.history.record import Trim
from fsyncstorage.quorum.history.staged import new_id
from fsyncstorage.quorum.leading import named
from fsyncstorage.quorum.leading import tidying as module
from fsyncstorage.quorum.leading.tidying import Tidying
from fsyncstorage.quorum.log.interface import Unanswered

from ..support import TestCase
from ..support import until
from .fakelog import MEMBERS
from .fakelog import Engine
from .fakelog import FakeLog
from .fakelog import Fault
from .logged import BEGINNING
from .nodes import led
from .nodes import state_behind
from .samples import LOG
from .samples import settle


class NamedTest(TestCase):

    def setUp(self):
        super().setUp()
        self.engine = Engine(LOG)
        self.log = FakeLog(self.engine)
        self.writer = led(FakeLog(self.engine), BEGINNING, 'first')

    def stage(self):
        """By the writer that leads."""
        id = new_id(self.writer.state.epoch)
        self.log.stage(id, 0, b'chunk')
        self.log.stage(id, 1, b'chunk')
        return id

    def name(self, *ids):
        """In a record of its own."""
        self.writer._begin([lambda: Data(
            self.writer.state.end, self.writer.state.end + 1, (), tuple(
                Blob(id, bytes(8), bytes(8), 0, bytes(32), False)
                for id in ids), b'x')])
        settle(self.writer)
        return self.writer.state.place.sequence

    def another_leads(self):
        self.writer = led(
            FakeLog(self.engine), state_behind(self.engine), 'other')

    def unnamed(self):
        state = self.writer.state
        return named.unnamed(self.log, state.epoch, state.place)


class OfEarlierWriters(NamedTest):

    def test_what_no_record_names(self):
        ids = [self.stage() for _ in range(4)]
        self.name(ids[0], ids[2])
        self.another_leads()
        self.assertEqual(self.unnamed(), {ids[1], ids[3]})

    def test_of_several_epochs(self):
        first = self.stage(), self.stage()
        self.name(first[0])
        self.another_leads()
        second = self.stage(), self.stage()
        self.name(second[0])
        for _ in range(9):
            self.name()
        self.another_leads()
        self.assertEqual(self.unnamed(), {first[1], second[1]})

    def test_what_is_named_half_way(self):
        """In a batch that is given up: it goes with its record."""
        id = self.stage()
        end = self.writer.state.end
        self.writer._begin([
            lambda: Data(end, end + 2, (), (Blob(
                id, bytes(8), bytes(8), 0, bytes(32), False),), b'x'),
            lambda: Data(end, end + 2, (), (), b'x')])
        self.writer.advance()
        self.another_leads()
        self.assertEqual(self.unnamed(), set())

    def test_its_own_and_those_of_later_ones_stay(self):
        before = self.writer.state
        self.another_leads()
        own, mine = self.writer.state, self.stage()
        self.assertEqual(
            named.unnamed(self.log, own.epoch, own.place), set())
        self.another_leads()
        self.stage()
        self.assertEqual(
            named.unnamed(self.log, own.epoch, own.place), set())
        self.assertEqual(
            named.unnamed(self.log, before.epoch, before.place), set())
        self.assertEqual(self.unnamed(), {mine})

    def test_whatever_faults_reads_have(self):
        ids = [self.stage() for _ in range(6)]
        for id in ids[1:]:
            self.name(id)
        self.another_leads()
        for fault in Fault.HOLE, Fault.DOUBLED, Fault.REVERSED, Fault.BEFORE:
            with self.subTest(fault):
                self.log.faults.extend([Fault.NONE] * 2 + [fault] * 2)
                self.assertEqual(self.unnamed(), {ids[0]})
                self.log.faults.clear()

    def test_a_member_whose_copy_is_damaged(self):
        id = self.stage()
        number = self.name(id)
        self.another_leads()
        for member in range(MEMBERS):
            self.assertEqual(self.unnamed(), set())
            self.engine.damage(member, number, 999)
        with self.assertRaisesRegex(Unanswered, 'shown by no member'):
            self.unnamed()

    def test_a_member_that_has_another_log(self):
        """It shows sound records, and the names are not there."""
        id = self.stage()
        head = self.engine.head
        number = self.name(id)
        self.another_leads()
        state = self.writer.state
        other = Engine(LOG)
        other.records = self.engine.records[:head.sequence]
        other.head = head
        writer = led(FakeLog(other), state_behind(other), 'wrong')
        writer.say(Trim(1))
        settle(writer)
        self.engine.damaged[0, number] = other.records[number - 1]
        with self.assertRaisesRegex(Unanswered, 'shown by no member'):
            named.unnamed(self.log, state.epoch, state.place)
        for sequence in range(number, len(other.records) + 1):
            for member in range(MEMBERS):
                self.engine.damaged[member, sequence] = (
                    other.records[sequence - 1])
        with self.assertRaisesRegex(Unanswered, 'another one than it was'):
            named.unnamed(self.log, state.epoch, state.place)

    def test_a_log_that_was_trimmed(self):
        """All nodes have what it had."""
        ids = [self.stage() for _ in range(2)]
        first = self.name(ids[0])
        self.name(ids[1])
        self.another_leads()
        self.engine.trim(first + 1)
        self.assertEqual(self.unnamed(), {ids[0]})
        self.engine.trim(self.writer.state.place.sequence + 1)
        self.assertEqual(self.unnamed(), set(ids))

    def test_nothing_is_read_where_there_is_nothing(self):
        self.stage()
        with mock.patch.object(
                FakeLog, 'read', side_effect=AssertionError('it is read')):
            self.assertEqual(self.unnamed(), set())


class Trimmed(NamedTest):

    def test_what_records_name_that_go(self):
        ids = [self.stage() for _ in range(4)]
        for id in ids[:3]:
            number = self.name(id)
        self.another_leads()
        for _ in range(2):
            named.remove_named(self.log, number)
            self.assertEqual(self.log.all_staged(), {ids[2], ids[3]})
        self.engine.trim(number)
        named.remove_named(self.log, number + 1)
        self.assertEqual(self.log.all_staged(), {ids[3]})

    def test_no_answer(self):
        ids = [self.stage() for _ in range(3)]
        for id in ids:
            number = self.name(id)
        with mock.patch.object(named, 'AT_ONCE', 1):
            self.log.faults.extend([Fault.NONE] * 4 + [Fault.BEFORE])
            with self.assertRaises(Unanswered):
                named.remove_named(self.log, number)
            named.remove_named(self.log, number)
        self.assertEqual(self.log.all_staged(), {ids[2]})


class InAThread(NamedTest):

    def setUp(self):
        super().setUp()
        for name in 'FIRST_PAUSE', 'LONGEST_PAUSE':
            patch = mock.patch.object(module, name, 0.01)
            patch.start()
            self.addCleanup(patch.stop)
        logger = logging.getLogger('fsyncstorage.quorum.leading.tidying')
        self.addCleanup(logger.setLevel, logger.level)

    def tidying(self, *faults):
        self.log.faults.extend(faults)
        tidying = Tidying(self.log, 'Data.fs', self.writer.state)
        self.addCleanup(tidying.close)
        tidying.start()
        return tidying

    def test_what_earlier_ones_have_left(self):
        left, used = self.stage(), self.stage()
        self.name(used)
        self.another_leads()
        own = self.stage()
        with self.assertLogs('fsyncstorage', 'INFO') as logs:
            self.tidying(*[Fault.BEFORE, Fault.AFTER] * 3)
            until(lambda: self.engine.all_staged() == {used, own}, 'removed')
            until(lambda: logs.output, 'said')
        self.assertIn('1 blobs', logs.output[0])
        self.assertNotIn(left, self.engine.all_staged())

    def test_what_was_dropped(self):
        ids = [self.stage() for _ in range(5)]
        tidying = self.tidying()
        until(lambda: tidying._is_swept, 'swept')
        self.log.faults.extend([Fault.BEFORE, Fault.AFTER])
        with mock.patch.object(module, 'AT_ONCE', 2):
            tidying.drop(ids[:3])
            until(lambda: self.engine.all_staged() == set(ids[3:]), 'gone')
        until(lambda: not tidying._dropped, 'noted')

    def test_the_close_while_nothing_is_answered(self):
        """I10."""
        self.stage()
        self.another_leads()
        self.log.stop()
        tidying = self.tidying()
        tidying.drop([NOBODY])
        tidying.close()
