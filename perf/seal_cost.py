"""What a seal costs: the CPU time of a commit, with checksums and without.

Threads set one key of an IIBTree in each transaction, as in fsync_2004.py,
under durability none: no sync hides the work.  The CPU time is that of the
whole process, from the moment that all threads are ready until the last one is
done, by transaction.
"""

import contextlib
import functools
import os
import time

from fsyncstorage import FsyncStorage
from fsyncstorage.timing.campaign import Race
from fsyncstorage.timing.commits import committing
from fsyncstorage.timing.contestants import Contestant
from fsyncstorage.timing.crew import Crew
from fsyncstorage.timing.wording import count

from .campaign import Campaign
from .claims import Claim

WITHOUT, WITH = 'checksums off', 'checksums on'
WORKLOAD = 'CPU time of a commit'

TRANSACTIONS, QUICK_TRANSACTIONS = 20000, 2000
THREADS = 1, 16


def contestant(name, checksums):
    return Contestant(name, f'FsyncStorage, {name}', functools.partial(
        opened, checksums=checksums))


@contextlib.contextmanager
def opened(directory, checksums):
    yield FsyncStorage(os.path.join(directory, 'Data.fs'), create=True,
                       durability='none', checksums=checksums)


CONTESTANTS = [contestant(WITHOUT, False), contestant(WITH, True)]

CLAIMS = [
    Claim(f'{WORKLOAD}, {count(threads, "thread")}, against {WITHOUT}',
          WORKLOAD, {'threads': threads}, WITH, 'cpu_seconds',
          against=WITHOUT, under=1.05)
    for threads in THREADS
]


def races(quick, sync_seconds):
    return [
        Race(WORKLOAD, {
            'threads': threads,
            'transactions': QUICK_TRANSACTIONS if quick else TRANSACTIONS,
            'sync_latency': 0.0,
        }, measure, ('cpu_seconds', 'seconds'))
        for threads in THREADS
    ]


def measure(contestant, directory, *, threads, transactions, sync_latency):
    began = []
    with committing.database(contestant, directory, threads) as db:
        trees = committing.plant(db, threads)
        crew = Crew(
            [committing.setter(db, tree, range(transactions // threads))
             for tree in trees],
            at_start=lambda: began.append(time.process_time()))
        crew.run()
        cpu = time.process_time() - began[0]
        return {'cpu_seconds': cpu / transactions,
                'seconds': crew.seconds / transactions}


CAMPAIGNS = [Campaign(
    'seal_cost', 'the processor time of a commit, with checksums and without',
    CONTESTANTS, races, rounds=7, claims=lambda document: CLAIMS)]
