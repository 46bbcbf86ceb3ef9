"""What an engine promises, of the log in memory; and how that fails."""

import unittest

from fsyncstorage.quorum.log.interface import Unanswered

from .fakelog import Engine
from .fakelog import FakeLog
from .fakelog import Fault
from .logcontract import START
from .logcontract import Contract
from .logcontract import WithoutALog
from .logcontract import place
from .samples import LOG


class InMemory(unittest.TestCase):

    def setUp(self):
        super().setUp()
        self.engine = Engine(None)

    def another(self):
        return FakeLog(self.engine)


class Promises(Contract, InMemory):
    pass


class NoLog(WithoutALog, InMemory):
    pass


class Faults(unittest.TestCase):
    """What it does when it is told to fail."""

    def setUp(self):
        self.engine = Engine(LOG)
        self.log = FakeLog(self.engine)

    def append(self, *records):
        for raw in records:
            before = self.engine.head
            self.log.append(before, place(before.sequence + 1), raw)

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

    def test_of_reads(self):
        self.append(b'1', b'2')
        for fault, found in (
                (Fault.HOLE, [b'2']), (Fault.REVERSED, [b'2', b'1']),
                (Fault.DOUBLED, [b'1', b'1', b'2', b'2'])):
            self.log.faults.append(fault)
            self.assertEqual(self.log.read(1), found)
