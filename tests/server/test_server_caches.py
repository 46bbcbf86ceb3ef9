"""The caches of stock clients are never corrupted, nor those of ours beside
them.

ZEO dropped its server with threads because of this: an invalidation that
overtakes the answer to a load leaves the client with a stale object that it
believes to be current, for good.
"""

import contextlib
import os
import random
import subprocess
import sys
import time

import ZEO

from fsyncstorage import FsyncStorage

from ..client.trips import Trips
from . import reader
from .serving import Served

READ_WITHIN = 3600


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


class Caches(Served):
    """A site that moves over to our client, one client after the other."""

    level = 2
    maxDiff = None
    #: What each client is, of reader.CLIENTS.
    kinds = 'stock', 'ours', 'stock', 'two trips', 'ours'
    #: Of all of them; and of each, between coming and going.
    transactions, stay = 150, 10

    def test_no_violation(self):
        trips = Trips(self)
        ends, commits = self.run_clients()
        self.assertEqual(ends, [(0, '')] * len(self.kinds))
        self.assertGreaterEqual(commits, self.transactions)
        # Each kind of client has committed as it should.
        self.assertEqual(trips.one > 0, 'ours' in self.kinds)
        self.assertEqual(trips.two > 0, 'two trips' in self.kinds)

    def run_clients(self):
        """What became of each client, and how many commits there were."""
        storage = Delaying(self.path(), reader_threads=len(self.kinds))
        self.addCleanup(storage.close)
        # All caches that are found again can be verified.
        server = self.serve(
            storage, invalidation_queue_size=2 * self.transactions)
        with contextlib.closing(ZEO.connection(server.addr)) as connection:
            reader.populate(connection)
        before = server.stats['1'].commits
        with contextlib.ExitStack() as stack:
            clients = [
                stack.enter_context(self.client(server, number, kind))
                for number, kind in enumerate(self.kinds)]
            ends = self.wait(clients)
        return ends, server.stats['1'].commits - before

    @contextlib.contextmanager
    def client(self, server, number, kind):
        each = self.transactions // len(self.kinds)
        process = subprocess.Popen(
            [sys.executable, '-m', reader.__name__, kind,
             *map(str, server.addr), self.directory, str(number), str(each),
             str(self.stay)],
            stderr=subprocess.PIPE, text=True,
            env={**os.environ, 'PYTHONPATH': os.pathsep.join(sys.path)})
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    def wait(self, clients):
        """Return their ends; one that ends badly ends the others."""
        ends = []
        for client in clients:
            _, said = client.communicate(timeout=READ_WITHIN)
            ends.append((client.returncode, said))
            if client.returncode:
                break
        return ends


class Long(Caches):

    level = 3
    transactions, stay = 100_000, 500


class LongStock(Long):

    kinds = 8 * ('stock',)


class LongOurs(Long):

    kinds = 8 * ('ours',)


class LongTwoTrips(Long):

    kinds = 8 * ('two trips',)
