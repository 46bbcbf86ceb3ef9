"""Ballots in any order of events: votes, finishes, aborts, lost connections,
timeouts, threads that take their time, other threads of the process, restarts.
Goes with `server/ballot.py` and `server/committer.py`.

Each transaction increments numbers; conflicts are resolved for every second
one.  So a lost update, and one that was committed twice or not at all, shows
in the sum.
"""

import contextlib
import shutil
import tempfile
import unittest

from hypothesis import strategies
from hypothesis.stateful import RuleBasedStateMachine
from hypothesis.stateful import invariant
from hypothesis.stateful import precondition
from hypothesis.stateful import rule
from hypothesis.stateful import run_state_machine_as_test
from ZODB.POSException import ConflictError
from ZODB.POSException import POSKeyError
from ZODB.utils import z64

from fsyncstorage import FsyncStorage
from fsyncstorage.errors import Occupied
from fsyncstorage.errors import Unpublished
from fsyncstorage.server.ballot import BEGUN
from fsyncstorage.server.ballot import OVER
from fsyncstorage.server.ballot import VOTED
from fsyncstorage.storage.told import ForAClient

from ..generated import settings
from ..support import begin
from ..support import oid
from ..support import owners
from .byhand import World
from .serving import counter
from .serving import record
from .serving import state_of

NUMBERS = range(4)
_any = strategies.integers(0, 1 << 16)
_some = strategies.sets(strategies.sampled_from(NUMBERS), min_size=1)


class Machine(RuleBasedStateMachine):

    def __init__(self):
        super().__init__()
        self.directory = tempfile.mkdtemp(prefix='fsyncstorage-')
        #: number -> how often it was incremented, by what was finished.
        self.finished = dict.fromkeys(NUMBERS, 0)
        self.open()

    def open(self):
        self.storage = FsyncStorage(
            f'{self.directory}/Data.fs', durability='none')
        self.world = World(self.storage, timeout=1)
        self.ballots = {}   # those that are not over -> their numbers
        self.direct = None  # a transaction of another thread, its numbers

    def teardown(self):
        self.end_all()
        self.check()
        self.close()
        shutil.rmtree(self.directory)

    def end_all(self):
        """Whatever waits gets its turn, and nothing is left."""
        if self.direct is not None:
            self.direct_ends(True)
        for _ in range(len(self.ballots) + 1):
            self.world.settle()
            self.world.publish()
            self.world.settle()
            for ballot in self.in_state(VOTED):
                self.finish(0)
            for ballot in self.in_state(BEGUN):
                self.world.committer.abort(ballot)
        self.world.publish()
        self.world.settle()
        self.the_same_is_said_of_each()
        assert not self.ballots, [each.state for each in self.ballots]
        assert self.world.committer.waiting == 0
        assert self.world.committer._room._taken == 0
        assert owners(self.storage._turns) == 0
        assert not self.storage._begun

    def check(self):
        for number in NUMBERS:
            value, _ = self.read(number)
            assert value == self.finished[number], number

    def close(self):
        self.storage.own_publishing(None)
        self.world.committer.close()
        self.storage.close()

    def read(self, number):
        with contextlib.suppress(POSKeyError):
            data, serial = self.storage.load(oid(number))
            state = state_of(data)
            return state if number % 2 else state['data']['value'], serial
        return 0, z64

    def increments(self, numbers):
        """What to store, and the serials of what it replaces."""
        found = {number: self.read(number) for number in numbers}
        return ({number: (counter if number % 2 else record)(value + 1)
                 for number, (value, _) in found.items()},
                {number: serial for number, (_, serial) in found.items()})

    def in_state(self, *states):
        return [ballot for ballot in self.ballots if ballot.state in states]

    def one_of(self, which, *states):
        """One of the ballots in these states, if there are any."""
        found = self.in_state(*states)
        return found[which % len(found)] if found else None

    # What clients do

    @rule(numbers=_some, small=strategies.booleans())
    def begin(self, numbers, small):
        ballot = self.world.begin(
            'client', *self.increments(numbers), small=small)
        self.ballots[ballot] = numbers

    @rule(which=_any)
    def vote(self, which):
        ballot = self.one_of(which, BEGUN)
        if ballot:
            self.world.ask_vote(ballot)

    @rule(which=_any)
    def finish(self, which):
        ballot = self.one_of(which, VOTED)
        if ballot:
            self.world.finish(ballot)
            for number in self.ballots[ballot]:
                self.finished[number] += 1

    @rule(which=_any)
    def abort(self, which):
        """Or the end of its connection."""
        if self.ballots:
            self.world.committer.abort(
                list(self.ballots)[which % len(self.ballots)])

    @rule(which=_any)
    def timeout(self, which):
        if self.world.timers:
            self.world.timers[which % len(self.world.timers)].ring()

    # What the loop, its threads, and other threads do

    @precondition(lambda self: self.world.letters)
    @rule()
    def deliver(self):
        self.world.deliver_one()

    @precondition(lambda self: self.world.voters.jobs)
    @rule(which=_any)
    def voter(self, which):
        jobs = self.world.voters.jobs
        jobs.rotate(-(which % len(jobs)))  # threads take their time
        self.world.voters.do_one()

    @precondition(lambda self: self.world.appender.jobs)
    @rule()
    def appender(self):
        self.world.appender.do_one()

    @rule()
    def publish(self):
        self.world.publish()

    @precondition(lambda self: self.direct is None)
    @rule(numbers=_some)
    def direct_begins(self, numbers):
        metadata = begin(self.storage)
        try:
            records, serials = self.increments(numbers)
            for number in numbers:
                self.storage.store(oid(number), serials[number],
                                   records[number], '', metadata)
            # (This thread publishes.)
            self.storage.tpc_vote(metadata, False, ForAClient())
        except (ConflictError, Occupied, Unpublished):
            self.storage.tpc_abort(metadata)
        else:
            self.direct = metadata, numbers

    @precondition(lambda self: self.direct is not None)
    @rule(finishes=strategies.booleans())
    def direct_ends(self, finishes):
        (metadata, numbers), self.direct = self.direct, None
        if not finishes:
            self.storage.tpc_abort(metadata)
            return
        self.world.finish_direct(metadata)
        for number in numbers:
            self.finished[number] += 1

    @precondition(lambda self: self.direct is None)
    @rule()
    def restart(self):
        self.world.letters.clear()
        self.world.committer.close()
        for ballot in self.ballots:
            self.world.committer.abort(ballot)
        self.close()
        self.open()

    # What always holds

    @invariant()
    def no_object_has_two_holders(self):
        held = [number for ballot in self.in_state(VOTED)
                for number in self.ballots[ballot]]
        if self.direct is not None:
            held += self.direct[1]
        assert len(held) == len(set(held)), held

    @invariant()
    def the_same_is_said_of_each(self):
        """What a ballot was told last is its state."""
        for ballot in list(self.ballots):
            if ballot.state in (VOTED, OVER):
                assert ballot.done is None
            if ballot.state is OVER:
                del self.ballots[ballot]


class Machines(unittest.TestCase):

    level = 2
    examples = 15

    def test_any_order(self):
        run_state_machine_as_test(Machine, settings=settings(
            max_examples=self.examples, stateful_step_count=60))


class LongMachines(Machines):

    level = 3
    examples = 3000


def test_suite():
    return unittest.TestSuite(
        map(unittest.defaultTestLoader.loadTestsFromTestCase,
            (Machines, LongMachines)))
