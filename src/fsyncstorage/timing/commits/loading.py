"""How long a `loadBefore` takes while other threads commit.

Some threads commit as fast as they can.  One more loads current objects of
theirs, one after the other, straight from the storage (so that no cache
answers), with a short pause in between.  Each load is timed by itself.  The
pause keeps the reader from slipping many loads into the instant between two
commits, and from taking the processor away from the committers.
"""

import itertools
import random
import threading

from ZODB.utils import maxtid

from .. import crew
from .. import latency
from ..campaign import Race
from .committing import database
from .committing import plant
from .committing import setter

COMMITTERS = 4
KEYS = range(1000)
PAUSE = 0.001


def race(**settings):
    return Race(
        'loads', settings, measure,
        ('p50_seconds', 'p99_seconds', 'max_seconds'))


def measure(contestant, directory, *, committers, seconds, sync_latency):
    """Time the loads of one contestant; the figures of it."""
    with latency.slowed(sync_latency) as syncs, \
            database(contestant, directory, committers) as db:
        trees = plant(db, committers, KEYS)
        done = threading.Event()
        jobs = [setter(db, tree, _new_keys_until(done), []) for tree in trees]
        jobs.append(_reader(db.storage, seconds, done))
        stretches, [used] = crew.threads(jobs, lambda: {'syncs': len(syncs)})
        loads = stretches[-1].durations
        return {'loads': len(loads), **crew.times(loads), **used}


def _new_keys_until(done):
    keys = itertools.count(len(KEYS))
    while not done.is_set():
        yield next(keys)


def _reader(storage, seconds, done):
    oids = [record.oid
            for transaction in storage.iterator()
            for record in transaction]

    def load():
        storage.loadBefore(random.choice(oids), maxtid)

    def job(start):
        start()
        try:
            return crew.timed(
                crew.paced(itertools.repeat(load), PAUSE), seconds)
        finally:
            done.set()

    return job
