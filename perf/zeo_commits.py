"""Commits over ZEO where something else takes time, too.

Between the vote of a transaction and its finish, a second resource manager,
the network, or a sync may take some time; and one client may be much slower
than the others.  In stock ZEO, all other commits wait for that.  All clients
are processes with an object of their own, or threads of one process.

If a second resource manager votes last, vote and finish are separate: a commit
takes two trips over the network.  Otherwise our client needs one.
"""

import contextlib
import dataclasses
import itertools
import time

from fsyncstorage.timing.results.wording import added
from fsyncstorage.timing.results.wording import count
from fsyncstorage.timing.results.wording import duration
from fsyncstorage.timing.running import crew
from fsyncstorage.timing.running import loops
from fsyncstorage.timing.running import population
from fsyncstorage.timing.running.campaign import Race
from fsyncstorage.timing.servers.zeosites import CONTESTANTS
from fsyncstorage.timing.zeo import writing

from . import network
from .campaign import Campaign
from .claims import Claim
from .zeo_2009 import RemoteSite

STOCK, SERVER, OURS = 'zeo', 'fsync-zeo', 'fsync-client'

SECONDS = 2.0, 0.5  # of a sample; and in a quick run

MANY = 16   # clients
THREADS = 8
TAKES = 0.005   # seconds: a sync, a second resource manager, the network
SLEEPS = 0.2    # seconds: one client, between vote and finish


class SecondManager:
    """A resource manager that votes after all others, and takes time."""

    def __init__(self, manager, seconds):
        self.transaction_manager = manager
        self._seconds = seconds

    def sortKey(self):
        return '~'

    def tpc_vote(self, transaction):
        time.sleep(self._seconds)

    def _nothing(self, transaction):
        pass

    abort = tpc_begin = commit = tpc_finish = tpc_abort = _nothing


class Site:
    """A contestant whose clients may be in a network of their own."""

    def __init__(self, site):
        self._site, self._remote = site, RemoteSite(site)
        self.name, self.summary = site.name, site.summary
        self.can_be_slowed = site.can_be_slowed

    def running(self, directory, *, network_delay=0.0, **settings):
        if not network_delay:
            return self._site.running(directory, **settings)
        return self._remote.running(
            directory, network_delay=network_delay, **settings)


def race(workload, measure, seconds, loop, *, sync_latency=0.0, **settings):
    return Race(
        workload,
        {'seconds': seconds, 'loop': loop, 'socket': False,
         'sync_latency': sync_latency, **settings},
        measure, ('txn_per_second', 'p50_seconds', 'p99_seconds'),
        suits=lambda contestant: contestant.name != SERVER)


def races(quick):
    return [race for loop in loops.installed()
            for race in races_on(SECONDS[quick], loop)]


def races_on(seconds, loop):
    site = {'seconds': seconds, 'loop': loop, 'socket': False}
    for clients, latency in (1, 0.0), (MANY, 0.0), (MANY, TAKES):
        written = writing.race(
            clients=clients, objects=1, sync_latency=latency, **site)
        yield dataclasses.replace(
            written, compared=(*written.compared, 'txn_cpu_seconds'))
    yield race('second-manager', processes, seconds, loop,
               clients=MANY, takes=TAKES)
    for trips in 1, 2:
        yield race('network', processes, seconds, loop,
                   clients=MANY, network_delay=TAKES, trips=trips)
    for slow in 0, 1:
        yield race('one-sleeps', processes, seconds, loop,
                   clients=MANY - 1, slow=slow)
    yield race('threads', threads, seconds, loop,
               clients=THREADS, sync_latency=TAKES)


def processes(contestant, directory, *, clients, seconds, takes=0.0, trips=1,
              slow=0, **site_settings):
    """Time the commits of the clients, but not those of the slow ones."""
    if not takes and trips == 1:
        takes = None  # nothing else takes part
    pauses = [takes] * clients + [SLEEPS] * slow
    groups = [f'of client {number}' for number in range(len(pauses))]
    with contestant.running(directory, **site_settings) as site:
        population.plant(
            site, population.small(**dict.fromkeys(groups, 1)))
        stretches, [usage] = crew.processes(site, [
            client(site, *each, seconds) for each in zip(groups, pauses)])
    return {**crew.commits(stretches[:clients], usage),
            **crew.busy(stretches, usage)}


def threads(contestant, directory, *, clients, seconds, **site_settings):
    """Time the commits of threads of one process."""
    groups = [f'of client {number}' for number in range(clients)]
    with contestant.running(directory, **site_settings) as site:
        population.plant(
            site, population.small(**dict.fromkeys(groups, 1)))
        [stretches], [usage] = crew.processes(
            site, [one_process(site, groups, seconds)])
    return {**crew.commits(stretches, usage), **crew.busy(stretches, usage)}


@crew.job
def client(site, group, pause, seconds, start):
    """A job that returns a stretch."""
    with crew.connected(site) as opened:
        change = changing(*opened, group, pause)
        change()
        start()
        return crew.timed(itertools.repeat(change), seconds)


@crew.job
def one_process(site, groups, seconds, start):
    """A job that returns the stretches of its threads.

    The processor time is that of the process, so the first has all of it."""
    with contextlib.ExitStack() as stack:
        manager, connection = stack.enter_context(crew.connected(site))
        changes = []
        for group in groups:
            own = type(manager)()
            changes.append(changing(
                own, connection.db().open(own), group))
            changes[-1]()
        start()
        cpu = time.process_time()
        stretches, _ = crew.threads([
            timed_thread(change, seconds) for change in changes])
        cpu = time.process_time() - cpu
        return [each._replace(cpu=cpu / len(groups)) for each in stretches]


@crew.job
def timed_thread(change, seconds, start):
    start()
    return crew.timed(itertools.repeat(change), seconds)


def changing(manager, connection, group, pause=None):
    """A function that changes the object of a group, and commits."""
    one, = population.ghosts(connection, group)

    def change():
        manager.begin()
        one['number'] += 1
        if pause is not None:
            manager.get().join(SecondManager(manager, pause))
        manager.commit()

    return change


def of_loop(loop):
    def claim(words, workload, at_least, *, contestant=OURS, **settings):
        return Claim(
            f'{words}, {loop}', workload, {'loop': loop, **settings},
            contestant, against=STOCK, at_least=at_least)

    many = count(MANY, 'client process', 'client processes')
    yield claim('commits of 1 client', 'write', 1.4, clients=1)
    for latency, of_server, of_both in (0.0, 2.0, 6.0), (TAKES, 5.0, 10.0):
        yield claim(
            f'commits of {many} of stock, {added(latency)}', 'write',
            of_server, contestant=SERVER, clients=MANY, sync_latency=latency)
        yield claim(f'commits of {many}, {added(latency)}', 'write', of_both,
                    clients=MANY, sync_latency=latency)
    took = duration(TAKES)
    yield claim(f'commits of {many}, {took} between vote and finish',
                'second-manager', 8.0, clients=MANY)
    yield claim(f'commits of {many}, {took} away', 'network', 7.0,
                clients=MANY, trips=1)
    yield claim(f'commits of {many}, {took} away, in two trips', 'network',
                4.0, clients=MANY, trips=2)
    yield Claim(
        f'processor time of a commit, client and server, {many}, {loop}',
        'write', {'loop': loop, 'clients': MANY, 'sync_latency': 0.0}, OURS,
        'txn_cpu_seconds', STOCK, under=0.2)
    yield claim(f'commits of {count(THREADS, "thread")} of a client,'
                f' {added(TAKES)}', 'threads', 4.0, clients=THREADS)
    yield Claim(
        f'commits of {MANY - 1} clients beside one that sleeps'
        f' {duration(SLEEPS)}, against the same without it, {loop}',
        'one-sleeps', {'loop': loop, 'slow': 1}, OURS, against=OURS,
        against_settings={'loop': loop, 'slow': 0}, at_least=0.9)


def claims(document):
    measured = {race['settings']['loop'] for race in document['races']}
    return [claim for loop in sorted(measured) for claim in of_loop(loop)]


def added_delays(contestants):
    yield (
        f'"second-manager": {duration(TAKES)} between vote and finish;'
        f' "network": {duration(TAKES)} each way, a round trip takes'
        f' {duration(network.round_trip(TAKES))} (measured); "one-sleeps":'
        f' {MANY - 1} clients, beside none or one that sleeps'
        f' {duration(SLEEPS)} between vote and finish.')


CAMPAIGNS = [Campaign(
    'zeo_commits', 'commits over ZEO where something else takes time, too',
    [Site(CONTESTANTS[name]) for name in (STOCK, SERVER, OURS)],
    races, rounds=5, claims=claims, added=added_delays,
    obstacle=lambda directory: network.obstacle())]
