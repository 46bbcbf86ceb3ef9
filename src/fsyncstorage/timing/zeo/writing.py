"""Client processes that commit: some small objects in each transaction.

Each client has objects of its own, and changes all of them each time.  Its
first transaction, which opens what is opened only then, does not count.
"""

import time

import transaction

from .. import processes
from .. import statistics
from ..campaign import Race
from ..population import activate
from ..population import ghosts
from ..population import plant


def race(**settings):
    slowed = settings['sync_latency'] > 0
    return Race(
        'write', settings, measure,
        ('txn_per_second', 'write_seconds', 'p50_seconds', 'p99_seconds'),
        suits=lambda contestant: contestant.can_be_slowed or not slowed)


def measure(contestant, directory, *, clients, objects, seconds,
            **site_settings):
    """Time the commits of one contestant; the figures of it."""
    groups = [f'of client {number}' for number in range(clients)]
    with contestant.running(directory, **site_settings) as site:
        plant(site, **dict.fromkeys(groups, objects))
        before = site.server.usage()
        found = processes.run(
            site, [writer(site, group, seconds) for group in groups])
        after = site.server.usage()
    stretches, cpu = zip(*found)
    durations = [one for each in stretches for one in each.transactions]
    took = processes.seconds(stretches)
    return {
        'transactions': len(durations),
        'seconds': took,
        'txn_per_second': len(durations) / took,
        'write_seconds': sum(durations) / len(durations),
        'p50_seconds': statistics.percentile(durations, 50),
        'p99_seconds': statistics.percentile(durations, 99),
        'clients_cpu': sum(cpu) / took,
        **_of_server(before, after, took),
    }


def _of_server(before, after, took):
    """As far as it is known."""
    used = {name: after[name] - before[name] for name in after}
    if not used:
        return {}
    return {'server_cpu': used['cpu_seconds'] / took, 'syncs': used['syncs']}


def writer(site, group, seconds):
    """A job that returns a stretch, and the processor time that it took."""

    def job(start):
        with processes.database(site) as db:
            manager = transaction.TransactionManager()
            objects = ghosts(db.open(manager), group)
            for one in objects:
                activate(one)
            _change(manager, objects)
            start()
            cpu, began = time.process_time(), time.perf_counter()
            now, durations = began, []
            while not durations or now < began + seconds:
                begin = time.perf_counter()
                _change(manager, objects)
                now = time.perf_counter()
                durations.append(now - begin)
            return (processes.Stretch(began, now, durations),
                    time.process_time() - cpu)

    return job


def _change(manager, objects):
    """A transaction."""
    manager.begin()
    for one in objects:
        one['number'] += 1
    manager.commit()
