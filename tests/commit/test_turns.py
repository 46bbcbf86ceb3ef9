"""Waiting for objects, in threads: nobody is left waiting (I10)."""

import random

import transaction
import ZODB
from ZODB.FileStorage import FileStorage
from ZODB.POSException import ConflictError
from ZODB.tests.MinPO import MinPO

from ..often import often
from ..support import TestCase
from ..support import Thread


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
        storage._reserve.is_real = False
        return storage
