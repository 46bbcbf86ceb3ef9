"""The workload of 2004: transactions that each set one key of an IIBTree.

Unless told otherwise, that is all.  A transaction can carry more: it then also
stores an object of a given size anew, one that only its thread knows.

With several threads each has a connection of its own and, unless the tree is
shared, a tree of its own.  With a shared tree conflicts happen, and a
transaction that met one is tried again until it went through: the time of the
retries counts.
"""

import contextlib
import itertools
import os
import time

import transaction
import ZODB
from BTrees.IIBTree import IIBTree
from persistent.mapping import PersistentMapping
from ZODB.POSException import ConflictError

from .. import ground
from .. import latency
from .. import statistics
from ..campaign import Race
from ..crew import Crew


def race(**settings):
    """What `measure` takes: so many transactions, or for so many seconds."""
    return Race(
        'commits', settings, measure, ('txn_per_second',),
        written=settings.get('size', 0) * settings.get('transactions', 0))


def measure(contestant, directory, *, threads, sync_latency, shared,
            transactions=None, seconds=None, size=0):
    """Time one contestant in an empty directory; the figures of it."""
    with latency.slowed(sync_latency) as syncs, \
            database(contestant, directory, threads) as db:
        trees = plant(db, 1 if shared else threads)
        cargo = plant_cargo(db, threads, size) if size else [None] * threads
        jobs = [
            setter(db, trees[number % len(trees)],
                   # No two threads set the same key.
                   _keys(number, threads, transactions, seconds),
                   cargo[number])
            for number in range(threads)
        ]
        crew = Crew(jobs, at_start=syncs.clear)
        conflicts = crew.run()
        syncs = list(syncs)
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
    """Make so many trees; their names."""
    return _plant(db, {
        f'tree{n}': IIBTree({key: key for key in keys})
        for n in range(number)})


def plant_cargo(db, number, size):
    """Make so many objects of that size; their names."""
    return _plant(db, {
        # A storage may compress: random data do not get smaller.
        f'cargo{n}': PersistentMapping(data=os.urandom(size))
        for n in range(number)})


def _plant(db, objects):
    with db.transaction() as connection:
        ground.of(connection).update(objects)
    return list(objects)


def _keys(first, step, number, seconds):
    """Up to that number; or for so long, but one at least."""
    if number:
        return range(first, number, step)
    return _keys_for(seconds, itertools.count(first, step))


def _keys_for(seconds, keys):
    end = time.perf_counter() + seconds
    for key in keys:
        yield key
        if time.perf_counter() >= end:
            return


def setter(db, name, keys, cargo=None):
    """A job that commits one transaction a key; the conflicts of each."""

    def job(start):
        manager = transaction.TransactionManager()
        connection = db.open(manager)
        try:
            objects = ground.of(connection)
            tree, carried = objects[name], objects.get(cargo)
            len(tree)  # loads it
            start()
            return [_set_one(manager, tree, key, carried) for key in keys]
        finally:
            manager.abort()
            connection.close()

    return job


def _set_one(manager, tree, key, cargo=None):
    conflicts = 0
    while True:
        try:
            tree[key] = key
            if cargo is not None:
                cargo['data'] = cargo['data']
            manager.commit()
            return conflicts
        except ConflictError:
            manager.abort()
            conflicts += 1


def stats_of(storage):
    """What the storage itself counted; stock counts nothing."""
    stats = getattr(storage, 'stats', None)
    return stats() if stats is not None else None
