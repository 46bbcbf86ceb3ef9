"""What a durable commit costs: the experiment of 2004, on this machine.

`fsync_2004` has all contestants of `fsync-time commits` and one more of 2004,
by number of threads and by what is added to each sync; `claims` has only those
that the claims are about.  README.rst says how to read them.

Another measurement is how long a `loadBefore` takes while threads commit.  One
more thread loads current objects of the others, one after the other, straight
from the storage (so that no cache answers), with a short pause in between.
Without the pause it would make many loads in the short time between two
commits, and take the processor away from the committers.
"""

import argparse
import functools
import importlib
import itertools
import random
import threading

from rich.text import Text
from ZODB.FileStorage import FileStorage
from ZODB.utils import maxtid

from fsyncstorage.timing import commits
from fsyncstorage.timing.contestants import CONTESTANTS
from fsyncstorage.timing.contestants import Contestant
from fsyncstorage.timing.results import tables
from fsyncstorage.timing.results.wording import added
from fsyncstorage.timing.results.wording import count
from fsyncstorage.timing.results.wording import number
from fsyncstorage.timing.running import crew
from fsyncstorage.timing.running import latency
from fsyncstorage.timing.running.sampling import Race

from . import history
from . import questions
from .campaign import Campaign
from .claims import Claim

#: While loads are timed: threads that commit, and what is added to each sync.
COMMITTERS, READERS_LATENCY = 4, 0.05
KEYS = range(1000)
PAUSE = 0.001

GROUP, STOCK = 'fsync:group-commit', 'filestorage'
NONE, STOCK_WITHOUT = 'fsync:none', 'filestorage:no-fsync'

# The package has an attribute of this name too: the class.
_stock = importlib.import_module('ZODB.FileStorage.FileStorage')


class FileStorageThatSyncsInVote(FileStorage):
    """A second fsync, where the data are written."""

    def tpc_vote(self, transaction):
        with self._lock:
            resolved = super().tpc_vote(transaction)
            _stock.fsync(self._file.fileno())
            return resolved


WITH_TWO_FSYNCS = Contestant(
    'filestorage:vote-fsync', 'stock with a second fsync, in tpc_vote',
    FileStorageThatSyncsInVote)


def contestants():
    """All contestants, those of stock first."""
    stock, without, *policies = CONTESTANTS.values()
    return [stock, without, WITH_TWO_FSYNCS, *policies]


def races(shared, quick):
    seconds = commits.SECONDS[quick]
    return [*commits.races(argparse.Namespace(
        threads=[1, 8, 16] if shared else [1, 16],
        sync_latency=[0.0, 0.001, 0.005], shared=shared, seconds=seconds)),
        beside_race(committers=COMMITTERS, seconds=seconds,
                    sync_latency=READERS_LATENCY)]


def beside_race(**settings):
    return Race(
        'loads', settings, measure_beside,
        ('p50_seconds', 'p99_seconds', 'max_seconds'))


def measure_beside(
        contestant, directory, *, committers, seconds, sync_latency):
    """Time the loads of one contestant; return its figures."""
    done = threading.Event()

    def new_keys():
        keys = itertools.count(len(KEYS))
        while not done.is_set():
            yield next(keys)

    with latency.slowed(sync_latency) as syncs, \
            commits.database(contestant, directory, committers) as db:
        trees = commits.plant(db, committers, KEYS)
        oids = [record.oid for transaction in db.storage.iterator()
                for record in transaction]

        def load():
            db.storage.loadBefore(random.choice(oids), maxtid)

        def read(start):
            start()
            try:
                return crew.timed(itertools.repeat(load), seconds, PAUSE)
            finally:
                done.set()

        stretches, [used] = crew.threads(
            [read, *(commits.setter(db, tree, new_keys(), [], None)
                     for tree in trees)],
            lambda: {'syncs': len(syncs)})
    loads = stretches[0].durations
    return {'loads': len(loads), **crew.times(loads), **used}


def ratio(contestant, baseline, threads, sync_latency, at_least):
    """A contestant commits at least this many times as fast as another."""
    return Claim(
        f'{contestant} against {baseline}, {count(threads, "thread")},'
        f' {added(sync_latency)}',
        'commits', {'threads': threads, 'sync_latency': sync_latency,
                    'shared': False},
        contestant, against=baseline, at_least=at_least)


def load_time(contestant, **limit):
    """The slowest loads stay under, or reach, a limit."""
    return Claim(
        f'{contestant}: p99 of loadBefore while others commit',
        'loads', {}, contestant, 'p99_seconds', **limit)


CLAIMS = [
    ratio(GROUP, STOCK, 1, 0.0, at_least=0.95),
    ratio(GROUP, STOCK, 1, 0.001, at_least=0.95),
    ratio(GROUP, STOCK, 1, 0.005, at_least=0.95),
    ratio(GROUP, STOCK, 16, 0.0, at_least=1.4),
    ratio(GROUP, STOCK, 16, 0.001, at_least=4),
    ratio(GROUP, STOCK, 16, 0.005, at_least=8),
    ratio(NONE, STOCK_WITHOUT, 1, 0.0, at_least=0.97),
    ratio(NONE, STOCK_WITHOUT, 16, 0.0, at_least=0.97),
    load_time(GROUP, under=0.002),
    # Not ours, but the reason for the one above.
    load_time(STOCK, at_least=0.050),
]


def show(document, console):
    questions.show(document, console)
    table = tables.new_table('2004', '1 thread')
    for contestant, per_second in history.COMMITS_2004['per_second'].items():
        table.add_row(contestant, number(per_second))
    tables.show_table(console, 'Transactions a second, then', table)
    console.print(Text(f'{history.COMMITS_2004["source"]}\n', 'dim'))


_campaign = functools.partial(
    Campaign, claims=lambda document: CLAIMS, show=show, command='commits')

CAMPAIGNS = [
    _campaign(
        'fsync_2004', 'what a durable commit costs: the experiment of 2004',
        contestants(), functools.partial(races, True), rounds=9),
    _campaign(
        'claims', 'the same, and no more than the claims are about',
        [CONTESTANTS[name] for name in (STOCK, STOCK_WITHOUT, NONE, GROUP)],
        functools.partial(races, False), rounds=7),
]
