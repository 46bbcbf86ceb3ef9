"""Waiting for objects, in threads: nobody is left waiting (I10)."""

import random

import transaction
import ZODB
from ZODB.FileStorage import FileStorage
from ZODB.POSException import ConflictError
from ZODB.tests.MinPO import MinPO

from fsyncstorage.commit.turns import Turns

from ..often import often
from ..support import TestCase
from ..support import Thread
from ..support import owners
from ..support import until


class Waiting(TestCase):

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

    def test_who_lets_go_while_it_waits(self):
        """Another thread has aborted its transaction."""
        self.turns.ask(1, 'a', ())
        second = self.waiting(2, 'a', ())
        self.turns.let_go(2)
        self.assertFalse(second.result())
        self.turns.let_go(1)
        self.assertEqual(owners(self.turns), 0)
        self.assertEqual(self.turns.waits.summary()['count'], 0)

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



class TwoStorages(TestCase):
    """In one transaction; each thread changes both, in its own order."""

    threads = often(8, 16)
    rounds = often(4, 8)

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

    def test_without_reserves(self):
        storages = self.open('one'), self.open('other')
        for storage in storages:
            storage._reserve.is_real = False
        self.check(*storages)
