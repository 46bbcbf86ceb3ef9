"""The command `fsync-time zeo`: what commits and reads take over ZEO.

DESCRIPTION says what the workloads are.  Each client that commits has objects
of its own, and changes all of them each time.  Its first transaction is not
timed, because it opens some files and connections.  All clients that read read
the same objects, some in each transaction; cold, hot and steamin in one
process, in this order, and with a prefetch in new processes.

The time of a transaction includes its begin, when a storage may ask its server
what has changed; the time of an object does not.  Prefetched objects are not
timed one by one.
"""

import functools
import time
from statistics import fmean

from . import arguments
from .running import crew
from .running import population
from .running import zeosites
from .running.sampling import Race

WORKLOADS = WRITE, READ = 'write', 'read'

SECONDS = arguments.Default(3.0, 0.5)

DESCRIPTION = """\
Measure what commits and reads take over ZEO, by server and client.

Each sample starts a server on an empty directory, and stops it afterwards.
Clients are processes of their own. The workloads:

  write  each client changes small objects of its own
  read   each client reads small objects: cold, with ZODB's cache and the
         client's own empty; hot, with the client's own filled; steamin, with
         both filled; and cold again, each transaction prefetching what it
         reads

It is what Jim Fulton measured in 2009.
"""

#: Objects that each client reads, less a rest that fills no transaction.
OBJECTS = 1002

#: How a client finds objects: by `Connection.get`, or in a list of ghosts.
ACCESSES = 'get', 'ghosts'

ONE_BY_ONE = 'cold', 'hot', 'steamin'
PREFETCH = 'prefetch',


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
    }
    return [race for workload in WORKLOADS
            if workload in (options.workload or WORKLOADS)
            for race in by_workload[workload]]


_numbers = arguments.several(arguments.positive)
_loops = zeosites.loops()

add_to = arguments.Command(
    'zeo', 'what commits and reads take over ZEO, by server and client',
    DESCRIPTION, zeosites.CONTESTANTS,
    'zeo fsync-client --objects 334 --directory /srv/zeo', races, {
        '--workload': dict(
            action='append', choices=WORKLOADS,
            help='what to measure; can be repeated (default: both)'),
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
            help='how long a sample of write lasts (default: %(default)s)'),
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
    stretches, usage = population.changed(
        contestant, directory, clients, objects, _count, seconds=seconds,
        **site_settings)
    return {
        **crew.commits(stretches, usage),
        'write_seconds': fmean(crew.durations(stretches)),
        **crew.busy(stretches, usage),
    }


def _count(connection, objects):
    for one in objects:
        one['number'] += 1


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
        return {
            name: value for ways in (ONE_BY_ONE, PREFETCH)
            for name, value in read(
                site, [reader(site, oids, access, objects, ways)] * clients,
                ways, objects).items()}


def read(site, readers, ways, objects):
    """Figures of readers, which read in these ways, in turn."""
    results, usages = crew.processes(site, readers)
    figures = {}
    for way, usage, stretches in zip(ways, usages, zip(*results)):
        singly = [one for each in stretches for one in each.objects]
        figures.update({
            **crew.rates(way, stretches, usage, objects),
            f'{way}_seconds': fmean(crew.durations(stretches)),
            **(crew.percentiles(singly, f'{way}_') if singly else {})})
    return figures


@crew.job
def reader(site, oids, access, objects, ways, start):
    """A job that returns a stretch for each of the ways.

    `objects` are read in each transaction.
    """
    with crew.connected(site) as (_, connection):
        what, load = (
            (oids, lambda oid: population.activate(connection.get(oid)))
            if access == 'get' else
            (population.ghosts(connection, 'read'), population.activate))
        work = [what[first:first + objects]
                for first in range(0, len(what) - objects + 1, objects)]
        found = []
        for way in ways:
            prefetch, singly = way in PREFETCH, []
            requests = [functools.partial(
                _transaction, connection, load, each, prefetch, singly)
                for each in work]
            if way == 'hot':
                connection.cacheMinimize()
            start()
            stretch = crew.timed(requests)
            found.append(stretch if prefetch
                         else stretch._replace(objects=singly))
        return found


def _transaction(connection, load, objects, prefetch, durations):
    """Read objects, and add to `durations` how long each of them took."""
    connection.transaction_manager.begin()
    if prefetch:
        connection.prefetch(objects)
    for one in objects:
        begin = time.perf_counter()
        load(one)
        durations.append(time.perf_counter() - begin)
