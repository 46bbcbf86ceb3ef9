"""The command `fsync-time zeo`: what commits and reads take over ZEO.

It starts the servers that it compares, and stops them again.

Client processes commit: each has objects of its own, and changes all of them
each time.  Its first transaction is not timed, because it opens some files and
connections.

Or they read small objects.  All of them read the same ones, some in each
transaction.  In this order:

- cold: ZODB's cache and the cache of the storage are empty;
- hot: only ZODB's cache is empty;
- steamin: everything is in ZODB's cache;
- prefetch: cold again, in new processes, and each transaction begins with a
  prefetch of its objects.

Another measurement has cold reads, with short pauses, while another client
changes an object of its own as fast as it can.

The time of a transaction includes its begin, when a storage may ask its server
what has changed; the time of an object does not.  Prefetched objects are not
timed one by one.
"""

import functools
import itertools
import time
import typing
from statistics import fmean

from . import arguments
from .results import wording
from .running import crew
from .running import loops
from .running import population
from .running.sampling import Race
from .running.zeosites import CONTESTANTS

WORKLOADS = WRITE, READ, BESIDE = 'write', 'read', 'read-beside-commit'

SECONDS = arguments.Default(3.0, 0.5)

#: Added to the syncs while reads beside commits are timed.
READS_LATENCY = 0.05
_LONGER = wording.duration(READS_LATENCY)

DESCRIPTION = f"""\
Measure what commits and reads take over ZEO, by server and client.

Each sample starts a server on an empty directory, and stops it afterwards.
Clients are processes of their own. The workloads:

  write               each client changes small objects of its own
  read                each client reads small objects: cold, with ZODB's cache
                      and the client's own empty; hot, with the client's own
                      filled; steamin, with both filled; and cold again, each
                      transaction prefetching what it reads
  read-beside-commit  how long a cold read takes while another client commits
                      and each sync takes {_LONGER} longer

Without --workload these are write and read: what Jim Fulton measured in 2009.
"""

#: Objects that each client reads, less a rest that fills no transaction.
OBJECTS = 1002

#: How a client finds objects: by `Connection.get`, or in a list of ghosts.
ACCESSES = 'get', 'ghosts'

ONE_BY_ONE = 'cold', 'hot', 'steamin'
PREFETCH = 'prefetch',


class Group(typing.NamedTuple):
    """What a client reads: how, and how many objects in a transaction."""

    name: str
    oids: list
    access: str
    objects: int


def races(options):
    site = {'loop': options.loop, 'socket': False}
    timed = {'seconds': options.seconds, **site}
    numbers = [{'clients': clients, 'objects': objects}
               for objects in options.objects for clients in options.clients]
    by_workload = {
        WRITE: [write_race(sync_latency=latency, **each, **timed)
                for latency in options.sync_latency for each in numbers],
        # A read syncs nothing.
        READ: [read_race(access='get', sync_latency=0.0, **each, **site)
               for each in numbers],
        BESIDE: [beside_race(sync_latency=READS_LATENCY, **timed)],
    }
    return [race for workload in WORKLOADS
            if workload in (options.workload or (WRITE, READ))
            for race in by_workload[workload]]


_numbers = arguments.several(arguments.positive)
_loops = loops.installed()

add_to = arguments.Command(
    'zeo', 'what commits and reads take over ZEO, by server and client',
    DESCRIPTION, CONTESTANTS,
    'zeo fsync-client --objects 334 --directory /srv/zeo', races, {
        '--workload': dict(
            action='append', choices=WORKLOADS,
            help='what to measure; can be repeated (default: write and read)'),
        '--clients': dict(
            type=_numbers, metavar='N,...',
            default=arguments.Default([1, 2, 4, 8, 16], [1, 4]),
            help='how many processes at a time (default: %(default)s)'),
        '--objects': dict(
            type=_numbers, metavar='N,...',
            default=arguments.Default([1, 4, 334], [4]),
            help='how many in a transaction (default: %(default)s)'),
        '--seconds': dict(
            type=arguments.seconds, default=SECONDS, metavar='TIME',
            help='how long a sample lasts, of all workloads but read'
                 ' (default: %(default)s)'),
        '--loop': dict(
            choices=_loops, default=_loops[-1],
            help='the event loop of servers and clients (default: uvloop where'
                 ' it is installed, as ZEO does)'),
    }).add_to


def write_race(**settings):
    return Race(
        WRITE, settings, measure_writes,
        ('txn_per_second', 'write_seconds', 'p50_seconds', 'p99_seconds'))


def measure_writes(contestant, directory, *, clients, objects, seconds,
                   **site_settings):
    """Time the commits of one contestant; return its figures."""
    groups = [f'of client {number}' for number in range(clients)]
    with contestant.running(directory, **site_settings) as site:
        population.plant(
            site, population.small(**dict.fromkeys(groups, objects)))
        stretches, [usage] = crew.processes(
            site, [writer(site, group, seconds) for group in groups])
    return {
        **crew.commits(stretches, usage),
        'write_seconds': fmean(crew.durations(stretches)),
        **crew.busy(stretches, usage),
    }


@crew.job
def writer(site, group, seconds, start):
    """A job that returns a stretch."""
    with crew.connected(site) as (manager, connection):
        objects = population.ghosts(connection, group)

        def change():
            manager.begin()
            for one in objects:
                one['number'] += 1
            manager.commit()

        change()
        start()
        return crew.timed(itertools.repeat(change), seconds)


def read_race(**settings):
    return Race(READ, settings, measure_reads, (
        *(f'{how}_{figure}' for how in ONE_BY_ONE + PREFETCH
          for figure in ('per_second', 'seconds')),
        *(f'{how}_p50_seconds' for how in ONE_BY_ONE)))


def measure_reads(contestant, directory, *, clients, objects, access,
                  **site_settings):
    """Time the reads of one contestant; return its figures."""
    with contestant.running(directory, **site_settings) as site:
        oids = population.plant(
            site, population.small(read=max(OBJECTS, objects)))['read']
        groups = [Group('read', oids, access, objects)] * clients
        return {**read(site, groups, ONE_BY_ONE),
                **read(site, groups, PREFETCH)}


def read(site, groups, ways):
    """Figures of a client for each group; it reads in these ways, in turn."""
    results, usages = crew.processes(
        site, [_reader(site, group, ways) for group in groups])
    figures = {}
    for way, usage, stretches in zip(ways, usages, zip(*results)):
        objects = [one for each in stretches for one in each.objects]
        figures.update({
            **crew.rates(way, stretches, usage, groups[0].objects),
            f'{way}_seconds': fmean(crew.durations(stretches)),
            **(crew.percentiles(objects, f'{way}_') if objects else {})})
    return figures


@crew.job
def _reader(site, group, ways, start):
    """A job that returns a stretch for each of the ways."""
    with crew.connected(site) as (_, connection):
        load, work = _work(connection, group)
        found = []
        for way in ways:
            prefetch, singly = way in PREFETCH, []
            requests = [functools.partial(
                _transaction, connection, load, objects, prefetch, singly)
                for objects in work]
            if way == 'hot':
                connection.cacheMinimize()
            start()
            stretch = crew.timed(requests)
            found.append(stretch if prefetch
                         else stretch._replace(objects=singly))
        return found


def _work(connection, group):
    """A function that loads an object; and lists of them, by transaction."""
    activate, size = population.activate, group.objects
    if group.access == 'get':
        what = group.oids

        def load(oid):
            activate(connection.get(oid))
    else:
        what, load = population.ghosts(connection, group.name), activate
    return load, [what[first:first + size]
                  for first in range(0, len(what) - size + 1, size)]


def _transaction(connection, load, objects, prefetch, durations):
    """Read objects, and add to `durations` how long each of them took."""
    connection.transaction_manager.begin()
    if prefetch:
        connection.prefetch(objects)
    for one in objects:
        begin = time.perf_counter()
        load(one)
        durations.append(time.perf_counter() - begin)


#: Between two reads beside commits, in seconds.
_PAUSE = 0.001


def beside_race(**settings):
    return Race(
        BESIDE, settings, measure_beside,
        ('p50_seconds', 'p99_seconds', 'max_seconds'))


def measure_beside(contestant, directory, *, seconds, **site_settings):
    """Time the reads of one contestant, each read of another object."""
    with contestant.running(directory, **site_settings) as site:
        # Because of the pauses, the client cannot read more in that time.
        oids = population.plant(site, population.small(
            read=round(seconds / _PAUSE) + 1, written=1))['read']

        def read(start):
            with crew.connected(site) as (_, connection):
                start()
                return crew.timed(
                    [functools.partial(connection.get, oid) for oid in oids],
                    seconds, _PAUSE)

        (reads, commits), _ = crew.processes(
            site, [read, writer(site, 'written', seconds)])
    return {
        'reads': len(reads.durations),
        **crew.times(reads.durations),
        'commits': len(commits.durations),
    }
