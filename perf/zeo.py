"""Commits and reads over ZEO: servers, clients, the table of 2009; and claims.

Client processes write and read small objects on this machine.  In all
campaigns, the servers and clients of ZEO run on uvloop where it is installed;
some measure asyncio, too.  README.rst says what each campaign measures, and
how to read it.

In `zeo_commits` something else takes time, too: between the vote of a
transaction and its finish, a second resource manager, the network, or a sync;
and one client may be much slower than the others.  In stock ZEO, all other
commits wait for that.  If a second resource manager votes last, vote and
finish are separate: a commit takes two trips over the network.  Otherwise our
client needs one.
"""

import contextlib
import dataclasses
import functools
import itertools
import time

from fsyncstorage.timing import zeo
from fsyncstorage.timing.results.wording import added
from fsyncstorage.timing.results.wording import count
from fsyncstorage.timing.results.wording import duration
from fsyncstorage.timing.running import crew
from fsyncstorage.timing.running import population
from fsyncstorage.timing.running import zeosites
from fsyncstorage.timing.running.sampling import Race
from fsyncstorage.timing.running.zeosites import CONTESTANTS

from . import light
from . import network
from . import pinning
from . import table2009
from .campaign import Campaign
from .campaign import missing
from .claims import Claim
from .peers import relstorages

STOCK, SERVER, OURS, LOCAL = (
    'zeo', 'fsync-zeo', 'fsync-client', 'fsync-client:local')
POSTGRESQL, SQLITE = relstorages.POSTGRESQL, relstorages.SQLITE
PGJSONB = relstorages.PGJSONB

#: Clients, in a full run and in a quick run.
CLIENTS = (1, 2, 4, 8, 16), (1, 4)
#: Of a sample of commits.
SECONDS = 2.0, 0.5

MANY, CROWD = 334, 16   # objects in a transaction; clients
THREADS = 8

#: Added to each sync: for a fast disk, for a slow one, and while reads beside
#: commits are timed.
FAST, SLOW, BESIDE = 0.0, 0.005, 0.05
TAKES = SLOW    # also what a second resource manager and the network take
SLEEPS = 0.2    # seconds: one client, between vote and finish

#: Two equal contestants differ by up to this factor from run to run.
NOISE = 1.1

HERE = {'socket': True}
#: The delay is for one way: a round trip has it twice.
REMOTE = {'socket': False, 'network_delay': 0.0005}

PINNED = {
    pinning.SAME: ' on the processor of its server',
    pinning.ACROSS: ' on another processor',
    pinning.FREE: '',
}


class RemoteSite:
    """A contestant, with its clients in a network of their own if there is a
    delay."""

    def __init__(self, site):
        self._site = site
        self.name, self.summary = site.name, site.summary
        self.can_be_slowed = site.can_be_slowed
        self.missing = functools.partial(missing, site)

    @contextlib.contextmanager
    def running(self, directory, *, network_delay=0.0, **settings):
        if not network_delay:
            with self._site.running(directory, **settings) as site:
                yield site
            return
        there = dataclasses.replace(self._site, host=network.SERVER)
        with network.network(network_delay) as apart:
            apart.enter_server()
            with there.running(directory, **settings) as site:
                apart.enter_clients()
                yield site


# Races

def on_each_loop(races):
    """Races, as a campaign has them, by a function of seconds and a loop."""
    return lambda quick: [
        race for loop in zeosites.loops()
        for race in races(SECONDS[quick], loop=loop, socket=False)]


def server_races(seconds, **site):
    timed = {'seconds': seconds, **site}
    yield from (zeo.write_race(
        clients=number, objects=1, sync_latency=latency, **timed)
        for latency in (FAST, SLOW) for number in (1, CROWD))
    yield from (zeo.read_race(
        clients=number, objects=1, access='get', sync_latency=FAST, **site)
        for number in (1, CROWD))
    yield from (light.race(connections=number, sync_latency=latency, **timed)
                for latency in (FAST, SLOW) for number in (4, CROWD))
    yield beside_race(sync_latency=BESIDE, **timed)


def client_races(seconds, **site):
    site = {'sync_latency': FAST, **site}
    for clients, pin in (
            (1, pinning.SAME), (1, pinning.ACROSS), (CROWD, pinning.FREE)):
        for access in zeo.ACCESSES:
            yield zeo.read_race(
                clients=clients, objects=MANY, access=access, pin=pin, **site)
    for clients, objects in (1, MANY), (CROWD, 1):
        yield zeo.write_race(clients=clients, objects=objects, seconds=seconds,
                             pin=pinning.FREE, **site)


def local_races(quick):
    cpu = [f'{how}_cpu_seconds' for how in zeo.ONE_BY_ONE]
    return [
        dataclasses.replace(race, compared=(*race.compared, *cpu))
        for clients in CLIENTS[quick] for access in zeo.ACCESSES
        for race in [zeo.read_race(
            clients=clients, objects=MANY, access=access, sync_latency=FAST,
            loop=zeosites.loops()[-1], **HERE)]]


def races_of_2009(where, quick):
    each = [{'clients': clients, 'objects': objects, 'sync_latency': FAST,
             'loop': zeosites.loops()[-1], **where}
            for objects in ((4,) if quick else (1, 4, MANY))
            for clients in CLIENTS[quick]]
    return [
        *(zeo.write_race(seconds=SECONDS[quick] / 2, **one) for one in each),
        *(zeo.read_race(access='get', **one) for one in each)]


def commit_races(seconds, **site):
    for clients, latency in (1, FAST), (CROWD, FAST), (CROWD, SLOW):
        written = zeo.write_race(clients=clients, objects=1, seconds=seconds,
                                 sync_latency=latency, **site)
        yield dataclasses.replace(
            written, compared=(*written.compared, 'txn_cpu_seconds'))

    def race(workload, measure, sync_latency=FAST, **settings):
        return Race(
            workload,
            {'seconds': seconds, 'sync_latency': sync_latency, **site,
             **settings},
            measure, ('txn_per_second', 'p50_seconds', 'p99_seconds'),
            suits=lambda contestant: contestant.name != SERVER)

    yield race('second-manager', processes, clients=CROWD, takes=TAKES)
    for trips in 1, 2:
        yield race('network', processes, clients=CROWD, network_delay=TAKES,
                   trips=trips)
    for slow in 0, 1:
        yield race('one-sleeps', processes, clients=CROWD - 1, slow=slow)
    yield race('threads', threads, SLOW, clients=THREADS)


# Commits beside something slow

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


def processes(contestant, directory, *, clients, seconds, takes=0.0, trips=1,
              slow=0, **site_settings):
    """Time the commits of the clients, but not those of the slow ones."""
    if not takes and trips == 1:
        takes = None  # nothing else takes part
    pauses = [takes] * clients + [SLEEPS] * slow
    groups = [f'of client {number}' for number in range(len(pauses))]
    with contestant.running(directory, **site_settings) as site:
        population.plant(site, population.small(**dict.fromkeys(groups, 1)))
        stretches, [usage] = crew.processes(site, [
            client(site, *each, seconds) for each in zip(groups, pauses)])
    return {**crew.commits(stretches[:clients], usage),
            **crew.busy(stretches, usage)}


def threads(contestant, directory, *, clients, seconds, **site_settings):
    """Time the commits of threads of one process."""
    groups = [f'of client {number}' for number in range(clients)]
    with contestant.running(directory, **site_settings) as site:
        population.plant(site, population.small(**dict.fromkeys(groups, 1)))
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

    Each of them has an equal part of the processor time of the process."""
    with crew.connected(site) as (manager, connection):
        changes = []
        for group in groups:
            own = type(manager)()
            changes.append(changing(own, connection.db().open(own), group))
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


# Reads beside commits

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
            site, [read, client(site, 'written', None, seconds)])
    return {
        'reads': len(reads.durations),
        **crew.times(reads.durations),
        'commits': len(commits.durations),
    }


# Claims

def of_each_loop(claims):
    """What a campaign claims, by a function of a loop; only about contestants
    that took part."""
    return lambda document: [
        dataclasses.replace(
            claim, words=f'{claim.words}, {loop}',
            settings={**claim.settings, 'loop': loop}, against_settings=(
                claim.against_settings
                and {**claim.against_settings, 'loop': loop}))
        for loop in sorted({
            race['settings']['loop'] for race in document['races']})
        for claim in claims()
        if claim.against in {None, *document['contestants']}]


def commits_claim(words, workload, at_least, contestant=OURS, against=STOCK,
                  **settings):
    return Claim(words, workload, settings, contestant, against=against,
                 at_least=at_least)


def server_claims():
    for latency, of_light, real in (FAST, 2.5, 1.3), (SLOW, 10, 5):
        yield commits_claim(
            f'commits of 16 light connections, {added(latency)}', 'light',
            of_light, SERVER, connections=CROWD, sync_latency=latency)
        yield commits_claim(
            f'commits of 16 client processes, {added(latency)}', 'write',
            real, SERVER, clients=CROWD, sync_latency=latency)
    yield Claim(
        'commits of 16 light connections against our own of 4', 'light',
        {'connections': CROWD, 'sync_latency': FAST}, SERVER, against=SERVER,
        at_least=1.0,
        against_settings={'connections': 4, 'sync_latency': FAST})
    yield Claim(
        f'p99 of a cold read beside commits, {added(BESIDE)}',
        'read-beside-commit', {}, SERVER, 'p99_seconds', under=0.005)
    for clients in 1, CROWD:
        yield Claim(
            f'cold reads, {count(clients, "client")}', 'read',
            {'clients': clients}, SERVER, 'cold_per_second', against=STOCK,
            at_least=1.0)


def of_reads(how, figure, access, pin, clients=1, against=STOCK, **options):
    return Claim(
        f'{how}, {access}, {count(clients, "client")}{PINNED[pin]},'
        f' against {against}',
        'read', {'clients': clients, 'access': access, 'pin': pin},
        OURS, figure, against=against, **options)


def client_claims():
    for pin, most in (pinning.SAME, 1 / 3), (pinning.ACROSS, 0.55):
        for access in zeo.ACCESSES:
            for against, under in (STOCK, most), (POSTGRESQL.name, 1.0):
                yield of_reads('cold read', 'cold_p50_seconds', access, pin,
                               against=against, under=under)
            yield of_reads(
                f'prefetch of {MANY} and reads, to cold reads',
                'prefetch_seconds', access, pin, under=0.2,
                against_figure='cold_seconds')
            for how in 'hot', 'steamin':
                yield of_reads(f'{how} read', f'{how}_p50_seconds', access,
                               pin, under=NOISE)
    for access, against, least in (
            ('get', STOCK, 2.2), ('ghosts', STOCK, 3.0),
            ('ghosts', POSTGRESQL.name, 1.4)):
        yield of_reads('cold objects a second', 'cold_per_second', access,
                       pinning.FREE, CROWD, against, at_least=least)
    yield Claim(
        f'commit of {count(MANY, "object")}, 1 client, against {STOCK}',
        'write', {'clients': 1, 'objects': MANY}, OURS, 'p50_seconds',
        against=STOCK, under=0.5)
    yield commits_claim(
        f'commits of 1 object a second, {CROWD} clients, against {STOCK}',
        'write', 2.0, clients=CROWD, objects=1)


def local_claims(document):
    for access, most, of_sqlite in ('get', 18e-6, 0.95), (
            'ghosts', 12e-6, 1 / 3):
        for clients in CLIENTS[False]:
            claim = functools.partial(
                Claim, workload='read', contestant=LOCAL,
                settings={'clients': clients, 'access': access})
            where = f'{access}, {count(clients, "client")}'
            cpu = [] if clients in (2, 4) else [
                claim(f'CPU of a cold object, {where}',
                      figure='cold_cpu_seconds', under=most),
                claim(f'CPU of a cold object, against {SQLITE.name}, {where}',
                      figure='cold_cpu_seconds', against=SQLITE.name,
                      under=of_sqlite),
                *(claim(f'CPU of a {how} object, against {OURS}, {where}',
                        figure=f'{how}_cpu_seconds', against=OURS, under=NOISE)
                  for how in ('hot', 'steamin'))]
            yield from (one for one in [*cpu, claim(
                f'cold objects a second, against {SQLITE.name}, {where}',
                figure='cold_per_second', against=SQLITE.name,
                at_least=1.2 if clients >= 4 else 1.0)]
                if one.against in {None, *document['contestants']})


def commit_claims():
    many = count(CROWD, 'client process', 'client processes')
    took = duration(TAKES)
    yield commits_claim('commits of 1 client', 'write', 1.4, clients=1)
    for latency, of_server, of_both in (FAST, 2.0, 6.0), (SLOW, 5.0, 10.0):
        yield commits_claim(
            f'commits of {many} of stock, {added(latency)}', 'write',
            of_server, SERVER, clients=CROWD, sync_latency=latency)
        yield commits_claim(f'commits of {many}, {added(latency)}', 'write',
                            of_both, clients=CROWD, sync_latency=latency)
    yield commits_claim(f'commits of {many}, {took} between vote and finish',
                        'second-manager', 8.0, clients=CROWD)
    yield commits_claim(f'commits of {many}, {took} away', 'network', 7.0,
                        clients=CROWD, trips=1)
    yield commits_claim(f'commits of {many}, {took} away, in two trips',
                        'network', 4.0, clients=CROWD, trips=2)
    yield Claim(
        f'processor time of a commit, client and server, {many}',
        'write', {'clients': CROWD, 'sync_latency': FAST}, OURS,
        'txn_cpu_seconds', STOCK, under=0.2)
    yield commits_claim(f'commits of {count(THREADS, "thread")} of a client,'
                        f' {added(SLOW)}', 'threads', 4.0, clients=THREADS)
    yield Claim(
        f'commits of {CROWD - 1} clients beside one that sleeps'
        f' {duration(SLEEPS)}, against the same without it',
        'one-sleeps', {'slow': 1}, OURS, against=OURS,
        against_settings={'slow': 0}, at_least=0.9)


# Campaigns

def commits_added(contestants):
    yield (
        f'"second-manager": {duration(TAKES)} between vote and finish;'
        f' "network": {duration(TAKES)} each way, a round trip takes'
        f' {duration(network.round_trip(TAKES))} (measured); "one-sleeps":'
        f' {CROWD - 1} clients, beside none or one that sleeps'
        f' {duration(SLEEPS)} between vote and finish.')


def remote_added(contestants):
    delay = REMOTE['network_delay']
    yield (
        f'Server and clients are in two networks, {duration(delay)} added each'
        ' way: a round trip takes'
        f' {duration(network.round_trip(delay))} (measured).')
    yield from relstorages.versions(contestants)


def without_local_reads(directory):
    if LOCAL not in CONTESTANTS:
        return 'local reads need a 64-bit Linux'
    return None


_SERVED = CONTESTANTS[STOCK], CONTESTANTS[OURS]
# Only where local reads are possible.
_LOCAL = [site for name, site in CONTESTANTS.items() if name == LOCAL]

_campaign = functools.partial(
    Campaign, show=table2009.show_zeo, command='zeo')

CAMPAIGNS = [
    _campaign(
        'zeo_server', 'commits and cold reads of stock clients, at two'
        ' servers', [CONTESTANTS[STOCK], CONTESTANTS[SERVER]],
        on_each_loop(server_races), rounds=5,
        claims=of_each_loop(server_claims)),
    _campaign(
        'zeo_client', 'commits and reads of the clients, and of the peers',
        [*map(pinning.PinnedSite, (*_SERVED, POSTGRESQL, SQLITE))],
        on_each_loop(client_races), rounds=5,
        claims=of_each_loop(client_claims), obstacle=pinning.obstacle,
        added=relstorages.versions),
    _campaign(
        'zeo_local', 'clients that read the data file themselves',
        [CONTESTANTS[OURS], *_LOCAL, SQLITE], local_races, rounds=5,
        claims=local_claims, obstacle=without_local_reads),
    _campaign(
        'zeo_2009', 'commits and reads over ZEO: the table of 2009',
        [*_SERVED, *_LOCAL, POSTGRESQL, PGJSONB, SQLITE],
        functools.partial(races_of_2009, HERE), rounds=3,
        added=relstorages.versions),
    _campaign(
        'zeo_remote', 'the same, with a network between server and clients',
        [RemoteSite(site) for site in (*_SERVED, POSTGRESQL)],
        functools.partial(races_of_2009, REMOTE), rounds=3,
        added=remote_added, obstacle=lambda directory: network.obstacle()),
    Campaign(
        'zeo_commits', 'commits over ZEO where something else takes time, too',
        [RemoteSite(CONTESTANTS[name]) for name in (STOCK, SERVER, OURS)],
        on_each_loop(commit_races), rounds=5,
        claims=of_each_loop(commit_claims), added=commits_added,
        obstacle=lambda directory: network.obstacle()),
]
