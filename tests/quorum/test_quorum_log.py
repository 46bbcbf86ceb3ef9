"""What an engine promises, of the log in memory; an engine that is built has
the same tests."""

import threading
import unittest

from fsyncstorage.quorum.log import Moved
from fsyncstorage.quorum.log import Trimmed
from fsyncstorage.quorum.log import Unanswered
from fsyncstorage.quorum.record import Ends
from fsyncstorage.quorum.record import Place

from .fakelog import MEMBERS
from .fakelog import Engine
from .fakelog import FakeLog
from .fakelog import Fault
from .samples import LOG

A, B = b'a node', b'another node'
START = Place(0, LOG)


def place(sequence, letter=b'x'):
    return Place(sequence, letter * 16)


class LogTest(unittest.TestCase):

    def setUp(self):
        self.engine = Engine(LOG)
        self.log = FakeLog(self.engine)

    def append(self, *records):
        for raw in records:
            before = self.log.ends().head
            self.log.append(before, place(before.sequence + 1), raw)


class Promises(LogTest):

    def test_an_empty_log(self):
        self.assertEqual(self.log.ends(), Ends(LOG, 1, START))
        self.assertEqual(list(self.log.read(1)), [])

    def test_records_are_read_in_their_order(self):
        self.append(b'1', b'2', b'3')
        self.assertEqual(self.log.ends(), Ends(LOG, 1, place(3)))
        for first in range(1, 5):
            for member in range(MEMBERS):
                self.assertEqual(
                    list(self.log.read(first, member)),
                    [b'1', b'2', b'3'][first - 1:])

    def test_an_append_needs_the_head(self):
        self.append(b'1')
        for before in START, place(1, b'y'), place(2):
            with self.assertRaises(Moved):
                self.log.append(before, place(before.sequence + 1), b'other')
        self.assertEqual(list(self.log.read(1)), [b'1'])

    def test_a_trim(self):
        self.append(b'1', b'2', b'3')
        self.log.trim(3)
        self.log.trim(2)
        self.assertEqual(self.log.ends(), Ends(LOG, 3, place(3)))
        with self.assertRaises(Trimmed):
            self.log.read(2)
        self.assertEqual(list(self.log.read(3)), [b'3'])

    def test_one_has_the_lease(self):
        self.assertIsNone(self.log.holder())
        self.assertTrue(self.log.hold(A, 2))
        self.assertTrue(self.log.hold(A, 2))
        self.assertFalse(self.log.hold(B, 2))
        self.assertEqual(self.log.holder(), A)

    def test_a_lease_is_given_back(self):
        self.log.hold(A, 2)
        self.log.let_go(B)
        self.assertEqual(self.log.holder(), A)
        self.log.let_go(A)
        self.assertTrue(self.log.hold(B, 2))

    def test_a_notice_comes(self):
        waiting = threading.Thread(target=self.log.wait, args=(1, 30))
        waiting.start()
        self.append(b'1')
        waiting.join(30)
        self.assertFalse(waiting.is_alive())

    def test_what_is_there_is_not_waited_for(self):
        self.append(b'1')
        self.log.wait(1, 3600)


class Faults(LogTest):
    """Of the log in memory: what it does when it is told to fail."""

    def unanswered(self, fault, call, *args):
        self.log.faults.append(fault)
        with self.assertRaises(Unanswered):
            call(*args)

    def test_before_and_after_it_took_effect(self):
        for fault, found in (Fault.BEFORE, []), (Fault.AFTER, [b'1']):
            self.unanswered(fault, self.log.append, START, place(1), b'1')
            self.assertEqual(self.log.read(1), found)

    def test_later(self):
        self.unanswered(
            Fault.DELAYED, self.log.append, START, place(1), b'1')
        self.assertEqual(self.log.read(1), [])
        self.engine.deliver()
        self.assertEqual(self.log.read(1), [b'1'])

    def test_too_late(self):
        self.unanswered(
            Fault.DELAYED, self.log.append, START, place(1), b'late')
        self.append(b'1')
        self.engine.deliver()
        self.assertEqual(self.log.read(1), [b'1'])

    def test_a_failure_that_is_not_answered(self):
        self.append(b'1')
        self.unanswered(
            Fault.AFTER, self.log.append, START, place(1), b'other')

    def test_of_every_call(self):
        for name, *args in (
                ('ends',), ('read', 1), ('wait', 1, 0), ('trim', 1),
                ('hold', A, 1), ('holder',), ('let_go', A)):
            for fault in Fault.BEFORE, Fault.AFTER, Fault.DELAYED:
                with self.subTest(name, fault=fault):
                    self.unanswered(fault, getattr(self.log, name), *args)

    def test_of_reads(self):
        self.append(b'1', b'2')
        for fault, found in (
                (Fault.HOLE, [b'2']), (Fault.REVERSED, [b'2', b'1']),
                (Fault.DOUBLED, [b'1', b'1', b'2', b'2'])):
            self.log.faults.append(fault)
            self.assertEqual(self.log.read(1), found)

    def test_damage_of_one_member(self):
        self.append(b'1')
        self.engine.damage(1, 1, 1)
        self.assertEqual(
            [self.log.read(1, member) for member in range(MEMBERS)],
            [[b'1'], [b'3'], [b'1']])

    def test_a_lost_end(self):
        self.append(b'1', b'2')
        self.engine.restore(place(1))
        self.assertEqual(self.log.ends().head, place(1))
        self.assertEqual(self.log.read(1), [b'1'])

    def test_a_lease_is_over(self):
        self.log.hold(A, 2)
        self.engine.now += 2
        self.assertIsNone(self.log.holder())
        self.assertTrue(self.log.hold(B, 2))
        self.assertFalse(self.log.hold(A, 2))

    def test_a_lost_notice(self):
        self.engine.silent = True
        waiting = threading.Thread(target=self.log.wait, args=(1, 0.01))
        waiting.start()
        self.append(b'1')
        waiting.join(30)
        self.assertFalse(waiting.is_alive())
