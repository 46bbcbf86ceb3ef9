"""The command `fsync-time zeo`: what commits and reads take over ZEO.

It starts the servers that it compares, and stops them again.
"""

import argparse
import sys

from . import arguments
from . import light
from . import loops
from . import remote
from . import servers
from . import session
from . import wording
from . import zeotables

WORKLOADS = ('light', 'commit', 'cold', 'read-beside-commit')

DEFAULT_CONNECTIONS = [4, 16]
DEFAULT_COMMITTERS = [1, 4, 16]
DEFAULT_READERS = [1, 16]

SECONDS, QUICK_SECONDS = 3.0, 0.5

#: Added to the syncs while reads beside commits are timed.
READS_LATENCY = 0.05
_ADDED = wording.duration(READS_LATENCY)

DESCRIPTION = f"""\
Measure what commits and reads take over ZEO, between servers.

Each sample starts a server in a process of its own on an empty directory, and
stops it afterwards. The workloads:

  light               many connections, driven by one process that costs next
                      to nothing, commit one object of about 200 bytes at a
                      time: shows the limit of the server
  commit              stock clients, each in a process of its own, commit
  cold                stock clients read small objects with an empty cache, by
                      Connection.get and from ghost to ghost
  read-beside-commit  how long a cold read takes while another client commits
                      and {_ADDED} are added to each sync
"""

EPILOG = """\
examples:
  fsync-time zeo --quick --workload light
  fsync-time zeo zeo fsync-zeo --sync-latency 0,5ms --directory /srv/zeo
  fsync-time zeo --workload cold --clients 1,8 --loop both --json cold.json
"""


def add_to(commands):
    parser = commands.add_parser(
        'zeo',
        help='what commits and reads take over ZEO, by server',
        description=DESCRIPTION,
        epilog=(f'{arguments.contestants_help(servers.CONTESTANTS)}\n\n'
                f'{EPILOG}'),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    arguments.add_common(parser, servers.CONTESTANTS)
    parser.add_argument(
        '--workload', action='append', choices=WORKLOADS,
        help='what to measure; can be repeated (default: all)')
    parser.add_argument(
        '--connections', type=arguments.counts, default=DEFAULT_CONNECTIONS,
        metavar='N,...',
        help='of the workload light (default:'
             f' {_listed(DEFAULT_CONNECTIONS)})')
    parser.add_argument(
        '--clients', type=arguments.counts, metavar='N,...',
        help='of the workloads commit and cold (default:'
             f' {_listed(DEFAULT_COMMITTERS)} and {_listed(DEFAULT_READERS)})')
    parser.add_argument(
        '--seconds', type=float, metavar='S',
        help='how long a sample lasts, of all workloads but cold'
             f' (default: {SECONDS}, or {QUICK_SECONDS} with --quick)')
    parser.add_argument(
        '--loop', choices=[*loops.NAMES, 'both'],
        help='the event loop of servers and clients (default: uvloop where'
             ' it is installed, as ZEO does)')
    parser.add_argument(
        '--socket', action='store_true',
        help='use unix sockets, not TCP over the loopback interface')
    parser.set_defaults(run=lambda options: run(parser, options))


def run(parser, options):
    arguments.complete(parser, options)
    options.workload = options.workload or WORKLOADS
    options.loops = _loops(parser, options.loop)
    if options.seconds is None:
        options.seconds = QUICK_SECONDS if options.quick else SECONDS
    return session.run(options, 'zeo', races, zeotables.show)


def races(options, sync_seconds):
    found = []
    for loop in options.loops:
        server = {'loop': loop, 'socket': options.socket}
        timed = {'seconds': options.seconds, **server}
        if 'light' in options.workload:
            found += [
                light.race(connections=number, sync_latency=latency, **timed)
                for latency in options.sync_latency
                for number in options.connections]
        if 'commit' in options.workload:
            found += [
                remote.commit_race(
                    clients=number, sync_latency=latency, **timed)
                for latency in options.sync_latency
                for number in options.clients or DEFAULT_COMMITTERS]
        if 'cold' in options.workload:  # nothing is synced meanwhile
            found += [
                remote.cold_race(clients=number, sync_latency=0, **server)
                for number in options.clients or DEFAULT_READERS]
        if 'read-beside-commit' in options.workload:
            found.append(
                remote.beside_race(sync_latency=READS_LATENCY, **timed))
    return found


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


def _listed(numbers):
    return ','.join(map(str, numbers))
