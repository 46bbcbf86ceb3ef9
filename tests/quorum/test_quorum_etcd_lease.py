"""The lease: nobody else has it while its holder may believe in it, whatever
is late or lost; and who gets it again learns whether another had it.

And how long a node believes in it, by a clock of the test.  The thread is not
started: the test takes its turns.
"""

import time
import unittest
from unittest import mock

from hypothesis import strategies
from hypothesis.stateful import RuleBasedStateMachine
from hypothesis.stateful import invariant
from hypothesis.stateful import rule

from fsyncstorage.quorum.etcd.keys import Keys
from fsyncstorage.quorum.etcd.lease import FREE
from fsyncstorage.quorum.etcd.lease import Lease
from fsyncstorage.quorum.history.record import Damaged
from fsyncstorage.quorum.log.interface import Unanswered
from fsyncstorage.quorum.log.interface import clock
from fsyncstorage.quorum.roles.holding import BELIEVED
from fsyncstorage.quorum.roles.holding import Holding

from ..generated import settings
from ..often import often
from ..support import TestCase
from .fakelog import Engine
from .fakelog import FakeLog
from .fakelog import Fault
from .gateway import GatewaysCase
from .logcontract import A
from .logcontract import B
from .samples import LOG

SECONDS = 10
KEYS = Keys('test')
ENGINE = 'fsyncstorage.quorum.etcd.engine'


class Clock:

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


class OnEtcd(GatewaysCase):

    def setUp(self):
        super().setUp()
        self.clock = Clock()
        self.one, self.other = (self.another(self.clock) for _ in range(2))
        self.one.create(LOG)

    def test_it_is_over_when_it_was_seen_for_so_long(self):
        term = self.one.hold(A, SECONDS)
        self.assertEqual(self.other.hold(B, SECONDS), 0)
        self.clock.now += SECONDS - 0.1
        self.assertEqual(self.other.hold(B, SECONDS), 0)
        self.clock.now += 0.1
        self.assertEqual(self.other.hold(B, SECONDS), term + 1)
        self.assertEqual(self.one.hold(A, SECONDS), 0)

    def test_what_was_put_is_ours_though_its_answer_was_lost(self):
        with mock.patch.object(
                self.one, '_swapped', side_effect=Damaged('lost')):
            with self.assertRaises(Unanswered):
                self.one.hold(A, SECONDS)
        self.assertEqual(self.one.hold(A, SECONDS), 1)

    def test_a_member_that_has_lost_the_lease_of_another_one(self):
        """It takes a renewal that all others refuse, and says so: its holder
        learns that another one has had it, and does not go on."""
        self.one.hold(A, SECONDS)
        lost = self.store.values[KEYS.lease]
        self.other.hold(B, SECONDS)
        self.clock.now += SECONDS
        self.assertTrue(self.other.hold(B, SECONDS))
        for wrong in self.gateways.members:
            with self.subTest(wrong.number), self.with_data(
                    wrong, lambda own: own.update({KEYS.lease: lost})):
                self.one.cluster.prefer(self.one.cluster.members[wrong.number])
                with self.assertLogs(ENGINE, 'WARNING') as said:
                    self.assertEqual(self.one.hold(A, SECONDS), 0)
                self.assertIn(wrong.address, said.output[0])
                self.assertEqual(self.one.holder(), B)


class Values(unittest.TestCase):

    def test_the_clock_goes_on_while_the_machine_sleeps(self):
        with mock.patch('time.clock_gettime') as gettime:
            clock()
        gettime.assert_called_once_with(time.CLOCK_BOOTTIME)


class Leases(RuleBasedStateMachine):
    """Two nodes, each with a clock of its own, and questions that take effect
    late or never, with answers that are lost."""

    def __init__(self):
        super().__init__()
        self.now = 0.0
        self.value = FREE
        self.leases = [Lease(lambda: self.now) for _ in range(2)]
        #: Until when each may believe in it, and in which term.
        self.believed = [(0.0, 0), (0.0, 0)]
        #: Who had each term.
        self.had = {}
        self.late = []

    @rule(which=strategies.integers(0, 1), seconds=strategies.integers(1, 3),
          lost=strategies.booleans(), late=strategies.booleans(),
          takes=strategies.integers(0, 2))
    def hold(self, which, seconds, lost, late, takes):
        lease, begin = self.leases[which], self.now
        if lease.seen is None:
            lease.see(self.value)
        wanted = lease.wanted(b'%d' % which, seconds)
        if wanted is None:
            lease.see(self.value)
            return
        before = lease.seen.value
        if late:
            self.late.append((before, wanted))
            return
        self.swap(before, wanted)
        self.now += takes
        if not lost:
            lease.see(self.value)
            if self.value == wanted:
                self.believed[which] = begin + seconds, wanted.term

    def swap(self, before, wanted):
        if self.value == before:
            self.value = wanted
            self.had.setdefault(wanted.term, set()).add(wanted.holder)

    @rule(which=strategies.integers(0, 1))
    def let_go(self, which):
        lease = self.leases[which]
        lease.see(self.value)
        free = lease.given_back(b'%d' % which)
        if free is not None:
            self.believed[which] = 0.0, 0
            self.swap(lease.seen.value, free)

    @rule(number=strategies.integers(0, 5))
    def arrives(self, number):
        if self.late:
            self.swap(*self.late.pop(number % len(self.late)))

    @rule(seconds=strategies.integers(1, 4))
    def time_passes(self, seconds):
        self.now += seconds

    @rule(which=strategies.integers(0, 1))
    def starts_again(self, which):
        self.leases[which] = Lease(lambda: self.now)
        self.believed[which] = 0.0, 0

    @invariant()
    def at_most_one_believes_in_it(self):
        assert sum(self.now < end for end, _ in self.believed) <= 1

    @invariant()
    def each_term_is_of_one_holder(self):
        for holders in self.had.values():
            assert len(holders - {b''}) <= 1


Leases.TestCase.settings = settings(
    max_examples=often(100, 1000, at_check=20), stateful_step_count=30)
AnyOrder = Leases.TestCase


LEASE = 10.0


class SlowLog(FakeLog):
    """Its clock goes on while it is asked."""

    takes = 0.0

    def hold(self, *args):
        self._engine.now += self.takes
        return super().hold(*args)


class Believed(TestCase):

    def setUp(self):
        super().setUp()
        self.engine = Engine(LOG)
        self.log = SlowLog(self.engine)
        self.works, self.asked_since = True, []
        self.holding = Holding(
            self.log, b'a', LEASE, works_since=self.works_since,
            clock=lambda: self.engine.now)
        self.holding.seek()

    def works_since(self, moment):
        """Of the disk."""
        self.asked_since.append(moment)
        return self.works

    def turn(self, seconds=0.0):
        """The time passes, and then comes a turn of the thread."""
        self.engine.now += seconds
        self.holding._work()

    def test_nine_tenths(self):
        self.turn()
        self.engine.now += BELIEVED * LEASE - 0.01
        self.assertTrue(self.holding.is_believed)
        self.engine.now += 0.02
        self.assertFalse(self.holding.is_believed)
        self.assertIsNone(self.holding.lost)

    def test_it_is_counted_from_before_it_was_asked_for(self):
        self.log.takes = 4.0
        self.turn()
        self.assertAlmostEqual(self.holding.seconds_left, 5.0)

    def test_a_log_that_does_not_answer(self):
        """It is asked again soon; what was got is believed to its end."""
        self.turn()
        self.log.faults.extend([Fault.BEFORE] * 3)
        self.turn(2.0)
        self.assertIsNotNone(self.holding.trouble)
        self.assertTrue(self.holding.is_believed)
        self.assertAlmostEqual(self.holding.seconds_left, 7.0)
        for _ in range(3):
            self.turn(0.2)
        self.assertIsNone(self.holding.trouble)
        self.assertGreater(self.holding.seconds_left, 8.0)

    def test_a_free_lease_is_not_taken_before_the_disk_works(self):
        """Since it was seen that the lease is free: each time anew."""
        self.works = False
        for _ in range(3):
            self.turn(1.0)
        self.assertIsNone(self.holding.tenure)
        self.assertEqual(len(set(self.asked_since)), 1)
        FakeLog(self.engine).hold(b'other', LEASE)
        self.turn(1.0)
        self.works = True
        self.turn(LEASE)
        self.assertEqual(len(set(self.asked_since)), 2)
        self.assertTrue(self.holding.is_believed)
