"""The workload of 2004: transactions that each set one key of an IIBTree.

With several threads each has a connection of its own and, unless the tree is
shared, a tree of its own.  With a shared tree conflicts happen, and a
transaction that met one is tried again until it went through: the time of the
retries counts.
"""

import contextlib
import itertools
import time

import transaction
import ZODB
from BTrees.IIBTree import IIBTree
from ZODB.POSException import ConflictError

from .. import latency
from .. import population
from .. import statistics
from ..campaign import Race
from ..crew import Crew


def race(**settings):
    return Race('commits', settings, measure, ('txn_per_second',))


def measure(contestant, directory, *, threads, sync_latency, shared, seconds):
    """Time one contestant in an empty directory; the figures of it."""
    with latency.slowed(sync_latency) as syncs, \
            database(contestant, directory, threads) as db:
        trees = plant(db, 1 if shared else threads)
        crew = Crew([
            # No two threads set the same key.
            setter(db, trees[number % len(trees)], _keys_for(
                seconds, itertools.count(number, threads)))
            for number in range(threads)], at_start=syncs.clear)
        conflicts = crew.run()
    transactions = sum(map(len, conflicts))
    return {
        'transactions': transactions,
        'seconds': crew.seconds,
        'txn_per_second': transactions / crew.seconds,
        'txn_cpu_seconds': crew.cpu_seconds / transactions,
        'conflicts': sum(map(sum, conflicts)),
        'syncs': len(syncs),
        'commits_per_sync': transactions / len(syncs) if syncs else None,
        'sync_p50_seconds': (
            statistics.percentile(syncs, 50) if syncs else None),
    }


@contextlib.contextmanager
def database(contestant, directory, connections):
    with contestant.opened(directory) as storage:
        # Room for all: opening more than the pool holds logs a warning.
        db = ZODB.DB(storage, pool_size=connections + 1)
        try:
            yield db
        finally:
            db.close()


def plant(db, number, keys=()):
    """Make so many trees; their names."""
    trees = {f'tree{n}': IIBTree({key: key for key in keys})
             for n in range(number)}
    with db.transaction() as connection:
        population.ground(connection).update(trees)
    return list(trees)


def _keys_for(seconds, keys):
    """As many as are taken in that time, one at least."""
    end = time.perf_counter() + seconds
    for key in keys:
        yield key
        if time.perf_counter() >= end:
            return


def setter(db, name, keys):
    """A job that commits one transaction a key; the conflicts of each."""

    def job(start):
        manager = transaction.TransactionManager()
        connection = db.open(manager)
        try:
            tree = population.ground(connection)[name]
            len(tree)  # loads it
            start()
            return [_set_one(manager, tree, key) for key in keys]
        finally:
            manager.abort()
            connection.close()

    return job


def _set_one(manager, tree, key):
    conflicts = 0
    while True:
        try:
            tree[key] = key
            manager.commit()
            return conflicts
        except ConflictError:
            manager.abort()
            conflicts += 1
