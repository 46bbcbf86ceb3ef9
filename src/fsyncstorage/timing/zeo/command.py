"""The command `fsync-time zeo`: what commits and reads take over ZEO.

It starts the servers that it compares, and stops them again.
"""

import argparse
import sys

from .. import arguments
from .. import custom
from .. import loops
from .. import pinning
from .. import wording
from . import beside
from . import light
from . import reading
from . import sites
from . import tables
from . import writing

WORKLOADS = ('write', 'read', 'light', 'read-beside-commit')

#: Those of the experiment of 2009.
DEFAULT_WORKLOADS = ('write', 'read')
DEFAULT_CLIENTS, QUICK_CLIENTS = [1, 2, 4, 8, 16], [1, 4]
DEFAULT_OBJECTS, QUICK_OBJECTS = [1, 4, 334], [4]
DEFAULT_CONNECTIONS = [4, 16]

SECONDS, QUICK_SECONDS = 3.0, 0.5

#: Added to the syncs while reads beside commits are timed.
READS_LATENCY = 0.05
_ADDED = wording.duration(READS_LATENCY)

_LIGHT = ', '.join(
    name for name, contestant in sites.CONTESTANTS.items()
    if contestant.takes_light_clients)

DESCRIPTION = f"""\
Measure what commits and reads take over ZEO, by server and client.

Each sample starts a server in a process of its own on an empty directory, and
stops it afterwards. Clients are processes of their own, too. The workloads:

  write               each client changes small objects of its own
  read                each client reads small objects: cold, with ZODB's cache
                      and the client's own empty; hot, with the client's own
                      filled; steamin, with both filled; and cold again, each
                      transaction prefetching what it reads
  light               many connections, driven by one process that costs next
                      to nothing, commit one object of about 200 bytes at a
                      time: shows the limit of the server ({_LIGHT})
  read-beside-commit  how long a cold read takes while another client commits
                      and {_ADDED} are added to each sync

Without --workload these are write and read: what Jim Fulton measured in 2009.

Server and clients are on this machine, and the server has all that it reads in
memory.
"""

EPILOG = """\
examples:
  fsync-time zeo --quick
  fsync-time zeo zeo fsync-client --objects 334 --directory /srv/zeo
  fsync-time zeo --workload read --clients 1 --access ghosts --pin same
  fsync-time zeo --workload light --sync-latency 0,5ms --loop both
"""


def add_to(commands):
    parser = commands.add_parser(
        'zeo',
        help='what commits and reads take over ZEO, by server and client',
        description=DESCRIPTION,
        epilog=(f'{arguments.contestants_help(sites.CONTESTANTS)}\n\n'
                f'{EPILOG}'),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    arguments.add_common(parser, sites.CONTESTANTS)
    parser.add_argument(
        '--workload', action='append', choices=WORKLOADS,
        help='what to measure; can be repeated (default:'
             f' {" and ".join(DEFAULT_WORKLOADS)})')
    parser.add_argument(
        '--clients', type=arguments.counts, metavar='N,...',
        help='so many processes at a time, of the workloads write and read'
             f' ({_default(DEFAULT_CLIENTS, QUICK_CLIENTS)})')
    parser.add_argument(
        '--objects', type=arguments.counts, metavar='N,...',
        help='so many in a transaction, of the workloads write and read'
             f' ({_default(DEFAULT_OBJECTS, QUICK_OBJECTS)})')
    parser.add_argument(
        '--connections', type=arguments.counts, default=DEFAULT_CONNECTIONS,
        metavar='N,...',
        help='so many at a time, of the workload light (default:'
             f' {_listed(DEFAULT_CONNECTIONS)})')
    parser.add_argument(
        '--access', choices=reading.ACCESSES, default='get',
        help='read by Connection.get, or walk over ghosts that are there'
             ' already (default: get)')
    parser.add_argument(
        '--seconds', type=arguments.seconds, metavar='TIME',
        help='how long a sample lasts, of all workloads but read'
             f' (default: {SECONDS}, or {QUICK_SECONDS} with --quick)')
    parser.add_argument(
        '--loop', choices=[*loops.NAMES, 'both'],
        help='the event loop of servers and clients (default: uvloop where'
             ' it is installed, as ZEO does)')
    parser.add_argument(
        '--pin', choices=[pinning.SAME, pinning.ACROSS], default=pinning.FREE,
        help='clients and server on the same processor, or across two'
             ' (default: wherever the system puts them)')
    parser.add_argument(
        '--socket', action='store_true',
        help='use unix sockets, not TCP over the loopback interface')
    parser.set_defaults(run=lambda options: run(parser, options))


def run(parser, options):
    options.loops = _loops(parser, options.loop)
    if obstacle := pinning.obstacle(options.pin):
        parser.error(f'--pin {options.pin}: {obstacle}')
    arguments.complete(parser, options)
    options.workload = options.workload or DEFAULT_WORKLOADS
    for name, usual, quick in (
            ('clients', DEFAULT_CLIENTS, QUICK_CLIENTS),
            ('objects', DEFAULT_OBJECTS, QUICK_OBJECTS),
            ('seconds', SECONDS, QUICK_SECONDS)):
        if getattr(options, name) is None:
            setattr(options, name, quick if options.quick else usual)
    return custom.run(options, 'zeo', races, tables.show)


def races(options, sync_seconds):
    return [
        race for loop in options.loops
        for race in _races(options, {
            'loop': loop, 'socket': options.socket, 'pin': options.pin})]


def _races(options, site):
    timed = {'seconds': options.seconds, **site}
    if 'write' in options.workload:
        yield from (
            writing.race(clients=clients, objects=objects,
                         sync_latency=latency, **timed)
            for latency in options.sync_latency
            for objects in options.objects
            for clients in options.clients)
    if 'read' in options.workload:  # nothing is synced meanwhile
        yield from (
            reading.race(clients=clients, objects=objects,
                         access=options.access, sync_latency=0.0, **site)
            for objects in options.objects
            for clients in options.clients)
    if 'light' in options.workload:
        yield from (
            light.race(connections=number, sync_latency=latency, **timed)
            for latency in options.sync_latency
            for number in options.connections)
    if 'read-beside-commit' in options.workload:
        yield beside.race(sync_latency=READS_LATENCY, **timed)


def _loops(parser, wanted):
    installed = loops.installed()
    if wanted is None:
        return installed[-1:]
    if wanted == 'both':
        for name in set(loops.NAMES) - set(installed):
            print(f'{parser.prog}: {name} is not installed, and left out',
                  file=sys.stderr)
        return installed
    if wanted not in installed:
        parser.error(f'{wanted} is not installed')
    return [wanted]


def _default(usual, quick):
    usual, quick = (_listed(numbers) for numbers in (usual, quick))
    return f'default: {usual}, or {quick} with --quick'


def _listed(numbers):
    return ','.join(map(str, numbers))
