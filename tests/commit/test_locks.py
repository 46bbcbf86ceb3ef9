"""Which transaction holds which objects: promises, and a model."""

import itertools
import unittest
from unittest import mock

from hypothesis import strategies
from hypothesis.stateful import RuleBasedStateMachine
from hypothesis.stateful import invariant
from hypothesis.stateful import precondition
from hypothesis.stateful import rule

from fsyncstorage.commit import locks
from fsyncstorage.commit.locks import MOST_PASSED
from fsyncstorage.commit.locks import Locks

from ..generated import settings
from ..often import often


class LocksTests(unittest.TestCase):

    def setUp(self):
        self.locks = Locks()

    def test_in_the_order_in_which_they_came(self):
        self.locks.ask(0, 'a')
        for number in 1, 2, 3:
            self.assertFalse(self.locks.ask(number, 'a'))
        for number in 0, 1, 2:
            self.assertEqual(self.locks.let_go(number), [number + 1])

    def test_no_convoy(self):
        """One that waits for a slow transaction does not hold up others."""
        self.locks.ask('slow', 'a')
        self.assertFalse(self.locks.ask('waits', 'ab'))
        self.assertTrue(self.locks.ask('passes', 'b'))

    def test_who_asks_twice(self):
        """It is answered, and keeps what it has asked for first."""
        self.locks.ask('one', 'a')
        self.locks.ask('other', 'a')
        for owner, has_it in ('one', True), ('other', False):
            self.assertEqual(self.locks.ask(owner, 'b'), has_it)
            self.assertEqual(self.locks.ask_alone(owner), has_it)
        self.assertTrue(self.locks.ask('third', 'b'))
        self.assertEqual(self.locks.let_go('one'), ['other'])

    def test_a_crowd_at_one_object_costs_little(self):
        """Each call looks at a few of those that wait, not at all of them."""
        looks = 0
        excludes = locks._Wish.excludes

        def count(*arguments):
            nonlocal looks
            looks += 1
            return excludes(*arguments)

        crowd = 500
        with mock.patch.object(locks._Wish, 'excludes', count):
            for number in range(crowd):
                self.locks.ask(number, 'a')
            for number in range(crowd):
                self.locks.let_go(number)
        self.assertLess(looks, 4 * crowd)


_OIDS = strategies.frozensets(strategies.sampled_from('abcd'))
#: Objects to write, objects to read, and whether to be alone.
WISHES = strategies.tuples(
    _OIDS, _OIDS, strategies.sampled_from([False] * 9 + [True]))


def excludes(one, other):
    """Of two wishes: only one of them can be granted."""
    return bool(one[2] or other[2] or one[0] & (other[0] | other[1])
                or one[1] & other[0])


class _Transaction:

    def __init__(self, number):
        self.number = number
        self.voted = 0  # in this many storages
        self.waits = False  # in the next one


class TwoStorages(RuleBasedStateMachine):
    """Transactions vote in one storage, then in the other; in any order of
    events, with some that are alone and some that give up."""

    def __init__(self):
        super().__init__()
        self.storages = Locks(), Locks()
        self.numbers = itertools.count()
        self.transactions = {}
        #: For each storage: what is wanted, by number, in the order of asking.
        self.wanted = {}, {}
        self.passed_by = {}

    # What can happen

    @rule(wish=WISHES)
    def begin(self, wish):
        each = _Transaction(next(self.numbers))
        self.transactions[each.number] = each
        self.vote(each, wish)

    @precondition(lambda self: self.ready())
    @rule(wish=WISHES, data=strategies.data())
    def go_on(self, wish, data):
        self.vote(data.draw(strategies.sampled_from(self.ready())), wish)

    def ready(self):
        """Those that vote in the other storage next."""
        return [each for each in self.transactions.values()
                if each.voted == 1 and not each.waits]

    def vote(self, each, wish):
        stage, storage = each.voted, self.storages[each.voted]
        written, read, alone = wish
        each.waits = True
        self.wanted[stage][each.number] = written, read - written, alone
        self.passed_by[stage, each.number] = 0
        if storage.ask_alone(each.number) if alone else storage.ask(
                each.number, written, read):
            self.served(stage, [each.number])

    @precondition(lambda self: self.transactions)
    @rule(data=strategies.data())
    def end(self, data):
        """Finish, abort or give up: to the locks they are the same."""
        self.let_go(data.draw(strategies.sampled_from(
            list(self.transactions))))

    def let_go(self, number):
        each = self.transactions.pop(number)
        for stage in range(each.voted + each.waits):
            served = self.storages[stage].let_go(number)
            del self.wanted[stage][number]
            del self.passed_by[stage, number]
            self.served(stage, served)

    def served(self, stage, numbers):
        for number in numbers:
            self.passes(stage, number)
            each = self.transactions[number]
            assert each.waits and each.voted == stage
            each.waits = False
            each.voted += 1

    # What must hold

    def passes(self, stage, number):
        *_, alone = self.wanted[stage][number]
        for other, (*_, its_alone) in self.wanted[stage].items():
            if other == number:
                break
            if self.storages[stage].holds(other):
                continue
            assert not its_alone, 'nobody passes who wants to be alone'
            assert not alone, 'alone, and others came before'
            if excludes(self.wanted[stage][number],
                        self.wanted[stage][other]):
                self.passed_by[stage, other] += 1
                assert self.passed_by[stage, other] <= MOST_PASSED

    @invariant()
    def nobody_shares_what_is_written(self):
        for storage, wanted in zip(self.storages, self.wanted):
            holders = [wish for number, wish in wanted.items()
                       if storage.holds(number)]
            for one, other in itertools.combinations(holders, 2):
                assert not excludes(one, other)

    def teardown(self):
        """No dead lock: those that do not wait end, until nobody is left."""
        while self.transactions:
            number = next((each.number for each in self.transactions.values()
                           if not each.waits), None)
            assert number is not None, 'a dead lock'
            self.let_go(number)
        for storage in self.storages:
            assert not any(vars(storage).values()), 'something is left'


Model = TwoStorages.TestCase
Model.settings = settings(
    max_examples=often(15, 100, 6), stateful_step_count=80)
