"""What index checkpoints do to commits: their latency, with and without.

Threads commit to a database that has 100,000 objects, so that an index is
worth writing, under group-commit: each transaction stores one object of 10,000
bytes anew, so that an index is due often.  One contestant never writes one;
one has the default of `index-checkpoint`; and one writes an index as often as
the storage ever does.  Each commit is timed by itself.
"""

import contextlib
import functools
import os
import time

import transaction
from persistent.mapping import PersistentMapping

from fsyncstorage import FsyncStorage
from fsyncstorage.durability import DEFAULT_INDEX_CHECKPOINT
from fsyncstorage.timing import statistics
from fsyncstorage.timing.campaign import Race
from fsyncstorage.timing.commits import committing
from fsyncstorage.timing.contestants import Contestant
from fsyncstorage.timing.crew import Crew
from fsyncstorage.timing.wording import count

from .campaign import Campaign
from .claims import Claim
from .filling import fill

OBJECTS, QUICK_OBJECTS = 100000, 10000
SECONDS, QUICK_SECONDS = 5, 1
FIRST_OBJECT = 1 << 20  # far from those of the database
THREADS = 1, 4

BYTES = 10000  # of a commit

NONE, DEFAULT, ALWAYS = 'no checkpoints', 'default', 'all the time'

EVERY = {
    NONE: '1000GB',
    DEFAULT: DEFAULT_INDEX_CHECKPOINT,
    ALWAYS: '16KB',
}


@contextlib.contextmanager
def opened(directory, every):
    yield FsyncStorage(os.path.join(directory, 'Data.fs'), create=True,
                       index_checkpoint=every)


CONTESTANTS = [
    Contestant(name, f'FsyncStorage, index-checkpoint {every}',
               functools.partial(opened, every=every))
    for name, every in EVERY.items()
]

CLAIMS = [
    Claim(
        f'p99 of a commit, checkpoints {name}, {count(threads, "thread")},'
        f' against {NONE}', 'commits', {'threads': threads}, name,
        'p99_seconds', against=NONE, under=1.2)
    for threads in THREADS for name in (DEFAULT, ALWAYS)
]


def races(quick, sync_seconds):
    return [
        Race('commits', {
            'threads': threads,
            'objects': QUICK_OBJECTS if quick else OBJECTS,
            'seconds': QUICK_SECONDS if quick else SECONDS,
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
        crew = Crew([committer(db, number, seconds)
                     for number in range(threads)])
        latencies = sum(crew.run(), [])
        return {
            'p50_seconds': statistics.percentile(latencies, 50),
            'p99_seconds': statistics.percentile(latencies, 99),
            'max_seconds': max(latencies),
            'commits': len(latencies),
            'checkpoints': db.storage._checkpoints.written - written,
        }


def committer(db, number, seconds):
    """A job that returns how long each of its commits took."""

    def job(start):
        manager = transaction.TransactionManager()
        with contextlib.closing(db.open(manager)) as connection:
            mine = connection.root()[number]
            start()
            latencies = []
            end = time.perf_counter() + seconds
            while (began := time.perf_counter()) < end:
                mine['data'] = str(len(latencies)).ljust(BYTES)
                manager.commit()
                latencies.append(time.perf_counter() - began)
            return latencies

    return job


CAMPAIGNS = [Campaign(
    'checkpoints', 'the latency of a commit, with checkpoints of the index',
    CONTESTANTS, races, rounds=7, claims=lambda document: CLAIMS)]
