"""The claims about our ZEO client, against stock ZEO and RelStorage.

Client processes read and write small objects over TCP on this machine, by
`FsyncClient` at `fsync-runzeo` and by the client of ZEO at its own server;
RelStorage over PostgreSQL and SQLite takes part where it is installed.  Reads
have 334 objects a transaction; a single client is pinned, to the processor of
its server or to another one.  Servers and clients of ZEO run on asyncio and,
where it is installed, on uvloop; the read channels of FsyncClient run on no
event loop.  README.rst says how to read them.
"""

import dataclasses

from fsyncstorage.timing.results.wording import count
from fsyncstorage.timing.running import loops
from fsyncstorage.timing.servers.zeosites import CONTESTANTS
from fsyncstorage.timing.zeo import reading
from fsyncstorage.timing.zeo import writing

from . import pinning
from . import table2009
from .campaign import Campaign
from .claims import Claim
from .peers import relstorages

STOCK, OURS = 'zeo', 'fsync-client'
POSTGRESQL = relstorages.POSTGRESQL.name

SECONDS = 2.0, 0.5  # of a sample of writes; and in a quick run

MANY = 334  # objects in a transaction
CROWD = 16  # clients

#: Two equal contestants differ by up to this factor from run to run.
NOISE = 1.1

PINNED = {
    pinning.SAME: ' on the processor of its server',
    pinning.ACROSS: ' on another processor',
    pinning.FREE: '',
}


def races(quick):
    site = {'socket': False, 'sync_latency': 0.0}
    reads = [(1, pinning.SAME), (1, pinning.ACROSS), (CROWD, pinning.FREE)]
    writes = [(1, MANY), (CROWD, 1)]
    return [race for loop in loops.installed() for race in [
        *(reading.race(clients=clients, objects=MANY, access=access, pin=pin,
                       loop=loop, **site)
          for clients, pin in reads for access in reading.ACCESSES),
        *(writing.race(clients=clients, objects=objects, pin=pinning.FREE,
                       seconds=SECONDS[quick], loop=loop, **site)
          for clients, objects in writes)]]


def of_reads(how, figure, access, pin, clients=1, against=STOCK, **options):
    return Claim(
        f'{how}, {access}, {count(clients, "client")}{PINNED[pin]},'
        f' against {against}',
        'read', {'clients': clients, 'access': access, 'pin': pin},
        OURS, figure, against=against, **options)


def of_one_client(pin, most):
    for access in reading.ACCESSES:
        yield of_reads(
            'cold read', 'cold_p50_seconds', access, pin, under=most)
        yield of_reads(
            'cold read', 'cold_p50_seconds', access, pin, under=1.0,
            against=POSTGRESQL)
        yield of_reads(
            f'prefetch of {MANY} and reads, to cold reads',
            'prefetch_seconds', access, pin, under=0.2,
            against_figure='cold_seconds')
        for how in 'hot', 'steamin':
            yield of_reads(
                f'{how} read', f'{how}_p50_seconds', access, pin, under=NOISE)


CLAIMS = [
    *of_one_client(pinning.SAME, 1 / 3),
    *of_one_client(pinning.ACROSS, 0.55),
    *(of_reads(
        'cold objects a second', 'cold_per_second', access, pinning.FREE,
        CROWD, against, at_least=least)
      for access, against, least in (
          ('get', STOCK, 2.2), ('ghosts', STOCK, 3.0),
          ('ghosts', POSTGRESQL, 1.4))),
    Claim(
        f'commit of {count(MANY, "object")}, 1 client, against {STOCK}',
        'write', {'clients': 1, 'objects': MANY}, OURS, 'p50_seconds',
        against=STOCK, under=0.5),
    Claim(
        f'commits of 1 object a second, {CROWD} clients, against {STOCK}',
        'write', {'clients': CROWD, 'objects': 1}, OURS, against=STOCK,
        at_least=2.0),
]


def claims(document):
    """For each loop, the claims about contestants that took part."""
    measured = {race['settings']['loop'] for race in document['races']}
    return [
        dataclasses.replace(
            claim, words=f'{claim.words}, {loop}',
            settings={**claim.settings, 'loop': loop})
        for loop in sorted(measured) for claim in CLAIMS
        if claim.against in document['contestants']]


CAMPAIGNS = [Campaign(
    'zeo_client', 'commits and reads of the clients, and of the peers',
    [pinning.PinnedSite(site) for site in (
        CONTESTANTS[STOCK], CONTESTANTS[OURS], relstorages.POSTGRESQL,
        relstorages.SQLITE)],
    races, rounds=5, claims=claims, show=table2009.show_zeo, command='zeo',
    obstacle=pinning.obstacle, added=relstorages.versions)]
