"""The claims about clients that read the server's data file themselves.

`zeo_local` has reads of objects, 334 in a transaction, over unix sockets: by
clients that read locally, by clients that ask the server, and by RelStorage
over SQLite where it is installed, which has no server either.

`zeo_mixed` has commits while others read in bursts: one client commits without
a pause, and each of four others reads, every 100 ms, 334 objects that it has
not read before.  Bursts for which no time is left are not read.

`blobs_local` has cold reads of blobs: of small ones; how long it takes until
the first byte of a large one; and how much of the large one the blob cache has
then.
"""

import contextlib
import dataclasses
import functools
import os
import time

from fsyncstorage.timing.blobs import work
from fsyncstorage.timing.results.wording import count
from fsyncstorage.timing.results.wording import size as put
from fsyncstorage.timing.running import crew
from fsyncstorage.timing.running import loops
from fsyncstorage.timing.running import population
from fsyncstorage.timing.running.campaign import Race
from fsyncstorage.timing.servers import zeosites
from fsyncstorage.timing.zeo import reading
from fsyncstorage.timing.zeo import writing

from . import table2009
from .campaign import Campaign
from .claims import Claim
from .peers import relstorages
from .zeo_client import NOISE

STOCK, OURS, LOCAL = 'zeo', 'fsync-client', 'fsync-client:local'
SQLITE = relstorages.SQLITE.name

#: In a full run, and in a quick run.
CLIENTS = (1, 2, 4, 8, 16), (1, 4)
SECONDS = 10.0, 1.0
LARGE = 500 << 20, 5 << 20

SMALL = 5 << 10
MANY = 334      # objects in a transaction
READERS = 4     # beside commits
EVERY = 0.1     # seconds: a burst


def contestants(*names, **changed):
    """Those of these that are possible here: see `obstacle`."""
    return [dataclasses.replace(zeosites.CONTESTANTS[name], **changed)
            for name in names if name in zeosites.CONTESTANTS]


def obstacle(directory):
    if LOCAL not in zeosites.CONTESTANTS:
        return 'local reads need a 64-bit Linux'
    return None


def place(**settings):
    return {'sync_latency': 0.0, 'loop': loops.installed()[-1], **settings}


def races(quick):
    return [
        dataclasses.replace(race, compared=(
            *race.compared,
            *(f'{how}_cpu_seconds' for how in reading.ONE_BY_ONE)))
        for clients in CLIENTS[quick] for access in reading.ACCESSES
        for race in [reading.race(
            **place(clients=clients, objects=MANY, access=access,
                    socket=True))]]


def mixed_races(quick):
    return [Race(
        'mixed',
        place(clients=READERS, objects=MANY, every=EVERY,
              seconds=SECONDS[quick], socket=True), measure_mixed,
        ('txn_per_second', 'p50_seconds', 'p99_seconds', 'asked', 'read'))]


def blob_races(quick):
    settings = place(clients=1, socket=False)
    return [
        work.read_race(
            size=SMALL, requests=work.QUICK_REQUESTS if quick
            else work.REQUESTS, volume=work.VOLUME, **settings),
        Race('blob-first-byte', {**settings, 'size': LARGE[quick]},
             measure_first_byte,
             ('first_byte_seconds', 'cached_bytes'),
             written=3 * work.LEAST_REQUESTS * LARGE[quick])]


def measure_mixed(contestant, directory, *, clients, objects, every, seconds,
                  **site_settings):
    """Time the commits of a client while others read in bursts."""
    bursts = round(seconds / every)
    with contestant.running(directory, **site_settings) as site:
        oids = population.plant(site, population.small(
            read=bursts * objects, written=1))['read']
        (commits, *stretches), (usage, *_) = crew.processes(site, [
            writing.writer(site, 'written', seconds),
            *[reader(site, oids, objects, every, seconds)] * clients])
    return {
        **crew.commits([commits], usage),
        'asked': clients * bursts,
        'read': sum(  # the last burst of a client may have been too late
            len(each.durations) - (each.ended > each.began + seconds)
            for each in stretches),
        **crew.percentiles(crew.durations(stretches), 'burst_')}


@crew.job
def reader(site, oids, objects, every, seconds, start):
    """A job that returns a stretch; the first burst that is late ends it."""
    with crew.connected(site) as (manager, connection):
        start()
        cpu = time.process_time()
        began = ended = time.perf_counter()
        durations = []
        for first in range(0, len(oids), objects):
            due = began + first // objects * every
            time.sleep(max(0, due - time.perf_counter()))
            begin = time.perf_counter()
            manager.begin()
            for oid in oids[first:first + objects]:
                population.activate(connection.get(oid))
            ended = time.perf_counter()
            durations.append(ended - begin)
            if ended > began + seconds:
                break
        return crew.Stretch(
            began, ended, durations, time.process_time() - cpu)


def measure_first_byte(contestant, directory, *, clients, size,
                       **site_settings):
    """Time a client until it has the first byte of large blobs."""
    with contestant.running(directory, **site_settings) as site:
        work.plant(site, work.LEAST_REQUESTS, size)
        before = blob_bytes(directory)
        [stretch], _ = crew.processes(site, [first_bytes(site)])
        durations = sorted(stretch.durations)
        return {'first_byte_seconds': durations[len(durations) // 2],
                'cached_bytes': blob_bytes(directory) - before}


@crew.job
def first_bytes(site, start):
    """A job that returns a stretch."""

    def read(blob):
        manager.begin()
        with blob.open() as file:
            file.read(1)

    with crew.connected(site) as (manager, connection):
        small, *large = population.ghosts(connection, 'blobs')
        work.read_file(small)
        start()
        return crew.timed([functools.partial(read, blob) for blob in large])


def blob_bytes(directory):
    """The total size of the files of all blobs below a directory."""
    total = 0
    for place, _, names in os.walk(directory):
        for name in names:
            if name.endswith('.blob'):
                with contextlib.suppress(FileNotFoundError):
                    total += os.path.getsize(os.path.join(place, name))
    return total


class BytesClaim(Claim):

    def put(self, value):
        return put(round(value))


def of_reads(words, clients, access, figure, **options):
    return Claim(
        f'{words}, {access}, {count(clients, "client")}', 'read',
        {'clients': clients, 'access': access}, LOCAL, figure, **options)


def read_claims():
    limits = ('get', 18e-6, 0.95), ('ghosts', 12e-6, 1 / 3)
    for access, most, of_sqlite in limits:
        for clients in 1, 8, 16:
            cpu = 'cold_cpu_seconds'
            yield of_reads('CPU of a cold object', clients, access, cpu,
                           under=most)
            yield of_reads(
                f'CPU of a cold object, against {SQLITE}', clients, access,
                cpu, against=SQLITE, under=of_sqlite)
            for how in 'hot', 'steamin':
                yield of_reads(
                    f'CPU of a {how} object, against {OURS}', clients, access,
                    f'{how}_cpu_seconds', against=OURS, under=NOISE)
        for clients in CLIENTS[False]:
            yield of_reads(
                f'cold objects a second, against {SQLITE}', clients, access,
                'cold_per_second', against=SQLITE,
                at_least=1.2 if clients >= 4 else 1.0)


MIXED_CLAIMS = [
    Claim('bursts that were read, of those that were asked for', 'mixed', {},
          LOCAL, 'read', against=LOCAL, against_figure='asked', at_least=1.0),
    Claim(f'p99 of a commit beside bursts, against {OURS}', 'mixed', {},
          LOCAL, 'p99_seconds', against=OURS, under=1.5),
    Claim(f'commits a second beside bursts, against {OURS}', 'mixed', {},
          LOCAL, against=OURS, at_least=0.95),
]

BLOB_CLAIMS = [
    Claim(f'cold read of a blob, {put(SMALL)}, against {STOCK}', 'blob-read',
          {'size': SMALL}, LOCAL, 'cold_p50_seconds', against=STOCK,
          under=0.2),
    Claim(f'first byte of a blob, {put(LARGE[False])}', 'blob-first-byte', {},
          LOCAL, 'first_byte_seconds', under=1e-3),
    BytesClaim('what the blob cache has of it then', 'blob-first-byte', {},
               LOCAL, 'cached_bytes', under=1),
]

CAMPAIGNS = [
    Campaign(
        'zeo_local', 'clients that read the data file themselves',
        [*contestants(OURS, LOCAL), relstorages.SQLITE], races, rounds=5,
        claims=lambda document: [
            claim for claim in read_claims()
            if claim.against in {None, *document['contestants']}],
        show=table2009.show_zeo, command='zeo', obstacle=obstacle),
    Campaign(
        'zeo_mixed', 'commits beside reads in bursts',
        contestants(OURS, LOCAL), mixed_races, rounds=5,
        claims=lambda document: MIXED_CLAIMS, obstacle=obstacle),
    Campaign(
        'blobs_local', 'blobs that are read where the server keeps them',
        contestants(STOCK, LOCAL, ways=zeosites.CACHE), blob_races, rounds=3,
        claims=lambda document: BLOB_CLAIMS, obstacle=obstacle),
]
