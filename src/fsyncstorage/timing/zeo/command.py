"""The command `fsync-time zeo`: what commits and reads take over ZEO.

It starts the servers that it compares, and stops them again.
"""

import argparse
import sys

from .. import arguments
from .. import custom
from .. import loops
from .. import pagecache
from .. import pinning
from .. import wording
from ..servers import remote
from . import beside
from . import light
from . import phrases
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

Without --workload these are write and read: what Jim Fulton measured in 2009,
and the table has his columns and rows.

Server and clients are on this machine. With --remote they are in two networks,
and what they send to each other is held up on the way: it takes as long as
between two machines, but they still share the processors, and a process that
holds it up takes its part of them.

The server has all that it reads in memory. With --cold-disk it has not: each
object is dropped from the page cache before cold reads, far from all others in
the file, and each client reads objects of its own, as in a large database.

RelStorage takes part where it is installed, with the database. It has no event
loop, its syncs cannot be slowed, and it asks for changes at the begin of each
transaction, which counts in the time of a transaction, not of an object.
"""

EPILOG = """\
examples:
  fsync-time zeo --quick
  fsync-time zeo zeo fsync-client --objects 334 --directory /srv/zeo
  fsync-time zeo --workload read --clients 1 --access ghosts --pin same
  fsync-time zeo --workload light --sync-latency 0,5ms --loop both
  fsync-time zeo zeo fsync-client --remote 500us
  fsync-time zeo --workload read --cold-disk --read-latency 8ms --clients 4
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
    transport = parser.add_mutually_exclusive_group()
    transport.add_argument(
        '--socket', action='store_true',
        help='use unix sockets, not TCP over the loopback interface')
    transport.add_argument(
        '--remote', type=arguments.latency, metavar='TIME',
        help='put server and clients in two networks, and add this to the way'
             ' from one to the other: a round trip has it twice; needs root')
    parser.add_argument(
        '--cold-disk', action='store_true',
        help='drop the data file from the page cache before each cold stretch'
             ' of the workload read')
    parser.add_argument(
        '--read-latency', type=arguments.latency, metavar='TIME',
        help='with --cold-disk, add this to each read that has to wait for the'
             ' disk (default: 0)')
    parser.set_defaults(run=lambda options: run(parser, options))


def run(parser, options):
    options.loops = _loops(parser, options.loop)
    if obstacle := pinning.obstacle(options.pin):
        parser.error(f'--pin {options.pin}: {obstacle}')
    _check_remote(parser, options)
    _check_cold_disk(parser, options)
    options.contestants = arguments.able(
        parser, options, lambda one: _obstacle(one, options))
    arguments.complete(parser, options)
    options.workload = options.workload or DEFAULT_WORKLOADS
    for name, usual, quick in (
            ('clients', DEFAULT_CLIENTS, QUICK_CLIENTS),
            ('objects', DEFAULT_OBJECTS, QUICK_OBJECTS),
            ('seconds', SECONDS, QUICK_SECONDS)):
        if getattr(options, name) is None:
            setattr(options, name, quick if options.quick else usual)
    return custom.run(
        options, 'zeo', races, tables.show, added=added)


def added(options):
    """Sentences: what was added to anything but syncs."""
    if options.remote is not None:
        yield phrases.network(
            options.remote, remote.round_trip(options.remote))
    if options.cold_disk:
        yield phrases.cold_disk(options.read_latency)


def races(options, sync_seconds):
    return [
        race for loop in options.loops
        for race in _races(options, {
            'loop': loop, 'socket': options.socket, 'pin': options.pin,
            **_if_any(network_delay=options.remote)})]


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
                         access=options.access, sync_latency=0.0,
                         **_if_any(read_latency=options.read_latency), **site)
            for objects in options.objects
            for clients in options.clients)
    if 'light' in options.workload:
        yield from (
            light.race(connections=number, sync_latency=latency, **timed)
            for latency in options.sync_latency
            for number in options.connections)
    if 'read-beside-commit' in options.workload:
        yield beside.race(sync_latency=READS_LATENCY, **timed)


def _if_any(**settings):
    return {name: value for name, value in settings.items()
            if value is not None}


def _check_remote(parser, options):
    if options.remote is not None and (obstacle := remote.obstacle()):
        parser.error(f'--remote: {obstacle}')


def _check_cold_disk(parser, options):
    if options.cold_disk:
        if 'read' not in (options.workload or DEFAULT_WORKLOADS):
            parser.error('--cold-disk is of the workload read')
        if obstacle := pagecache.obstacle(options.directory):
            parser.error(f'--cold-disk: {obstacle}')
        options.read_latency = options.read_latency or 0.0
    elif options.read_latency is not None:
        parser.error('--read-latency needs --cold-disk')


def _obstacle(contestant, options):
    """Why it cannot take part, or None."""
    if options.remote is not None and not contestant.can_be_remote:
        return 'it has no server that could be remote'
    if options.cold_disk and not contestant.can_be_cold:
        return 'what it has read cannot be dropped from its memory'
    return contestant.missing()


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
