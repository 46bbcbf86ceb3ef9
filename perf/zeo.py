"""Commits and reads over ZEO: stock clients at two servers, and the table of
2009 beside the peers of today.

Client processes write and read small objects on this machine.  README.rst says
what each campaign measures, and how to read it.
"""

import dataclasses
import functools
import itertools

from fsyncstorage.timing import zeo
from fsyncstorage.timing.results.wording import added
from fsyncstorage.timing.results.wording import count
from fsyncstorage.timing.running import crew
from fsyncstorage.timing.running import population
from fsyncstorage.timing.running import zeosites
from fsyncstorage.timing.running.sampling import Race
from fsyncstorage.timing.running.zeosites import CONTESTANTS

from . import table2009
from .campaign import Campaign
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

#: Added to each sync: for a fast disk, for a slow one, and while reads beside
#: commits are timed.
FAST, SLOW, BESIDE = 0.0, 0.005, 0.05


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
    yield beside_race(sync_latency=BESIDE, **timed)


def races_of_2009(quick):
    each = [{'clients': clients, 'objects': objects, 'sync_latency': FAST,
             'loop': zeosites.loops()[-1], 'socket': True}
            for objects in ((4,) if quick else (1, 4, MANY))
            for clients in CLIENTS[quick]]
    return [
        *(zeo.write_race(seconds=SECONDS[quick] / 2, **one) for one in each),
        *(zeo.read_race(access='get', **one) for one in each)]


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
            site, [read, writer(site, seconds)])
    return {
        'reads': len(reads.durations),
        **crew.times(reads.durations),
        'commits': len(commits.durations),
    }


@crew.job
def writer(site, seconds, start):
    """A job that commits, and returns a stretch."""
    with crew.connected(site) as (manager, connection):
        one, = population.ghosts(connection, 'written')

        def change():
            with manager:
                one['number'] += 1

        change()
        start()
        return crew.timed(itertools.repeat(change), seconds)


# Claims

def of_each_loop(claims):
    """What a campaign claims, by a function of a loop; only about contestants
    that took part."""
    return lambda document: [
        dataclasses.replace(
            claim, words=f'{claim.words}, {loop}',
            settings={**claim.settings, 'loop': loop})
        for loop in sorted({
            race['settings']['loop'] for race in document['races']})
        for claim in claims()
        if claim.against in {None, *document['contestants']}]


def server_claims():
    for latency, at_least in (FAST, 1.3), (SLOW, 5):
        yield Claim(
            f'commits of 16 client processes, {added(latency)}', 'write',
            {'clients': CROWD, 'sync_latency': latency}, SERVER, against=STOCK,
            at_least=at_least)
    yield Claim(
        f'p99 of a cold read beside commits, {added(BESIDE)}',
        'read-beside-commit', {}, SERVER, 'p99_seconds', under=0.005)
    for clients in 1, CROWD:
        yield Claim(
            f'cold reads, {count(clients, "client")}', 'read',
            {'clients': clients}, SERVER, 'cold_per_second', against=STOCK,
            at_least=1.0)


# Campaigns

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
        'zeo_2009', 'commits and reads over ZEO: the table of 2009',
        [CONTESTANTS[STOCK], CONTESTANTS[OURS], *_LOCAL, POSTGRESQL, PGJSONB,
         SQLITE],
        races_of_2009, rounds=3, added=relstorages.versions),
]
