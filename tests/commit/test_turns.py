"""Which transaction has which objects: promises, a model, and threads.

Nobody is left waiting (I10).
"""

import functools
import itertools
import random
import unittest
from unittest import mock

import transaction
import ZODB
from hypothesis import strategies
from hypothesis.stateful import RuleBasedStateMachine
from hypothesis.stateful import invariant
from hypothesis.stateful import precondition
from hypothesis.stateful import rule
from ZODB.FileStorage import FileStorage
from ZODB.POSException import ConflictError
from ZODB.tests.MinPO import MinPO

from fsyncstorage.commit.turns import MOST_PASSED
from fsyncstorage.commit.turns import Turns

from ..generated import settings
from ..often import often
from ..support import TestCase
from ..support import Thread


def never(interrupt):
    raise AssertionError(f'writing stops after {interrupt!r}')


class OneStorage(unittest.TestCase):

    def setUp(self):
        self.turns = Turns(never)
        self.served = []

    def waits(self, owner, oids):
        """It asks in vain, and is noted when it is served."""
        self.assertFalse(self.turns.ask(owner, oids))
        self.assertTrue(self.turns.call_when_served(
            owner, functools.partial(self.served.append, owner)))

    def test_in_the_order_in_which_they_came(self):
        self.turns.ask(0, 'a')
        for number in 1, 2, 3:
            self.waits(number, 'a')
        for number in 0, 1, 2:
            self.turns.let_go(number)
            self.assertEqual(self.served, list(range(1, number + 2)))

    def test_no_convoy(self):
        """One that waits for a slow transaction does not hold up others."""
        self.turns.ask('slow', 'a')
        self.assertFalse(self.turns.ask('waits', 'ab'))
        self.assertTrue(self.turns.ask('passes', 'b'))

    def test_who_asks_twice(self):
        """It is answered, and keeps what it has asked for first."""
        self.turns.ask('one', 'a')
        self.waits('other', 'a')
        for owner, has_it in ('one', True), ('other', False):
            self.assertEqual(self.turns.ask(owner, 'b'), has_it)
            self.assertEqual(self.turns.ask_alone(owner), has_it)
        self.assertTrue(self.turns.ask('third', 'b'))
        self.turns.let_go('one')
        self.assertEqual(self.served, ['other'])

    def test_who_needs_no_object(self):
        """It waits for those that are alone, and for nobody else."""
        self.turns.ask('one', 'a')
        self.waits('other', 'a')
        self.assertTrue(self.turns.ask('of none', ''))
        self.assertFalse(self.turns.ask_alone('alone'))
        self.waits('behind', '')
        for owner in 'one', 'of none', 'other', 'alone':
            self.turns.let_go(owner)
        self.assertEqual(self.served, ['other', 'behind'])

    def test_a_crowd_at_one_object_costs_little(self):
        """Each call looks at a few of those that wait, not at all of them."""
        looks, is_free, crowd = 0, self.turns._is_free, 500

        def count(wish):
            nonlocal looks
            looks += 1
            return is_free(wish)

        for number in range(crowd):
            self.turns.ask(number, 'a')
        with mock.patch.object(self.turns, '_is_free', count):
            for number in range(crowd):
                self.turns.let_go(number)
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


class Votes(RuleBasedStateMachine):
    """Transactions vote in one storage, then in the other; in any order of
    events, with some that are alone and some that give up."""

    def __init__(self):
        super().__init__()
        self.storages = Turns(never), Turns(never)
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
        served = functools.partial(self.served, stage, each.number)
        if storage.ask_alone(each.number) if alone else storage.ask(
                each.number, written, read):
            served()
        else:
            assert storage.call_when_served(each.number, served)

    @precondition(lambda self: self.transactions)
    @rule(data=strategies.data())
    def end(self, data):
        """Finish, abort or give up: to the locks they are the same."""
        self.let_go(data.draw(strategies.sampled_from(
            list(self.transactions))))

    def let_go(self, number):
        each = self.transactions.pop(number)
        for stage in range(each.voted + each.waits):
            del self.wanted[stage][number]
            del self.passed_by[stage, number]
            self.storages[stage].let_go(number)

    def served(self, stage, number):
        if number in self.transactions:  # else it lets go
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
            if self.holds(stage, other):
                continue
            assert not its_alone, 'nobody passes who wants to be alone'
            assert not alone, 'alone, and others came before'
            if excludes(self.wanted[stage][number],
                        self.wanted[stage][other]):
                self.passed_by[stage, other] += 1
                assert self.passed_by[stage, other] <= MOST_PASSED

    def holds(self, stage, number):
        return self.transactions[number].voted > stage

    @invariant()
    def nobody_shares_what_is_written(self):
        for stage, wanted in enumerate(self.wanted):
            holders = [wish for number, wish in wanted.items()
                       if self.holds(stage, number)]
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
            left = [name for name, value in vars(storage).items()
                    if isinstance(value, (dict, set)) and value]
            assert not left and storage._alone is None, left


VotesTests = Votes.TestCase
VotesTests.settings = settings(
    max_examples=often(15, 100, 6), stateful_step_count=80)


class TwoStorages(TestCase):
    """In one transaction; each thread changes both, in its own order."""

    threads = often(8, 16, 4)
    rounds = often(4, 8, 2)

    def database(self, name, storage, databases):
        db = ZODB.DB(storage, database_name=name, databases=databases)
        self.addCleanup(db.close)
        return db

    def check(self, *storages):
        databases = {}
        names = [str(number) for number, _ in enumerate(storages)]
        for name, storage in zip(names, storages):
            db = self.database(name, storage, databases)
            with db.transaction() as connection:
                for number in range(3):
                    connection.root()[number] = MinPO(0)
        done = []

        def work(seed):
            choose = random.Random(seed)
            manager = transaction.TransactionManager()
            connection = databases['0'].open(manager)
            order = names if seed % 2 else names[::-1]
            for _ in range(self.rounds):
                number = choose.randrange(3)
                while True:
                    try:
                        for name in order:
                            counter = connection.get_connection(
                                name).root()[number]
                            counter.value += 1
                        manager.commit()
                    except ConflictError:
                        manager.abort()
                    else:
                        done.append(number)
                        break
            connection.close()

        for thread in [Thread(work, seed) for seed in range(self.threads)]:
            thread.result()
        self.assertEqual(len(done), self.threads * self.rounds)
        for db in databases.values():
            with db.transaction() as connection:
                for number in range(3):  # no half commit
                    self.assertEqual(connection.root()[number].value,
                                     done.count(number))

    def test_ours_and_another(self):
        for name, make in (
                ('ours', self.open), ('of stock', self.stock),
                ('without reserves', self.without_reserves)):
            with self.subTest(name):
                self.check(self.open(f'first {name}'), make(name))

    def stock(self, name):
        return FileStorage(self.path(name))

    def without_reserves(self, name):
        storage = self.open(name)
        storage.journal.reserve.is_real = False
        return storage
