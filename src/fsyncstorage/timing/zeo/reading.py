"""Client processes that read small objects: cold, hot, steamin, prefetched.

All of them read the same objects, some in each transaction:

- cold: ZODB's cache and the one of its storage are empty;
- hot: then, with ZODB's cache emptied;
- steamin: then, with everything in ZODB's cache;
- prefetch: cold again, in new processes, and each transaction begins with a
  prefetch of its objects.

A transaction's time includes its begin, when a storage may ask its server for
news; an object's does not.  A prefetched object has none of its own.
"""

import time
import typing

import transaction

from .. import processes
from .. import statistics
from ..campaign import Race
from ..population import activate
from ..population import ghosts
from ..population import plant

#: Read by each client, as far as they fill transactions.
OBJECTS = 1002

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
    with contestant.running(directory, **site_settings) as site:
        planted = plant(site, read=max(OBJECTS, objects))
        groups = [Group('read', planted['read'])] * clients
        return {
            **timed(site, one_by_one, access, groups, objects),
            **timed(site, prefetching, access, groups, objects)}


class Group(typing.NamedTuple):
    """What a client reads."""

    name: str
    oids: list


def timed(site, reader, access, groups, objects):
    """The figures of such readers, one for each group."""
    found = processes.run(site, [
        reader(site, access, group, objects) for group in groups])
    figures = {}
    for how in found[0]:
        figures.update(_figures(how, [each[how] for each in found], objects))
    return figures


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


def one_by_one(site, access, group, objects):

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


def prefetching(site, access, group, objects):

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
