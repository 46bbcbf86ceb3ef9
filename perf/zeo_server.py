"""The ZEO server against stock, with stock clients.

Light connections show the limit of the server; client processes show what is
left of it for real clients; and cold reads are timed while another client
commits.  All of this runs under asyncio and, where it is installed, uvloop.
README.rst says how to read them.
"""

from fsyncstorage.timing.results.wording import added
from fsyncstorage.timing.results.wording import count
from fsyncstorage.timing.running import loops
from fsyncstorage.timing.servers.zeosites import CONTESTANTS
from fsyncstorage.timing.zeo import light
from fsyncstorage.timing.zeo import reading
from fsyncstorage.timing.zeo import writing

from . import table2009
from .campaign import Campaign
from .claims import Claim

OURS, STOCK = 'fsync-zeo', 'zeo'

SECONDS = 2.0, 0.5  # of a sample; and in a quick run

CONNECTIONS, CLIENTS = (4, 16), (1, 16)

#: Added to each sync: for a fast disk, for a slow one, and while reads beside
#: commits are timed.
FAST, SLOW, BESIDE = 0.0, 0.005, 0.05


def races(quick):
    return [race for loop in loops.installed() for race in races_on(
        SECONDS[quick], loop=loop, socket=False)]


def races_on(seconds, **site):
    timed = {'seconds': seconds, **site}
    return [
        *(writing.race(
            clients=number, objects=1, sync_latency=latency, **timed)
          for latency in (FAST, SLOW) for number in CLIENTS),
        *(reading.race(
            clients=number, objects=1, access='get', sync_latency=FAST, **site)
          for number in CLIENTS),
        *(light.race(connections=number, sync_latency=latency, **timed)
          for latency in (FAST, SLOW) for number in CONNECTIONS),
        reading.beside_race(sync_latency=BESIDE, **timed)]


def ratio(words, workload, at_least, figure='txn_per_second', **settings):
    return Claim(
        f'{words}, {settings["loop"]}', workload, settings, OURS, figure,
        against=STOCK, at_least=at_least)


def of_loop(loop):
    for latency, of_light, real in (FAST, 2.5, 1.3), (SLOW, 10, 5):
        yield ratio(
            f'commits of 16 light connections, {added(latency)}', 'light',
            of_light, connections=16, sync_latency=latency, loop=loop)
        yield ratio(
            f'commits of 16 client processes, {added(latency)}', 'write',
            real, clients=16, sync_latency=latency, loop=loop)
    yield Claim(
        f'commits of 16 light connections against our own of 4, {loop}',
        'light', {'connections': 16, 'sync_latency': FAST, 'loop': loop}, OURS,
        against=OURS, at_least=1.0, against_settings={
            'connections': 4, 'sync_latency': FAST, 'loop': loop})
    yield Claim(
        f'p99 of a cold read beside commits, {added(BESIDE)}, {loop}',
        'read-beside-commit', {'loop': loop}, OURS, 'p99_seconds', under=0.005)
    for clients in CLIENTS:
        yield ratio(
            f'cold reads, {count(clients, "client")}', 'read', 1.0,
            'cold_per_second', clients=clients, loop=loop)


def claims(document):
    measured = {race['settings']['loop'] for race in document['races']}
    return [claim for loop in sorted(measured) for claim in of_loop(loop)]


CAMPAIGNS = [Campaign(
    'zeo_server', 'commits and cold reads of stock clients, at two servers',
    [CONTESTANTS[STOCK], CONTESTANTS[OURS]], races, rounds=5, claims=claims,
    show=table2009.show_zeo, command='zeo')]
