"""The lease of a node: each order of events, by a clock of the test.

The thread is not started: the test takes its turns.
"""

import threading
from unittest import mock

from fsyncstorage.quorum.log.interface import Unanswered
from fsyncstorage.quorum.roles import holding as module
from fsyncstorage.quorum.roles.holding import BELIEVED
from fsyncstorage.quorum.roles.holding import Holding
from fsyncstorage.quorum.roles.holding import name_of_process

from ..support import TestCase
from ..support import Thread
from .fakelog import Engine
from .fakelog import FakeLog
from .fakelog import Fault
from .samples import LOG

LEASE = 10.0


class SlowLog(FakeLog):
    """Its clock goes on while it is asked."""

    takes = 0.0
    asked = 0

    def hold(self, holder, seconds):
        self.asked += 1
        self._engine.now += self.takes
        return super().hold(holder, seconds)


class HoldingTest(TestCase):

    def setUp(self):
        super().setUp()
        self.engine = Engine(LOG)
        self.changes = []
        self.log = SlowLog(self.engine)
        self.holding = self.of('a', self.log)
        self.holding.seek()

    def of(self, name, log):
        return Holding(log, name_of_process(name), LEASE,
                       lambda: self.changes.append(name),
                       lambda: self.engine.now)

    def turn(self, seconds=0.0):
        """The time passes, and then comes a turn of the thread."""
        self.engine.now += seconds
        self.holding._work()

    def another(self):
        """Another node wants the lease: does it get it?"""
        return FakeLog(self.engine).hold(b'other', LEASE)


class Had(HoldingTest):

    def test_nine_tenths_are_believed(self):
        self.turn()
        self.assertTrue(self.holding.is_believed)
        self.assertEqual(self.changes, ['a'])
        self.engine.now += BELIEVED * LEASE - 0.01
        self.assertTrue(self.holding.is_believed)
        self.engine.now += 0.02
        self.assertFalse(self.holding.is_believed)
        self.assertIsNone(self.holding.lost)

    def test_it_is_counted_from_before_it_was_asked_for(self):
        self.log.takes = 4.0
        self.turn()
        self.assertAlmostEqual(self.holding.seconds_left, 5.0)

    def test_over_and_got_again_in_the_same_term(self):
        """Nobody had it in between."""
        self.turn()
        term = self.holding.tenure.term
        self.engine.now += 3 * LEASE
        self.assertFalse(self.holding.is_believed)
        self.turn()
        self.assertTrue(self.holding.is_believed)
        self.assertEqual(self.holding.tenure.term, term)
        self.assertIsNone(self.holding.lost)

    def test_a_log_that_does_not_answer(self):
        """It is asked again soon; what was got is believed to its end."""
        self.turn()
        self.log.faults.extend([Fault.BEFORE] * 3)
        self.turn(2.0)
        self.assertIsNotNone(self.holding.trouble)
        self.assertTrue(self.holding.is_believed)
        self.assertAlmostEqual(self.holding.seconds_left, 7.0)
        for _ in range(2):
            self.turn(0.2)
        self.turn(0.2)
        self.assertIsNone(self.holding.trouble)
        self.assertGreater(self.holding.seconds_left, 8.0)


class Lost(HoldingTest):

    def test_another_node_has_it(self):
        """It is not asked for any more."""
        self.turn()
        self.engine.now += LEASE
        self.assertTrue(self.another())
        self.turn()
        self.assertIn('another node has', self.holding.lost)
        self.assertFalse(self.holding.is_believed)
        self.assertEqual(self.changes, ['a', 'a'])
        asked = self.log.asked
        self.turn(5 * LEASE)
        self.assertEqual(self.log.asked, asked)
        self.holding.seek()
        self.assertIsNone(self.holding.lost)
        self.turn()
        self.assertTrue(self.holding.is_believed)

    def test_one_that_has_it_first_is_waited_for(self):
        self.another()
        self.turn()
        self.assertIsNone(self.holding.tenure)
        self.assertIsNone(self.holding.lost)
        self.turn(LEASE)
        self.assertTrue(self.holding.is_believed)


class Ends(HoldingTest):
    """With its thread."""

    def test_a_log_that_hangs(self):
        """The end waits a little, and then ends the call."""
        class Hanging(FakeLog):
            def hold(log, *args):
                self.hangs.set()
                with self.engine.changed:
                    self.engine.changed.wait_for(lambda: log._stopped)
                raise Unanswered('hold')

        self.hangs = threading.Event()
        with mock.patch.object(module, 'LONGEST_FAREWELL', 0.0), \
                self.assertLogs('fsyncstorage', 'WARNING'):
            self.holding = self.of('a', Hanging(self.engine))
            self.holding.start()
            self.addCleanup(self.holding.close)
            self.holding.seek()
            self.hangs.wait()
            Thread(self.holding.close).result()
