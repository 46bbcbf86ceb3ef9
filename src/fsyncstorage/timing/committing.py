"""The workload of 2004: transactions that each set one key of an IIBTree.

With several threads each has a connection of its own and, unless the tree is
shared, a tree of its own.  With a shared tree conflicts happen, and a
transaction that met one is tried again until it went through: the time of the
retries counts.
"""

import contextlib

import transaction
import ZODB
from BTrees.IIBTree import IIBTree
from ZODB.POSException import ConflictError

from . import latency
from . import statistics
from .campaign import Race
from .crew import Crew


def race(**settings):
    return Race('commits', settings, measure, ('txn_per_second',))


def measure(contestant, directory, *, threads, transactions, sync_latency,
            shared):
    """Time one contestant in an empty directory; the figures of it."""
    with latency.slowed(sync_latency) as syncs, \
            database(contestant, directory, threads) as db:
        trees = plant(db, 1 if shared else threads)
        jobs = [
            setter(db, trees[number % len(trees)],
                   # No two threads set the same key.
                   range(number, transactions, threads))
            for number in range(threads)
        ]
        crew = Crew(jobs, at_start=syncs.clear)
        conflicts = sum(crew.run())
        syncs = list(syncs)
        return {
            'transactions': transactions,
            'seconds': crew.seconds,
            'txn_per_second': transactions / crew.seconds,
            'conflicts': conflicts,
            'syncs': len(syncs),
            'commits_per_sync': transactions / len(syncs) if syncs else None,
            'sync_p50_seconds': (
                statistics.percentile(syncs, 50) if syncs else None),
            'storage_stats': stats_of(db.storage),
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
    """Make so many trees, in one transaction; their names in the root."""
    names = [f'tree{n}' for n in range(number)]
    with db.transaction() as connection:
        for name in names:
            connection.root()[name] = IIBTree({key: key for key in keys})
    return names


def setter(db, name, keys):
    """A job that commits one transaction a key; returns its conflicts."""

    def job(start):
        manager = transaction.TransactionManager()
        connection = db.open(manager)
        try:
            tree = connection.root()[name]
            len(tree)  # loads it
            start()
            return sum(_set_one(manager, tree, key) for key in keys)
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


def stats_of(storage):
    """What the storage itself counted; stock counts nothing."""
    stats = getattr(storage, 'stats', None)
    return stats() if stats is not None else None
