"""Client processes that commit: some small objects in each transaction.

Each client has objects of its own, and changes all of them each time.  Its
first transaction, which opens what is opened only then, does not count.
"""

import itertools
from statistics import fmean

import transaction

from .. import crew
from ..campaign import Race
from ..population import activate
from ..population import ghosts
from ..population import plant


def race(**settings):
    return Race(
        'write', settings, measure,
        ('txn_per_second', 'write_seconds', 'p50_seconds', 'p99_seconds'))


def measure(contestant, directory, *, clients, objects, seconds,
            **site_settings):
    """Time the commits of one contestant; the figures of it."""
    groups = [f'of client {number}' for number in range(clients)]
    with contestant.running(directory, **site_settings) as site:
        plant(site, **dict.fromkeys(groups, objects))
        stretches, [usage] = crew.processes(
            site, [writer(site, group, seconds) for group in groups])
    return {
        **crew.commits(stretches, usage),
        'write_seconds': fmean(crew.durations(stretches)),
        **crew.busy(stretches, usage),
    }


def writer(site, group, seconds):
    """A job that returns a stretch."""

    def job(start):
        with crew.database(site) as db:
            manager = transaction.TransactionManager()
            objects = ghosts(db.open(manager), group)
            for one in objects:
                activate(one)

            def change():
                manager.begin()
                for one in objects:
                    one['number'] += 1
                manager.commit()

            change()
            start()
            return crew.timed(itertools.repeat(change), seconds)

    return job
