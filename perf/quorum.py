"""What a commit costs that a majority of an etcd cluster has, too.

Threads of one process commit transactions that each change one object, of 300
bytes or of 100 KB, under durability `quorum`, with a standby in a process of
its own; under `group-commit`, which is the same on one disk; and with
RelStorage over PostgreSQL with a synchronous standby, which promises as much.
All members, nodes and databases are on one machine, and on one disk.

With one thread, records of the same size are also appended to the log, and
nothing else is done: that is the time of etcd, asked by our client.  It is
compared with the time of a batch of a node that nobody follows, from its offer
until the log and the disk have it.

The lag of the standby is the time from the moment at which the primary has
acknowledged a batch until the standby has it on its disk; it is below zero
where the standby was faster.  A standby looks four times a second.
"""

import contextlib
import dataclasses
import os
import shutil
import threading
import time

import persistent.mapping
import transaction
import ZODB

from fsyncstorage import FsyncStorage
from fsyncstorage.quorum.beginning.bootstrap import begin
from fsyncstorage.quorum.etcd.engine import EtcdLog
from fsyncstorage.quorum.etcd.settings import Settings
from fsyncstorage.quorum.etcd.settings import address
from fsyncstorage.quorum.following.rejoin import rejoin
from fsyncstorage.quorum.following.standby import Standby
from fsyncstorage.quorum.history.record import Place
from fsyncstorage.quorum.leading.loglimit import Trims
from fsyncstorage.quorum.leading.replicator import Replicator
from fsyncstorage.quorum.leading.writer import Writer
from fsyncstorage.timing.results.wording import count
from fsyncstorage.timing.running import crew
from fsyncstorage.timing.running import population
from fsyncstorage.timing.running import supervisor
from fsyncstorage.timing.running.sampling import Race
from tests.quorum import etcdcluster

from .campaign import Campaign
from .claims import Claim
from .peers import relstorages

SECONDS = 5.0, 0.5  # of a sample; and in a quick run
THREADS = 1, 16, 100
SMALL, LARGE = SIZES = 300, 100_000

PRIMARY = b'primary'.ljust(16, b'\0')
LIMIT = 512 << 20
#: Seconds until the standby has all.
PATIENCE = 30.0


# Contestants

@dataclasses.dataclass(frozen=True)
class Contestant:
    """Subclasses have `running`, which yields a storage and a function that
    tells more figures, once it is closed."""

    name: str
    summary: str
    can_be_slowed = alone = False

    def missing(self):
        return None

    def measure(self, directory, threads, size, seconds):
        with self.running(directory) as (storage, more):
            with contextlib.closing(
                    ZODB.DB(storage, pool_size=threads + 1)) as db:
                stretches, [usage] = commit(db, threads, size, seconds)
            return {**crew.commits(stretches, usage), **more()}


class OneDisk(Contestant):

    @contextlib.contextmanager
    def running(self, directory):
        yield FsyncStorage(
            os.path.join(directory, 'Data.fs'),
            durability='group-commit'), dict


class Peer(Contestant):

    def missing(self):
        return relstorages.REPLICATED.missing()

    @contextlib.contextmanager
    def running(self, directory):
        with relstorages.REPLICATED.running(
                directory, socket=True) as site:
            yield site.open(), dict


class OfEtcd(Contestant):

    def missing(self):
        return etcdcluster.WITHOUT if etcdcluster.program() is None else None

    @contextlib.contextmanager
    def log(self, directory):
        """A function that opens the log, once for each that asks it."""
        cluster = etcdcluster.EtcdCluster(directory)
        try:
            cluster.start()
            settings = Settings(
                [address(each) for each in cluster.addresses], 'perf')
            yield lambda: EtcdLog(settings)
        finally:
            cluster.close()


class Appends(OfEtcd):
    """No storage: records of this size, one behind the other."""

    def measure(self, directory, threads, size, seconds):
        with self.log(directory) as opened, contextlib.closing(
                opened()) as log:
            log.create(os.urandom(16))
            head = log.ends().head

            def append():
                nonlocal head
                place = Place(head.sequence + 1, os.urandom(16))
                log.ask(head, place, os.urandom(size))
                log.answered()
                head = place

            def records():
                while True:
                    yield append

            append()
            stretch = crew.timed(records(), seconds)
        return crew.commits([stretch], {})


class Alone(OfEtcd):
    """No node follows, which here uses the disk of the node that writes."""

    @contextlib.contextmanager
    def running(self, directory):
        path = os.path.join(directory, 'Data.fs')
        with self.log(directory) as opened:
            supervisor.run(_begin, path, opened)
            storage, replica = leading(path, opened())
            yield storage, lambda: batches(replica)


class Quorum(OfEtcd):

    @contextlib.contextmanager
    def running(self, directory):
        path, other = (os.path.join(directory, name, 'Data.fs')
                       for name in ('primary', 'standby'))
        with self.log(directory) as opened:
            os.mkdir(os.path.dirname(path))
            supervisor.run(_begin, path, opened)
            shutil.copytree(os.path.dirname(path), os.path.dirname(other))
            with following(other, opened) as told:
                storage, replica = leading(path, opened())
                yield storage, lambda: {
                    **batches(replica),
                    **lags(replica.acknowledged,
                           told(max(replica.acknowledged)))}


CONTESTANTS = [
    OneDisk('fsync:group-commit', 'FsyncStorage, one disk'),
    Quorum('fsync:quorum', 'FsyncStorage, three members of etcd, a standby'),
    Peer(relstorages.REPLICATED.name, relstorages.REPLICATED.summary),
    Alone('fsync:quorum:alone', 'the same, without the standby'),
    Appends('etcd', 'appends to the log alone'),
]
ONE_DISK, QUORUM, PEER, ALONE, ETCD = (each.name for each in CONTESTANTS)
#: Measured with one thread only.
OF_A_BATCH = ALONE, ETCD


# Two nodes

class Timed(Replicator):

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        #: When the records of batches were acknowledged, by their numbers.
        self.acknowledged = {}
        self.durations = []

    def sync(self, *args):
        begun = time.perf_counter()
        super().sync(*args)
        ended = time.perf_counter()
        self.durations.append(ended - begun)
        self.acknowledged[self._writer.state.place.sequence] = ended


def leading(path, log):
    """The storage of the node that writes, and its replica."""
    follower = rejoin(path, log, threading.Event())
    writer = Writer(log, follower.state)
    writer.lead(PRIMARY)
    while not writer.advance():
        pass
    replica = Timed(log, writer, Trims(PRIMARY, LIMIT))
    return FsyncStorage(
        path, replica=replica, opened=follower.hand_over(),
        durability='quorum'), replica


def _begin(path, opened):
    """In a process of its own: one that has used gRPC must not be forked."""
    with contextlib.closing(opened()) as log:
        begin(path, log)


@contextlib.contextmanager
def following(path, opened):
    """A process that follows.  A function: when it had synced each record, by
    the last number of each sync, once it has this one."""
    def told(last):
        pipe.send(last)
        found = pipe.recv()
        if isinstance(found, str):
            raise ChildProcessError(f'the standby failed: {found}')
        return found

    with supervisor.child(_follow, path, opened) as (_, pipe):
        yield told


def _follow(pipe, path, opened):
    follower = rejoin(path, opened(), threading.Event())
    synced, real = [], follower.sync

    def sync():
        real()
        number = follower.synced.place.sequence
        if not synced or synced[-1][0] < number:
            synced.append((number, time.perf_counter()))

    follower.sync = sync
    standby = Standby(follower, 10_000)
    standby.start()
    last = pipe.recv()
    deadline = time.monotonic() + PATIENCE
    while not synced or synced[-1][0] < last:
        if time.monotonic() > deadline:
            pipe.send(standby.ended or standby.trouble or 'it is late')
            return
        time.sleep(0.01)
    standby.close()
    pipe.send(synced)


def batches(replica):
    return crew.percentiles(replica.durations, 'batch_')


def lags(acknowledged, synced):
    """Of each batch, behind the first one."""
    found, at = [], 0
    for number, then in sorted(acknowledged.items())[1:]:
        while synced[at][0] < number:
            at += 1
        found.append(synced[at][1] - then)
    return crew.percentiles(found, 'lag_')


# The work

def commit(db, threads, size, seconds):
    """Each thread has an object of its own."""
    with db.transaction() as connection:
        population.ground(connection).update(
            {number: persistent.mapping.PersistentMapping()
             for number in range(threads)})
    return crew.threads([
        committer(db, number, size, seconds) for number in range(threads)],
        lambda: {'cpu_seconds': time.process_time()})


@crew.job
def committer(db, number, size, seconds, start):
    """A job that returns a stretch."""
    manager = transaction.TransactionManager()
    connection = db.open(manager)
    # What compresses nowhere, and is not made while it is timed.
    contents = [os.urandom(size) for _ in range(2)]
    try:
        changed = population.ground(connection)[number]

        def change():
            changed['content'] = contents[len(done) % 2]
            done.append(None)
            manager.commit()

        def changes():
            while True:
                yield change

        done = []
        change()
        start()
        stretch = crew.timed(changes(), seconds)
        return stretch._replace(cpu=0.0)  # the process has that of all
    finally:
        manager.abort()
        connection.close()


def measure(contestant, directory, **settings):
    return contestant.measure(directory, **settings)


def races(quick):
    return [Race(
        'commits', {'threads': threads, 'size': size,
                    'seconds': SECONDS[quick]},
        measure, ('txn_per_second', 'p50_seconds', 'p99_seconds',
                  'batch_p50_seconds', 'lag_p50_seconds', 'lag_p99_seconds'),
        suits=lambda contestant, threads=threads: (
            threads == 1 or contestant.name not in OF_A_BATCH))
        for threads in THREADS for size in (SIZES[:1] if quick else SIZES)]


def claims(document):
    for size in sorted({
            race['settings']['size'] for race in document['races']}):
        yield Claim(
            f'a commit of {size} bytes, 1 thread, to an append of as many',
            'commits', {'threads': 1, 'size': size}, QUORUM, 'p50_seconds',
            against=ETCD, under=2.0)
        if ALONE in document['contestants']:
            yield Claim(
                f'a batch of {size} bytes, 1 thread, no standby, to an append'
                ' of as many and half a millisecond',
                'commits', {'threads': 1, 'size': size}, ALONE,
                'batch_p50_seconds', against=ETCD,
                against_figure='p50_seconds', plus=0.5e-3, under=1.0)
        for threads in THREADS if PEER in document['contestants'] else ():
            yield Claim(
                f'commits a second of {size} bytes, {count(threads, "thread")}'
                f', to {PEER}', 'commits', {'threads': threads, 'size': size},
                QUORUM, against=PEER, at_least=1.0)
        yield Claim(
            f'p99 of the lag of the standby, {size} bytes, 16 threads',
            'commits', {'threads': 16, 'size': size}, QUORUM,
            'lag_p99_seconds', under=0.3)


def added(contestants):
    yield from relstorages.versions(
        relstorages.REPLICATED for each in contestants if each.name == PEER)
    yield ('Members, nodes and databases were on one machine, and on one disk.'
           ' PostgreSQL had synchronous_commit on: its standby has a commit on'
           ' its disk when that returns.')


CAMPAIGNS = [Campaign(
    'quorum', 'commits that a majority of an etcd cluster has',
    CONTESTANTS, races, rounds=5, claims=claims, added=added)]
