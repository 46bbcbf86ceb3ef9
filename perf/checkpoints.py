"""What checksums and index checkpoints cost a commit.

`seal_cost` has the CPU time of a commit, with checksums and without: threads
set one key of an IIBTree in each transaction, as in fsync_2004.py, under
durability none, so that no sync hides the work.  This is the CPU time of the
whole process, from the moment when all threads are ready until the last one is
done, divided by the number of transactions.

`checkpoints` has the latency of commits, with checkpoints and without.
Threads commit to a database that has 100,000 objects, so that an index is
worth writing, under group-commit: each transaction stores one object of 10,000
bytes, so that an index is due often.  One contestant never writes one; one has
the default of `index-checkpoint`; and one writes an index as often as the
storage ever does.
"""

import contextlib
import functools
import itertools
import time

import transaction
from persistent.mapping import PersistentMapping

from fsyncstorage import FsyncStorage
from fsyncstorage.commit.policies import DEFAULT_INDEX_CHECKPOINT
from fsyncstorage.timing.commits import committing
from fsyncstorage.timing.options.contestants import Contestant
from fsyncstorage.timing.results.wording import count
from fsyncstorage.timing.running import crew
from fsyncstorage.timing.running.campaign import Race

from .campaign import Campaign
from .claims import Claim
from .filling import fill

#: In a full run, and in a quick run.
OBJECTS, SECONDS, SEAL_TRANSACTIONS = (100000, 10000), (5, 1), (20000, 2000)

FIRST_OBJECT = 1 << 20  # far from those of the database
THREADS = 1, 4
BYTES = 10000  # of a commit

SEAL = 'CPU time of a commit'
SEAL_THREADS = 1, 16


def contestants(option, values, **options):
    return [
        Contestant(name, f'FsyncStorage, {option.replace("_", "-")} {value}',
                   functools.partial(
                       FsyncStorage, **{option: value}, **options))
        for name, value in values.items()]


def races(quick):
    return [
        Race('commits', {
            'threads': threads,
            'objects': OBJECTS[quick],
            'seconds': SECONDS[quick],
            'sync_latency': 0.0,
        }, measure, ('p50_seconds', 'p99_seconds', 'max_seconds'))
        for threads in THREADS
    ]


def measure(contestant, directory, *, threads, objects, seconds, sync_latency):
    with committing.database(contestant, directory, threads) as db:
        fill(db.storage, FIRST_OBJECT, objects)
        written = db.storage._checkpoints.written
        with db.transaction() as connection:
            for number in range(threads):
                connection.root()[number] = PersistentMapping()
        stretches = crew.threads([
            committer(db, number, seconds) for number in range(threads)
        ]).results
        latencies = crew.durations(stretches)
        return {
            **crew.times(latencies),
            'commits': len(latencies),
            'checkpoints': db.storage._checkpoints.written - written,
        }


def committer(db, number, seconds):
    """A job that returns a stretch of commits."""

    def commits(manager, mine):
        for number in itertools.count():
            mine['data'] = str(number).ljust(BYTES)
            yield manager.commit

    def job(start):
        manager = transaction.TransactionManager()
        with contextlib.closing(db.open(manager)) as connection:
            mine = connection.root()[number]
            start()
            return crew.timed(commits(manager, mine), seconds)

    return job


def seal_races(quick):
    return [
        Race(SEAL, {
            'threads': threads,
            'transactions': SEAL_TRANSACTIONS[quick],
            'sync_latency': 0.0,
        }, measure_seal, ('cpu_seconds', 'seconds'))
        for threads in SEAL_THREADS
    ]


def measure_seal(contestant, directory, *, threads, transactions,
                 sync_latency):
    with committing.database(contestant, directory, threads) as db:
        trees = committing.plant(db, threads)
        stretches, [used] = crew.threads(
            [committing.setter(
                db, tree, range(transactions // threads), [], None)
             for tree in trees],
            lambda: {'cpu_seconds': time.process_time()})
        return {'cpu_seconds': used['cpu_seconds'] / transactions,
                'seconds': crew.seconds(stretches) / transactions}


def claims(document):
    baseline, *others = document['contestants']
    for race in document['races']:
        threads = race['settings']['threads']
        of_seal = race['workload'] == SEAL
        for name in others:
            yield Claim(
                f'{SEAL if of_seal else "p99 of a commit"}, {name},'
                f' {count(threads, "thread")}, against {baseline}',
                race['workload'], {'threads': threads}, name,
                'cpu_seconds' if of_seal else 'p99_seconds',
                against=baseline, under=1.05 if of_seal else 1.2)


CAMPAIGNS = [
    Campaign(
        'checkpoints', 'the latency of a commit, with checkpoints of an index',
        contestants('index_checkpoint', {
            'no checkpoints': '1000GB',
            'default': DEFAULT_INDEX_CHECKPOINT,
            'all the time': '16KB'}),
        races, rounds=7, claims=claims),
    Campaign(
        'seal_cost', 'the processor time of a commit, with checksums or not',
        contestants('checksums', {
            'checksums off': False, 'checksums on': True}, durability='none'),
        seal_races, rounds=7, claims=claims),
]
