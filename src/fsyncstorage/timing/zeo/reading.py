"""Client processes that read small objects: cold, hot, steamin, prefetched.

All of them read the same objects, some in each transaction:

- cold: ZODB's cache and the one of its storage are empty;
- hot: then, with ZODB's cache emptied;
- steamin: then, with everything in ZODB's cache;
- prefetch: cold again, in new processes, and each transaction begins with a
  prefetch of its objects.

A transaction's time includes its begin, when a storage may ask its server for
news; an object's does not.  A prefetched object has none of its own.

With a read latency the server is cold, too: the objects are on its disk alone
before each cold stretch.  Each is far from all others there, and each client
reads objects of its own: as from a large database, nothing that is read brings
anything along for another read.
"""

import time
import typing

import transaction

from .. import pagecache
from .. import processes
from .. import statistics
from ..campaign import Race
from ..population import activate
from ..population import ghosts
from ..population import plant

#: Read by each client, as far as they fill transactions; and when each is a
#: read of the disk.
OBJECTS, COLD_OBJECTS = 1002, 334

ACCESSES = {
    'get': 'Connection.get',
    'ghosts': 'a walk over ghosts',
}

ONE_BY_ONE = 'cold', 'hot', 'steamin'
ALL = *ONE_BY_ONE, 'prefetch'


def race(**settings):
    return Race('read', settings, measure, (
        *(f'{how}_{figure}' for how in ALL
          for figure in ('per_second', 'seconds')),
        *(f'{how}_p50_seconds' for how in ONE_BY_ONE)))


def measure(contestant, directory, *, clients, objects, access,
            **site_settings):
    """Time the reads of one contestant; the figures of it."""
    cold_disk = site_settings.get('read_latency') is not None
    figures = {}
    with contestant.running(directory, **site_settings) as site:
        plant_groups = _plant_apart if cold_disk else _plant_one
        groups = plant_groups(site, clients, objects)
        for reader in _one_by_one, _prefetching:
            if cold_disk:
                pagecache.drop(site.data_file)
            before = site.server.usage()
            found = processes.run(site, [
                reader(site, access, group, objects) for group in groups])
            for how in found[0]:
                figures.update(_figures(
                    how, [stretches[how] for stretches in found], objects))
            if cold_disk:
                figures.update(_misses(
                    before, site.server.usage(), found, objects))
    return figures


class Group(typing.NamedTuple):
    """What a client reads."""

    name: str
    oids: list


def _plant_one(site, clients, objects):
    """The same for all."""
    planted = plant(site, read=max(OBJECTS, objects))
    return [Group('read', planted['read'])] * clients


def _plant_apart(site, clients, objects):
    """One of its own for each."""
    names = [f'of client {number}' for number in range(clients)]
    planted = plant(site, apart=True, **dict.fromkeys(
        names, max(COLD_OBJECTS, objects)))
    return [Group(name, planted[name]) for name in names]


def _misses(before, after, found, objects):
    """How many reads of the disk an object took in the cold stretch."""
    cold = next(iter(found[0]))
    transactions = sum(
        len(stretches[cold].transactions) for stretches in found)
    return {f'{cold}_misses': (after['misses'] - before['misses'])
                              / (transactions * objects)}


def _figures(how, stretches, objects):
    transactions = [one for each in stretches for one in each.transactions]
    singly = [one for each in stretches for one in each.objects]
    figures = {
        'per_second': objects * len(transactions) / processes.seconds(
            stretches),
        'seconds': sum(transactions) / len(transactions),
    }
    if singly:
        figures['p50_seconds'] = statistics.percentile(singly, 50)
        figures['p99_seconds'] = statistics.percentile(singly, 99)
    return {f'{how}_{name}': value for name, value in figures.items()}


def _one_by_one(site, access, group, objects):

    def job(start):
        with processes.database(site) as db:
            manager = transaction.TransactionManager()
            connection = db.open(manager)
            read, groups = _work(connection, access, group, objects)
            found = {}
            for how in ONE_BY_ONE:
                if how == 'hot':
                    connection.cacheMinimize()
                start()
                found[how] = _stretch(
                    manager, groups, lambda group: _each(read, group))
            return found

    return job


def _prefetching(site, access, group, objects):

    def job(start):
        with processes.database(site) as db:
            manager = transaction.TransactionManager()
            connection = db.open(manager)
            read, groups = _work(connection, access, group, objects)

            def prefetch_and_read(group):
                connection.prefetch(group)
                for one in group:
                    read(one)
                return []

            start()
            return {'prefetch': _stretch(manager, groups, prefetch_and_read)}

    return job


def _work(connection, access, group, objects):
    """How one is read; and what, by transaction."""
    if access == 'get':
        what = group.oids

        def read(oid):
            activate(connection.get(oid))
    else:
        what, read = ghosts(connection, group.name), activate
    return read, [
        what[first:first + objects]
        for first in range(0, len(what) - objects + 1, objects)]


def _stretch(manager, groups, read_group):
    transactions, objects = [], []
    began = time.perf_counter()
    for group in groups:
        begin = time.perf_counter()
        manager.begin()
        objects += read_group(group)
        transactions.append(time.perf_counter() - begin)
    return processes.Stretch(
        began, time.perf_counter(), transactions, objects)


def _each(read, group):
    """How long each of them took."""
    durations = []
    for one in group:
        begin = time.perf_counter()
        read(one)
        durations.append(time.perf_counter() - begin)
    return durations
