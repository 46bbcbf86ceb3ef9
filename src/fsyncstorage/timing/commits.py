"""The command `fsync-time commits`: what a durable commit costs.

It repeats the experiment of Tim Peters of 2004, on stock FileStorage and on
each policy of FsyncStorage, by number of threads and by what is added to each
sync: transactions that each set one key of an IIBTree.  Each thread has a
connection of its own and, unless the tree is shared, a tree of its own.  With
a shared tree there are conflicts, and a transaction that met one is tried
again until it succeeds: the time of the retries counts.
"""

import contextlib
import functools
import itertools
import time

import transaction
import ZODB
from BTrees.IIBTree import IIBTree
from ZODB.POSException import ConflictError

from . import arguments
from .contestants import CONTESTANTS
from .running import crew
from .running import latency
from .running import population
from .running.sampling import Race

SECONDS = arguments.Default(2.0, 0.5)

DESCRIPTION = """\
Measure what a durable commit costs on this disk.

Threads commit transactions that each set one key of an IIBTree, as fast as
they can, as in the experiment that Tim Peters posted to zodb-dev in 2004. Each
contestant is measured in turn, round by round, each time in a new process on
an empty directory. The table shows commits a second, median and range of the
rounds, and how many times the baseline that is, with an interval; and what a
commit takes of the processors.
"""


def races(options):
    return [
        race(threads=threads, seconds=options.seconds,
             sync_latency=sync_latency, shared=shared)
        for shared in ([False, True] if options.shared else [False])
        for sync_latency in options.sync_latency
        for threads in options.threads
        # A single thread has no other thread to share its tree with.
        if threads > 1 or not shared
    ]


add_to = arguments.Command(
    'commits', 'what a durable commit costs, by policy and number of threads',
    DESCRIPTION, CONTESTANTS,
    'filestorage mine=etc/storage.conf --sync-latency 0,1ms', races, {
        '--threads': dict(
            type=arguments.several(arguments.positive), default=[1, 8, 16],
            metavar='N,...',
            help='how many threads commit at a time (default: 1,8,16)'),
        '--seconds': dict(
            type=arguments.seconds, default=SECONDS, metavar='TIME',
            help='how long a sample lasts (default: %(default)s)'),
        '--shared': dict(
            action='store_true',
            help='also measure with one tree that all threads share, where'
                 ' conflicts happen and retries count'),
    }).add_to


def race(**settings):
    return Race('commits', settings, measure, ('txn_per_second',))


def measure(contestant, directory, *, threads, sync_latency, shared, seconds):
    """Time one contestant in an empty directory; return its figures."""
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
    # `used` has the processor time of all threads.
    figures = crew.commits(
        [each._replace(cpu=0.0) for each in stretches], used)
    return {
        **figures,
        'conflicts': len(conflicts),
        'syncs': used['syncs'],
        'commits_per_sync': (
            figures['transactions'] / used['syncs'] if used['syncs']
            else None),
    }


@contextlib.contextmanager
def database(contestant, directory, connections):
    # Room for all: opening more than the pool holds logs a warning.
    with contestant.opened(directory) as storage, contextlib.closing(
            ZODB.DB(storage, pool_size=connections + 1)) as db:
        yield db


def plant(db, number, keys=()):
    """Make this number of trees with these keys; return their names."""
    trees = {f'tree{n}': IIBTree({key: key for key in keys})
             for n in range(number)}
    with db.transaction() as connection:
        population.ground(connection).update(trees)
    return list(trees)


@crew.job
def setter(db, name, keys, conflicts, seconds, start):
    """A job that commits one transaction a key, and returns a stretch.

    It adds each conflict to the list.
    """
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


def _set_one(manager, tree, key, conflicts):
    while True:
        try:
            tree[key] = key
            manager.commit()
            return
        except ConflictError as error:
            manager.abort()
            conflicts.append(error)
