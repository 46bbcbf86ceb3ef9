"""The caches of stock clients are never corrupted, nor those of ours beside
them.

ZEO dropped its server with threads because of this: an invalidation that
overtakes the answer to a load leaves the client with a stale object that it
believes to be current, for good.

Pairs of objects have values whose sum is zero in every transaction.  A client
that sees another sum was shown a stale object, from its cache or by the
server.  And invalidations gather under load, but none is lost.
"""

import contextlib
import random
import threading
import time
from unittest import mock

import ZEO
import ZODB
from persistent.mapping import PersistentMapping
from ZEO.ClientStorage import ClientStorage
from ZODB.POSException import ConflictError

from fsyncstorage import FsyncStorage
from fsyncstorage.client.storage import FsyncClient
from fsyncstorage.server import service as service_module

from ..client.trips import Trips
from ..resource import BEHIND
from ..resource import Resource
from ..support import PATIENCE
from ..support import Thread
from ..support import until
from .serving import Served

PAIRS = 3
STOCK, OURS, TWO_TRIPS = 'stock', 'ours', 'two trips'


class Delaying(FsyncStorage):
    """As if much of what is loaded had to come from a slow disk."""

    def load_before_cached(self, oid, tid):
        if random.random() < 0.8:
            raise BlockingIOError
        return super().load_before_cached(oid, tid)

    def loadBefore(self, oid, tid):
        result = super().loadBefore(oid, tid)
        # No event can stand for this: the delay is what is tested.
        time.sleep(random.random() * 0.002)
        return result


class Client:
    """It comes and goes, reads what belongs together, and commits."""

    def __init__(self, kind, address, directory, number):
        self.kind = kind
        self.address = address
        self.directory = directory
        self.number = number
        self.choice = random.Random(number)

    def run(self, transactions, stay):
        """Commit so many transactions; each visit with a cache, old or new."""
        make = ClientStorage if self.kind is STOCK else FsyncClient
        while transactions > 0:
            # With a name, the cache is a file that the next visit finds again.
            name = self.choice.choice([None, f'cache{self.number}'])
            with contextlib.closing(ZODB.connection(make(
                    self.address, client=name, var=self.directory))) as one:
                self.visit(one, min(transactions, stay))
            transactions -= stay

    def visit(self, connection, transactions):
        while transactions:
            # What is read comes from the cache of the client, or its server.
            connection.cacheMinimize()
            try:
                self.change(connection)
            except ConflictError:
                connection.transaction_manager.abort()
            else:
                transactions -= 1

    def change(self, connection):
        """Read all pairs, change one."""
        under_way = connection.transaction_manager.begin()
        if self.kind is TWO_TRIPS:
            under_way.join(Resource(BEHIND))
        pairs = [connection.root()[name] for name in range(PAIRS)]
        self.choice.shuffle(pairs)
        if self.choice.random() < 0.3:
            connection.prefetch(pairs[-1], pairs[0])
        for pair in pairs:
            values = [each['value'] for each in pair]
            serials = [each._p_serial.hex() for each in pair]
            assert not sum(values), (self.kind, values, serials)
        for each, by in zip(pairs[0], (1, -1)):
            each['value'] += by
        connection.transaction_manager.commit()


class Caches(Served):
    """A site that moves over to our client, one client after the other."""

    level = 2
    #: What each client is.
    kinds = STOCK, OURS, STOCK, TWO_TRIPS, OURS
    #: Of each client; and between its coming and going.
    transactions, stay = 40, 10

    def test_no_violation(self):
        trips = Trips(self)
        storage = Delaying(self.path(), reader_threads=len(self.kinds))
        self.addCleanup(storage.close)
        # All caches that are found again can be verified.
        server = self.serve(storage, invalidation_queue_size=(
            2 * self.transactions * len(self.kinds)))
        with contextlib.closing(ZEO.connection(server.addr)) as connection:
            for name in range(PAIRS):
                connection.root()[name] = (
                    PersistentMapping(value=0), PersistentMapping(value=0))
            connection.transaction_manager.commit()
        before = server.stats['1'].commits
        clients = [Client(kind, server.addr, self.directory, number)
                   for number, kind in enumerate(self.kinds)]
        running = [Thread(each.run, self.transactions, self.stay)
                   for each in clients]
        for each in running:
            each.join()  # at level 3, longer than anything else
            each.result()
        self.assertEqual(server.stats['1'].commits - before,
                         self.transactions * len(self.kinds))
        self.assertEqual(
            trips.one, self.transactions * self.kinds.count(OURS))
        self.assertEqual(
            trips.two, self.transactions * self.kinds.count(TWO_TRIPS))


class Gathered(Served):
    """Invalidations under load, with a quiet time that the test ends."""

    def setUp(self):
        super().setUp()
        self.patch(service_module, QUIET=3600)
        self.storage = self.open(durability='none')
        self.server = self.serve(self.storage)
        self.service = self.server.services['1']
        self.writer, self.busy, self.reader = (
            self.connect(self.server) for _ in range(3))

    def quiet_is_over(self):
        def end():
            self.service._quiet.cancel()
            self.service._quiet_is_over()
            over.set()

        over = threading.Event()
        self.server.soon(end)
        self.assertTrue(over.wait(PATIENCE))

    def test_who_waits_how_long(self):
        self.writer.commit({1: b'x'})  # the first one leaves at once
        for peer in self.busy, self.reader:
            peer.wait_for_invalidations(1)
        self.busy.commit({2: b'x'})
        self.writer.commit({3: b'x'})
        self.quiet_is_over()
        self.reader.wait_for_invalidations(3)
        # One that commits is not woken, until once more.
        self.busy.socket.setblocking(False)
        with self.assertRaises(BlockingIOError):
            self.busy.socket.recv(1)
        self.busy.socket.settimeout(PATIENCE)
        self.quiet_is_over()
        self.busy.wait_for_invalidations(2)

    def test_what_comes_while_something_is_published(self):
        """It is published next, although that was asked for before."""
        published = []
        publish = self.storage.publish

        def and_more():
            published.append(publish())
            if len(published) == 1:
                self.storage._sequencer.offer()

        with mock.patch.object(self.storage, 'publish', and_more):
            self.storage._sequencer.offer()
            until(lambda: len(published) == 2, 'it is published')


class Long(Caches):

    level = 3
    transactions, stay = 5_000, 100


class LongStock(Long):

    kinds = 8 * (STOCK,)


class LongOurs(Long):

    kinds = 8 * (OURS,)


class LongTwoTrips(Long):

    kinds = 8 * (TWO_TRIPS,)
