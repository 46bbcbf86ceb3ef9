"""Client processes that read small objects: cold, hot, steamin, prefetched.

All of them read the same objects, some in each transaction.  In this order:

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
import time
import typing
from statistics import fmean

from ..running import crew
from ..running import population
from ..running.campaign import Race
from .writing import writer

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


def race(**settings):
    return Race('read', settings, measure, (
        *(f'{how}_{figure}' for how in ONE_BY_ONE + PREFETCH
          for figure in ('per_second', 'seconds')),
        *(f'{how}_p50_seconds' for how in ONE_BY_ONE)))


def measure(contestant, directory, *, clients, objects, access,
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
        'read-beside-commit', settings, measure_beside,
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
