"""The claims about the ZEO server, against stock ZEO, on this machine.

Runs `fsync-time zeo` with stock clients on both sides, under asyncio and,
where it is installed, uvloop, and compares what was measured with what the
project claims.  Writes `zeo_server.json` (all samples) and `zeo_server.txt`
(the tables and the claims).  README.rst says how to read them.
"""

import sys

import claims
import running
from fsyncstorage.timing.wording import added
from fsyncstorage.timing.wording import count
from fsyncstorage.timing.zeo import command as zeo
from fsyncstorage.timing.zeo import tables as zeotables

OURS, STOCK = 'fsync-zeo', 'zeo'

PARAMETERS = [
    'zeo', STOCK, OURS,
    *(f'--workload={name}' for name in zeo.WORKLOADS),
    '--connections', '4,16',
    '--clients', '1,16',
    '--objects', '1',
    '--sync-latency', '0,5ms',
    '--seconds', '2',
    '--loop', 'both',
]
ROUNDS = 5


def ratio(words, workload, at_least, figure='txn_per_second', **settings):
    return claims.Claim(
        f'{words}, {settings["loop"]}', workload, settings, OURS, figure,
        against=STOCK, at_least=at_least)


def of_loop(loop):
    for latency, light, real in (0.0, 2.5, 1.3), (0.005, 10, 5):
        yield ratio(
            f'commits of 16 light connections, {added(latency)}', 'light',
            light, connections=16, sync_latency=latency, loop=loop)
        yield ratio(
            f'commits of 16 client processes, {added(latency)}', 'write',
            real, clients=16, sync_latency=latency, loop=loop)
    yield claims.Claim(
        f'commits of 16 light connections against our own of 4, {loop}',
        'light', {'connections': 16, 'sync_latency': 0.0, 'loop': loop}, OURS,
        against=OURS, at_least=1.0, against_settings={
            'connections': 4, 'sync_latency': 0.0, 'loop': loop})
    yield claims.Claim(
        f'p99 of a cold read beside commits, {added(0.05)}, {loop}',
        'read-beside-commit', {'loop': loop}, OURS, 'p99_seconds', under=0.005)
    for clients in 1, 16:
        yield ratio(
            f'cold reads, {count(clients, "client")}', 'read', 1.0,
            'cold_per_second', clients=clients, loop=loop)


def show_claims(document, console):
    loops = {race['settings']['loop'] for race in document['races']}
    return claims.show(
        [claim for loop in sorted(loops) for claim in of_loop(loop)],
        document, console)


if __name__ == '__main__':
    sys.exit(running.campaign(
        'zeo_server', __doc__, PARAMETERS, ROUNDS, zeotables.show,
        show_claims))
