"""No update is lost: clients of ours and stock ones change the same objects.

Each client increments counters, and tries again after a conflict.  The sum of
what they were told is what is in the database.  Our clients commit in one
trip, or in two where another resource votes behind them.
"""

import contextlib
import random

import transaction
import ZEO
import ZODB
from BTrees.Length import Length
from persistent.mapping import PersistentMapping
from transaction.interfaces import TransientError
from ZEO.ClientStorage import ClientStorage

from fsyncstorage.client.storage import FsyncClient

from ..often import often
from ..resource import BEHIND
from ..resource import Resource
from ..server.serving import Served
from ..support import PATIENCE
from ..support import Thread
from .trips import Trips

STOCK, ONE_TRIP, TWO_TRIPS = 'stock', 'one trip', 'two trips'


class Updates(Served):

    level = 2

    def setUp(self):
        super().setUp()
        self.trips = Trips(self)
        self.server = self.serve()
        with contextlib.closing(ZEO.connection(self.server.addr)) as first:
            for name in 'counter', 'left', 'right', 'one', 'another':
                first.root()[name] = PersistentMapping(value=0)
            first.root()['resolved'] = Length()
            first.transaction_manager.commit()

    def database(self, kind):
        make = ClientStorage if kind is STOCK else FsyncClient
        storage = make(self.server.addr, wait_timeout=PATIENCE)
        storage.ping()
        database = ZODB.DB(storage, pool_size=100)
        self.addCleanup(database.close)
        return database

    def update(self, database, kind, change, count):
        """How often it had to try again."""
        manager = transaction.TransactionManager()
        again = 0
        with contextlib.closing(database.open(manager)) as connection:
            for _ in range(count):
                while True:
                    under_way = manager.begin()
                    if kind is TWO_TRIPS:
                        under_way.join(Resource(BEHIND))
                    try:
                        change(connection.root())
                        manager.commit()
                        break
                    except TransientError:
                        manager.abort()
                        again += 1
        return again

    def check(self, kinds, threads, count):
        """A client of each kind, with so many threads."""
        def increment(root):
            root['counter']['value'] += 1

        def move(root):
            assert root['left']['value'] == -root['right']['value']
            root['left']['value'] += 1
            root['right']['value'] -= 1

        def resolve(root):
            """A conflict of it is resolved."""
            root['resolved'].change(1)

        def exclude(root):
            """One of two may be set: it writes one, and reads the other."""
            mine, other = random.sample((root['one'], root['another']), 2)
            assert mine['value'] + other['value'] < 2
            root._p_jar.readCurrent(other)
            mine['value'] = int(not mine['value'] and not other['value'])

        changes = increment, move, resolve, exclude
        clients = [(self.database(kind), kind) for kind in kinds]
        running = [
            Thread(self.update, *client, change, count)
            for client in clients for _ in range(threads)
            for change in changes]
        again = sum(each.result() for each in running)
        total = len(clients) * threads * count
        for database, _ in clients:
            database.storage.ping()
            with database.transaction() as connection:
                root = connection.root()
                self.assertEqual(root['counter']['value'], total)
                self.assertEqual(root['left']['value'], total)
                self.assertEqual(root['right']['value'], -total)
                self.assertEqual(root['resolved'](), total)
        # Of a client, every commit takes as many trips.
        each_kind = len(changes) * threads * count
        for trips, kind in (self.trips.one, ONE_TRIP), (
                self.trips.two, TWO_TRIPS):
            self.assertEqual(
                trips, each_kind * kinds.count(kind), kind)
        return again

    def test_three_clients(self):
        self.assertTrue(self.check([ONE_TRIP] * 3, 1, often(8, 30)))

    def test_threads_of_one_client_in_two_trips(self):
        self.assertTrue(self.check([TWO_TRIPS], 4, often(4, 20)))

    def test_threads_of_several_clients_and_a_stock_one(self):
        self.check([ONE_TRIP, TWO_TRIPS, STOCK], 2, often(4, 15))


class Many(Updates):

    level = 3

    def test_three_clients_in_two_trips(self):
        self.assertTrue(self.check([TWO_TRIPS] * 3, 1, often(20, 30)))

    def test_threads_of_one_client(self):
        self.assertTrue(self.check([ONE_TRIP], 4, often(12, 20)))

    def test_sixteen_clients(self):
        self.check(6 * [ONE_TRIP] + 6 * [TWO_TRIPS] + 4 * [STOCK], 1, 15)
