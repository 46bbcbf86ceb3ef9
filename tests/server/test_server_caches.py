"""The caches of stock clients are never corrupted.

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
import unittest

import ZEO

from fsyncstorage import FsyncStorage

from ..often import often
from . import reader
from .serving import Served

CLIENTS = often(4, 8)
#: Of all of them; and of each, between coming and going.
TRANSACTIONS, STAY = often(120, 1_000), often(10, 50)
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


class CachesTestCase(Served):

    maxDiff = None
    #: What each client is (reader.CLIENTS), in turn.
    kinds = 'stock',

    def run_clients(self, transactions, stay):
        """What became of each client, and how many commits there were."""
        storage = Delaying(self.path(), reader_threads=CLIENTS)
        self.addCleanup(storage.close)
        # All caches that are found again can be verified.
        server = self.serve(
            storage, invalidation_queue_size=2 * transactions)
        with contextlib.closing(ZEO.connection(server.addr)) as connection:
            reader.populate(connection)
        before = server.stats['1'].commits
        with contextlib.ExitStack() as stack:
            clients = [
                stack.enter_context(
                    self.client(server, number, transactions, stay))
                for number in range(CLIENTS)]
            ends = self.wait(clients)
        return ends, server.stats['1'].commits - before

    @contextlib.contextmanager
    def client(self, server, number, transactions, stay):
        process = subprocess.Popen(
            [sys.executable, '-m', reader.__name__,
             self.kinds[number % len(self.kinds)], *map(str, server.addr),
             self.directory, str(number), str(transactions // CLIENTS),
             str(stay)],
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

    def check_no_violation(self, transactions, stay):
        ends, commits = self.run_clients(transactions, stay)
        self.assertEqual(ends, [(0, '')] * CLIENTS)
        self.assertGreaterEqual(commits, transactions)


class Caches(CachesTestCase):

    level = 2

    def test_no_violation(self):
        self.check_no_violation(TRANSACTIONS, STAY)


class Long(Caches):

    level = 3

    def test_no_violation(self):
        self.check_no_violation(100_000, 500)


def test_suite():
    return unittest.TestSuite(
        map(unittest.defaultTestLoader.loadTestsFromTestCase,
            (Caches, Long)))
