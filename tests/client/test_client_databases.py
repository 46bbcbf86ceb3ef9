"""One transaction over our client and a database of stock's.

A commit takes two trips, wherever our vote is.
Wherever a vote or a finish fails, or the connection is cut, all have the
change or none.  A failure between two finishes is the exception, and is said.
Nobody waits for ever, and nothing is committed twice.
"""

import asyncio
import contextlib
import itertools
from unittest import mock

import transaction
import ZEO
import ZEO.asyncio.server
import ZODB
from persistent.mapping import PersistentMapping
from ZEO.ClientStorage import ClientStorage
from ZODB.FileStorage import FileIterator
from ZODB.FileStorage import FileStorage
from ZODB.POSException import ConflictError

from fsyncstorage.client import failover
from fsyncstorage.client.storage import FsyncClient
from fsyncstorage.server.server import Server

from ..often import often
from ..server.relay import Cut
from ..server.relay import Relays
from ..support import PATIENCE
from ..support import TestCase
from ..support import Thread
from ..support import until

TRIES = 1000
# What `transaction` logs when a finish fails.
HALF = 'may be in an inconsistent state'


class Refused(Exception):
    """A vote or a finish that fails."""


def refuse(*args):
    raise Refused


class View:
    """A connection to each of some databases, for the same transactions."""

    def __init__(self, databases):
        self.manager = transaction.TransactionManager()
        self.connections = [each.open(self.manager) for each in databases]

    def close(self):
        self.manager.abort()
        for each in self.connections:
            each.close()

    def increment(self):
        for each in self.connections:
            each.root()['counter']['value'] += 1

    def commit(self):
        """An increment, once."""
        with self.manager:
            self.increment()

    def attempt(self, user=''):
        """An increment, as often as it may be tried again."""
        for attempt in self.manager.attempts(TRIES):
            with attempt as begun:
                begun.user = user
                self.increment()

    def values(self):
        self.manager.begin()
        return [each.root()['counter']['value'] for each in self.connections]


class Site(TestCase):
    """Our client behind a relay to its server, and the other database."""

    #: Of our storage, at the server: our sort key begins with it.
    name = '1'
    #: Is our sort key the last one?
    is_last = True

    def setUp(self):
        super().setUp()
        self.patch(failover, FIRST_PAUSE=0.01)  # before it looks again
        self.storage = self.open()
        server = Server(('127.0.0.1', 0), {self.name: self.storage})
        serving = Thread(server.loop)
        self.addCleanup(serving.result)
        self.addCleanup(server.close)
        self.address = server.acceptor.addr
        self.relays = Relays().__enter__()
        self.addCleanup(self.relays.__exit__)
        self.relay = self.relays.open(self.address)
        client = FsyncClient(
            ('127.0.0.1', self.relay.port), self.name, wait_timeout=PATIENCE)
        self.ours = self.database(client)
        self.other = self.database(self.open_other())
        self.assertEqual(
            self.other.storage.sortKey() < client.sortKey(), self.is_last)
        for each in self.ours, self.other:
            with each.transaction() as connection:
                connection.root()['counter'] = PersistentMapping(value=0)
        # Behind that: another client may be told of it late.
        self.stock = self.database(ClientStorage(self.address, self.name))

    def open_other(self):
        return FileStorage(self.path('other.fs'))

    def open_other_again(self):
        """A database of another client of the same site."""
        return self.other

    def database(self, storage):
        database = ZODB.DB(storage, pool_size=100)
        self.addCleanup(database.close)
        return database

    def view(self, *databases):
        view = View(databases or (self.ours, self.other))
        self.addCleanup(view.close)
        return view

    def trips(self):
        """Commits of ours in one trip, and in two."""
        seen = self.relay.seen
        return seen['trip'], seen['finish']

    @contextlib.contextmanager
    def trips_counted(self, one, two):
        before = self.trips()
        yield
        self.assertEqual(
            tuple(now - then for now, then in zip(self.trips(), before)),
            (one, two))

    def values(self):
        """As stock clients see them."""
        self.stock.storage.ping()
        # Stock's server answers a commit before it tells its other clients,
        # and with uvloop it may answer their pings before, too.  A new client
        # knows of all commits.
        other = self.open_other_again()
        return self.view(self.stock, other).values()

    def increment(self):
        self.view().commit()

    def check(self, value, words=None):
        """All have it."""
        values = self.values()
        self.assertEqual(values, [value] * len(values), words)


class Points(Site):
    """Where a vote or a finish fails."""

    level = 2

    #: What has it when the finish of the other database fails.
    half = [0, 0]

    def test_none_fails(self):
        with self.trips_counted(0, 1):
            self.increment()
        self.check(1)

    def failing(self, number, step):
        """A commit in which a step of this database fails."""
        view = self.view()
        view.increment()
        with mock.patch.object(view.connections[number], step, refuse):
            with self.assertRaises(Refused):
                view.manager.commit()
        view.manager.abort()

    def test_the_other_vote(self):
        with self.trips_counted(0, 0):
            self.failing(1, 'tpc_vote')
        self.check(0)
        self.increment()
        self.check(1)

    def test_our_vote(self):
        view = self.view()
        view.increment()
        self.stock.storage.ping()
        with self.stock.transaction() as connection:
            connection.root()['counter']['value'] += 1
        with self.assertRaises(ConflictError):
            view.manager.commit()
        view.manager.abort()
        self.assertEqual(self.values(), [1, 0])

    def test_our_finish(self):
        view = self.view()
        view.increment()
        with mock.patch.object(self.storage, 'tpc_finish', refuse):
            with self.assertLogs('fsyncstorage', 'ERROR'):
                with self.assertRaises(Exception):
                    view.manager.commit()
        view.manager.abort()
        # Where it is the last one, that is between two finishes.
        self.assertEqual(self.values(), [0, int(self.is_last)])

    def test_the_other_finish(self):
        with self.assertLogs('txn', 'ERROR') as said:
            self.failing(1, 'tpc_finish')
        self.assertIn(HALF, said.output[0])
        self.assertEqual(self.values(), self.half)
        self.increment()
        self.assertEqual(self.values(), [each + 1 for each in self.half])


class PointsBehind(Points):
    """The other one is."""

    half = [1, 0]
    name = '!'
    is_last = False


class Served:
    """The other database is one of a server of stock's."""

    other_name = '0'

    def open_other(self):
        # With uvloop, stock's server tells its clients things out of order.
        with mock.patch.object(ZEO.asyncio.server, 'new_event_loop',
                               asyncio.new_event_loop):
            self.other_address, stop = ZEO.server(
                storage_conf=f'<filestorage {self.other_name}>\n'
                f'path {self.path("other.fs")}\n</filestorage>')
        self.addCleanup(stop)
        return self.connect_other()

    def connect_other(self):
        return ClientStorage(
            self.other_address, self.other_name, wait_timeout=PATIENCE)

    def open_other_again(self):
        return self.database(self.connect_other())


class Cuts(Site):
    """Between our client and its server.

    (The other one has finished when our finish leaves.  One that does not
    reach the server has failed between two finishes.  So no answer to a vote
    comes from a server that is cut off.)
    """

    level = 2

    kinds = 'begin', 'vote', 'done'
    hows = 'reset', 'closed', 'frozen', 'late'
    parts = often((0, 1), (0, 0.5, 1))

    def test_all_or_none(self):
        view = self.view()
        cuts = [Cut(kind, how, part, True, 'welcome') for kind, how, part in
                itertools.product(self.kinds, self.hows, self.parts)]
        for value, cut in enumerate(cuts, 1):
            until(self.ours.storage.is_connected, 'a stream')
            self.relays.do(self.relay.arm, [cut])
            attempt = Thread(view.attempt)
            self.assertTrue(self.relay.over.wait(PATIENCE), cut)
            if cut.how == 'late':
                self.assertTrue(self.relay.came.wait(PATIENCE), cut)
            self.relays.do(self.relay.settle)
            attempt.result()
            self.check(value, cut)
        self.assertEqual(self.relay.made.total(), len(cuts))


class CutsBehind(Cuts):

    kinds = 'begin', 'vote', 'voted', 'finish', 'done'
    hows = 'reset', 'closed', 'frozen', 'late', 'answers'
    name = '!'
    is_last = False


class Together(Site):
    """Stock clients and ours, on the same objects of both databases."""

    level = 2

    threads = 3
    count = often(6, 15)

    def test_nobody_waits_for_ever(self):
        pairs = [(self.ours, self.other),
                 (self.stock, self.open_other_again())]
        views = [self.view(*pair) for pair in pairs
                 for _ in range(self.threads)]
        running = [Thread(self.run_one, view, self.users(number))
                   for number, view in enumerate(views)]
        for each in running:
            each.result()
        self.check(len(views) * self.count)
        self.check_files(len(views))

    def users(self, number):
        """One for each commit of a view, whatever its attempts."""
        return [f'{number} {commit}' for commit in range(self.count)]

    def run_one(self, view, users):
        for user in users:
            view.attempt(user)

    def check_files(self, views):
        """Each commit is in both files, and once."""
        wanted = sorted(
            user for number in range(views) for user in self.users(number))
        for name in 'Data.fs', 'other.fs':
            kept = [each.user.decode() for each in
                    FileIterator(self.path(name)) if each.user]
            self.assertEqual(sorted(kept), wanted, name)


class TogetherServed(Served, Together):

    level = 3


class TogetherLong(TogetherServed):

    level = 3
    count = 300
