"""Waiting for objects, in threads: nobody is left waiting (I10)."""

import random

import transaction
import ZODB
from ZODB.FileStorage import FileStorage
from ZODB.POSException import ConflictError
from ZODB.tests.MinPO import MinPO

from fsyncstorage.commit import locks
from fsyncstorage.commit.turns import Turns

from ..support import TestCase
from ..support import Thread
from ..support import owners
from ..support import until
from .test_interrupts import Interrupter


class Waiting(TestCase):

    level = 2

    def setUp(self):
        super().setUp()
        self.turns = Turns()

    def waiting(self, owner, *objects):
        self.assertFalse(self.turns.ask(owner, *objects))
        thread = Thread(self.turns.wait, owner)
        until(lambda: owner in self.turns._waiters, 'waits')
        return thread

    def test_who_waits_is_woken_with_its_objects(self):
        self.assertTrue(self.turns.ask(1, 'a', ()))
        second = self.waiting(2, 'a', ())
        third = self.waiting(3, 'a', ())
        self.turns.let_go(1)
        self.assertTrue(second.result())
        self.assertTrue(third.is_alive())
        self.turns.let_go(2)
        self.assertTrue(third.result())
        self.turns.let_go(3)
        self.assertEqual(owners(self.turns), 0)
        self.assertEqual(self.turns.waits.summary()['count'], 2)

    def test_who_was_served_before_it_waits(self):
        self.turns.ask(1, 'a', ())
        self.assertFalse(self.turns.ask(2, 'a', ()))
        self.turns.let_go(1)
        self.assertTrue(self.turns.wait(2))

    def test_who_lets_go_while_it_waits(self):
        """Another thread has aborted its transaction."""
        self.turns.ask(1, 'a', ())
        second = self.waiting(2, 'a', ())
        self.turns.let_go(2)
        self.assertFalse(second.result())
        self.turns.let_go(1)
        self.assertEqual(owners(self.turns), 0)
        self.assertEqual(self.turns.waits.summary()['count'], 0)

    def test_to_let_go_twice_is_harmless(self):
        self.turns.ask(1, 'a', ())
        self.turns.let_go(1)
        self.turns.ask(2, 'a', ())
        self.turns.let_go(1)
        self.assertFalse(self.turns.ask(3, 'a', ()))

    def test_one_that_waits_in_no_thread_is_called(self):
        called = []
        self.turns.ask(1, 'a', ())
        self.assertFalse(self.turns.ask(2, 'a', ()))
        self.assertTrue(self.turns.call_when_served(
            2, lambda: called.append(2)))
        self.assertFalse(self.turns.ask(2, 'a', ()))  # once more
        self.turns.let_go(1)
        self.assertEqual(called, [2])
        self.assertTrue(self.turns.ask(2, 'a', ()))
        self.assertFalse(self.turns.call_when_served(2, self.fail))
        self.turns.let_go(2)
        self.assertFalse(self.turns.call_when_served(2, self.fail))

    def test_one_that_waits_in_no_thread_is_called_at_the_end(self):
        called = []
        self.turns.ask(1, 'a', ())
        self.turns.ask_alone(2)
        self.turns.call_when_served(2, lambda: called.append(2))
        self.turns.end()
        self.assertEqual(called, [2])
        self.assertFalse(self.turns.call_when_served(2, self.fail))

    def test_the_end(self):
        self.turns.ask(1, 'a', ())
        second = self.waiting(2, 'a', ())
        self.turns.end()
        self.assertFalse(second.result())
        self.assertFalse(self.turns.wait(2))

    def test_an_interrupt_at_each_line(self):
        """Whatever was broken off: when all let go, all were served."""
        for name, change in (
            ('let go', lambda turns: turns.let_go(1)),
            ('ask', lambda turns: turns.ask(9, 'xa', 'b')),
            ('alone', lambda turns: turns.ask_alone(9)),
        ):
            for many in False, True:
                at = 0
                while True:
                    at += 1
                    interrupter = Interrupter(at)
                    with self.subTest(name, at=at, many=many):
                        self.interrupted(interrupter, change, many)
                    if not interrupter.fired:
                        break
                self.assertGreater(at, 5)

    def test_an_interrupt_at_each_line_of_a_wait(self):
        """It is not felt by the one that serves the one that waits."""
        at = 0
        while True:
            at += 1
            interrupter = Interrupter(at)
            with self.subTest(at=at):
                self.interrupted_while_it_waits(interrupter)
            if not interrupter.fired:
                break
        self.assertGreater(at, 5)

    def interrupted_while_it_waits(self, interrupter):
        turns = Turns()
        turns.ask(1, 'a', ())
        turns.ask(2, 'a', ())

        def wait():
            with interrupter:
                return turns.wait(2)

        waiting = Thread(wait)
        until(lambda: not waiting.is_alive() or 2 in turns._waiters, 'waits')
        turns.let_go(1)
        try:
            self.assertTrue(waiting.result())
        except KeyboardInterrupt:
            pass
        turns.let_go(2)
        self.assertEqual(owners(turns), 0)

    def interrupted(self, interrupter, change, many):
        turns = self.turns = Turns()
        turns.ask(1, 'ab', ())
        threads = []
        if many:
            turns.ask(2, 'c', ('d',))
            threads = [self.waiting(3, 'a', ('c',)), self.waiting(4, 'b', ())]
        try:
            with interrupter:
                change(turns)
        except KeyboardInterrupt:
            pass
        for owner in 9, 1, 2:  # as an abort does
            turns.let_go(owner)
        for thread in threads:
            self.assertTrue(thread.result())
        for owner in 3, 4:
            turns.let_go(owner)
        self.assertEqual(owners(turns), 0)
        self.assertTrue(turns.ask_alone('all is free'))


class Repair(TestCase):

    level = 2

    def test_what_follows_from_the_owners(self):
        """After any history, it is what was there."""
        choose = random.Random(5)
        for _ in range(200):
            made = locks.Locks()
            for owner in range(12):
                if choose.random() < 0.15:
                    made.ask_alone(owner)
                else:
                    made.ask(owner, choose.sample('abcdef', 2),
                             choose.sample('abcdef', 1))
                if choose.random() < 0.3:
                    known = [each for each in range(12) if made.knows(each)]
                    made.let_go(choose.choice(known))
            before = self.state(made)
            made.repair()
            self.assertEqual(self.state(made), before)
            while any(map(made.knows, range(12))):
                holding = [each for each in range(12) if made.holds(each)]
                self.assertTrue(holding)
                made.let_go(holding[0])

    def state(self, made):
        return (set(made._granted), list(made._waiting),
                made._writers, made._readers, made._queues, made._alone,
                made._behind)


class TwoStorages(TestCase):
    """In one transaction; each thread changes both, in its own order."""

    level = 2

    threads = 16
    rounds = 8

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

    def test_both_of_ours(self):
        self.check(self.open('one'), self.open('other'))

    def test_ours_and_stock(self):
        self.check(self.open('one'), FileStorage(self.path('other')))

    def test_stock_and_ours(self):
        self.check(FileStorage(self.path('other')), self.open('yours'))

    def test_without_reserves(self):
        storages = self.open('one'), self.open('other')
        for storage in storages:
            storage._reserve.is_real = False
        self.check(*storages)
