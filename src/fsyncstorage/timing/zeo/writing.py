"""Client processes that commit: some small objects in each transaction.

Each client has objects of its own, and changes all of them each time.  Its
first transaction is not timed, because it opens some files and connections.
"""

import itertools
from statistics import fmean

from ..running import crew
from ..running import population
from ..running.campaign import Race


def race(**settings):
    return Race(
        'write', settings, measure,
        ('txn_per_second', 'write_seconds', 'p50_seconds', 'p99_seconds'))


def measure(contestant, directory, *, clients, objects, seconds,
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
