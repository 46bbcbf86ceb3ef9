"""The order in which messages leave a connection.

Any interleaving of what the loop may do is held against a model that knows no
line and no counters, only the two rules of the contract.
"""

from unittest import mock

from hypothesis import strategies
from hypothesis.stateful import RuleBasedStateMachine
from hypothesis.stateful import invariant
from hypothesis.stateful import precondition
from hypothesis.stateful import rule

from fsyncstorage.server.outbox import Outbox

from ..generated import settings
from ..often import often


class Interleavings(RuleBasedStateMachine):
    """Messages are numbers, in the order in which they were begun.

    `born` has each one's kind; `ready` those whose answer is known.
    """

    def __init__(self):
        super().__init__()
        self.left = []
        self.later = []
        self.outbox = Outbox(self.write, self.later.append, mock.Mock())
        self.born = []
        self.ready = set()
        self.places = {}

    def write(self, message):
        # As a connection does: what shall leave with something else leaves
        # before it.
        self.left += self.later + [message]
        self.later.clear()

    def bear(self, kind, ready):
        number = len(self.born)
        self.born.append(kind)
        if ready:
            self.ready.add(number)
        return number

    @rule()
    def send(self):
        self.outbox.send(self.bear('other', True))

    @rule(at_once=strategies.booleans())
    def announce(self, at_once):
        self.outbox.announce(self.bear('invalidation', True), at_once)

    @rule()
    def flush(self):
        self.left += self.later
        self.later.clear()

    @rule()
    def begin_load(self):
        number = self.bear('load', False)
        self.places[number] = self.outbox.begin_load(), \
            self.outbox.finish_load

    @rule()
    def reserve(self):
        number = self.bear('in place', False)
        self.places[number] = self.outbox.reserve(), self.outbox.fill

    @precondition(lambda self: self.places)
    @rule(data=strategies.data())
    def answer(self, data):
        number = data.draw(strategies.sampled_from(sorted(self.places)))
        place, give = self.places.pop(number)
        self.ready.add(number)
        give(place, number)

    # The contract

    @invariant()
    def each_leaves_once(self):
        self.assert_(len(set(self.left)) == len(self.left))
        self.assert_(set(self.left) <= self.ready)

    @invariant()
    def no_invalidation_overtakes_a_load(self):
        """It is older than the answer, which would stay in the cache."""
        for number in self.left:
            if self.born[number] == 'invalidation':
                self.assert_(all(
                    each in self.left[:self.left.index(number)]
                    for each in range(number) if self.born[each] == 'load'))

    @invariant()
    def nothing_overtakes_but_answers_to_loads(self):
        ordered = [number for number in self.left
                   if self.born[number] != 'load']
        self.assert_(ordered == sorted(ordered))

    @invariant()
    def no_load_overtakes_an_invalidation_that_came_before_it(self):
        """Its answer may be newer than what the client believes to be."""
        for number in self.left:
            if self.born[number] == 'load':
                self.assert_(all(
                    each in self.left[:self.left.index(number)]
                    for each in range(number)
                    if self.born[each] in ('invalidation', 'in place')))

    @invariant()
    def what_may_leave_has_left(self):
        if self.ready == set(range(len(self.born))):
            self.assert_(
                set(self.left + self.later) == self.ready
                and not len(self.outbox))

    def assert_(self, truth):
        assert truth, (self.born, self.left)


InterleavingsTests = Interleavings.TestCase
InterleavingsTests.settings = settings(
    InterleavingsTests.settings, max_examples=often(50, 300, 20))
