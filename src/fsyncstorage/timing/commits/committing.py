"""The workload of 2004: transactions that each set one key of an IIBTree.

With several threads each has a connection of its own and, unless the tree is
shared, a tree of its own.  With a shared tree conflicts happen, and a
transaction that met one is tried again until it went through: the time of the
retries counts.
"""

import contextlib
import functools
import itertools
import time

import transaction
import ZODB
from BTrees.IIBTree import IIBTree
from ZODB.POSException import ConflictError

from .. import crew
from .. import latency
from .. import population
from .. import statistics
from ..campaign import Race


def race(**settings):
    return Race('commits', settings, measure, ('txn_per_second',))


def measure(contestant, directory, *, threads, sync_latency, shared, seconds):
    """Time one contestant in an empty directory; the figures of it."""
    conflicts = []
    with latency.slowed(sync_latency) as syncs, \
            database(contestant, directory, threads) as db:
        trees = plant(db, 1 if shared else threads)
        stretches, [used] = crew.threads([
            # No two threads set the same key.
            setter(db, trees[number % len(trees)],
                   itertools.count(number, threads), conflicts, seconds)
            for number in range(threads)], lambda: {
                'cpu_seconds': time.process_time(), 'syncs': len(syncs)})
    # What is used has their processor time in it.
    figures = crew.commits(
        [each._replace(cpu=0.0) for each in stretches], used)
    timed = syncs[len(syncs) - used['syncs']:]
    return {
        **figures,
        'conflicts': len(conflicts),
        'syncs': len(timed),
        'commits_per_sync': (
            figures['transactions'] / len(timed) if timed else None),
        'sync_p50_seconds': (
            statistics.percentile(timed, 50) if timed else None),
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


def setter(db, name, keys, conflicts, seconds=None):
    """A job that commits one transaction a key; a stretch.

    The conflicts that are met are added to a list.
    """

    def job(start):
        manager = transaction.TransactionManager()
        connection = db.open(manager)
        try:
            tree = population.ground(connection)[name]
            len(tree)  # loads it
            start()
            return crew.timed((
                functools.partial(_set_one, manager, tree, key, conflicts)
                for key in keys), seconds)
        finally:
            manager.abort()
            connection.close()

    return job


def _set_one(manager, tree, key, conflicts):
    while True:
        try:
            tree[key] = key
            manager.commit()
            return
        except ConflictError as error:
            manager.abort()
            conflicts.append(error)
