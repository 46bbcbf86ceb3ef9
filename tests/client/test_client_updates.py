"""No update is lost: clients of ours and stock ones change the same objects.

Each client increments counters, and tries again after a conflict.  The sum of
what they were told is what is in the database.
"""

import contextlib

import transaction
import ZEO
import ZODB
from persistent.mapping import PersistentMapping
from transaction.interfaces import TransientError
from ZEO.ClientStorage import ClientStorage

from fsyncstorage.client.storage import FsyncClient

from ..server.serving import Served
from ..support import PATIENCE
from ..support import Thread


class Updates(Served):

    def setUp(self):
        super().setUp()
        self.server = self.serve()
        with contextlib.closing(ZEO.connection(self.server.addr)) as first:
            for name in 'counter', 'left', 'right':
                first.root()[name] = PersistentMapping(value=0)
            first.transaction_manager.commit()

    def database(self, kind):
        storage = kind(self.server.addr, wait_timeout=PATIENCE)
        storage.ping()
        database = ZODB.DB(storage, pool_size=100)
        self.addCleanup(database.close)
        return database

    def update(self, database, change, count):
        """How often it had to try again."""
        manager = transaction.TransactionManager()
        again = 0
        with contextlib.closing(database.open(manager)) as connection:
            for _ in range(count):
                while True:
                    manager.begin()
                    try:
                        change(connection.root())
                        manager.commit()
                        break
                    except TransientError:
                        manager.abort()
                        again += 1
        return again

    def check(self, databases, threads, count):
        """`threads` are of each database."""
        def increment(root):
            root['counter']['value'] += 1

        def move(root):
            assert root['left']['value'] == -root['right']['value']
            root['left']['value'] += 1
            root['right']['value'] -= 1

        running = [
            Thread(self.update, database, change, count)
            for database in databases for _ in range(threads)
            for change in (increment, move)]
        again = sum(each.result() for each in running)
        total = len(databases) * threads * count
        for database in databases:
            database.storage.ping()
            with database.transaction() as connection:
                root = connection.root()
                self.assertEqual(root['counter']['value'], total)
                self.assertEqual(root['left']['value'], total)
                self.assertEqual(root['right']['value'], -total)
        return again

    def test_three_clients(self):
        databases = [self.database(FsyncClient) for _ in range(3)]
        self.assertTrue(self.check(databases, 1, 30))

    def test_threads_of_one_client(self):
        self.assertTrue(self.check([self.database(FsyncClient)], 4, 20))

    def test_threads_of_two_clients_and_a_stock_one(self):
        databases = [self.database(kind) for kind in (
            FsyncClient, FsyncClient, ClientStorage)]
        self.check(databases, 2, 15)


class Many(Updates):

    level = 2

    def test_sixteen_clients(self):
        databases = [
            self.database(kind) for kind in [FsyncClient] * 12
            + [ClientStorage] * 4]
        self.check(databases, 1, 50)
