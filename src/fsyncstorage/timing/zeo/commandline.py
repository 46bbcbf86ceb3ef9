"""The command `fsync-time zeo`: what commits and reads take over ZEO.

It starts the servers that it compares, and stops them again.
"""

from ..options import arguments
from ..results import wording
from ..running import loops
from ..servers.zeosites import CONTESTANTS
from . import light
from . import reading
from . import writing

WORKLOADS = ('write', 'read', 'light', 'read-beside-commit')

#: Those of the experiment of Jim Fulton.
DEFAULT_WORKLOADS = ('write', 'read')

CLIENTS = arguments.Default([1, 2, 4, 8, 16], [1, 4])
OBJECTS = arguments.Default([1, 4, 334], [4])
SECONDS = arguments.Default(3.0, 0.5)

#: Added to the syncs while reads beside commits are timed.
READS_LATENCY = 0.05
_LONGER = wording.duration(READS_LATENCY)

DESCRIPTION = f"""\
Measure what commits and reads take over ZEO, by server and client.

Each sample starts a server on an empty directory, and stops it afterwards.
Clients are processes of their own. The workloads:

  write               each client changes small objects of its own
  read                each client reads small objects: cold, with ZODB's cache
                      and the client's own empty; hot, with the client's own
                      filled; steamin, with both filled; and cold again, each
                      transaction prefetching what it reads
  light               many connections, driven by one process that costs next
                      to nothing, commit one object of about 200 bytes at a
                      time: shows the limit of the server (contestants with
                      the client of ZEO only)
  read-beside-commit  how long a cold read takes while another client commits
                      and each sync takes {_LONGER} longer

Without --workload these are write and read: what Jim Fulton measured in 2009.
"""


def add_to(commands):
    parser = arguments.add_measuring(
        commands, 'zeo',
        'what commits and reads take over ZEO, by server and client',
        DESCRIPTION, CONTESTANTS,
        'zeo fsync-client --objects 334 --directory /srv/zeo', races)
    counts = arguments.several(arguments.positive)
    parser.add_argument(
        '--workload', action='append', choices=WORKLOADS,
        help='what to measure; can be repeated (default:'
             f' {" and ".join(DEFAULT_WORKLOADS)})')
    parser.add_argument(
        '--clients', type=counts, default=CLIENTS, metavar='N,...',
        help='how many clients at a time: processes, or the connections of'
             ' the workload light (default: %(default)s)')
    parser.add_argument(
        '--objects', type=counts, default=OBJECTS, metavar='N,...',
        help='how many in a transaction, of the workloads write and read'
             ' (default: %(default)s)')
    parser.add_argument(
        '--seconds', type=arguments.seconds, default=SECONDS, metavar='TIME',
        help='how long a sample lasts, of all workloads but read'
             ' (default: %(default)s)')
    installed = loops.installed()
    parser.add_argument(
        '--loop', choices=installed, default=installed[-1],
        help='the event loop of servers and clients (default: uvloop where'
             ' it is installed, as ZEO does)')


def races(options):
    site = {'loop': options.loop, 'socket': False}
    timed = {'seconds': options.seconds, **site}
    by_workload = {
        'write': [
            writing.race(clients=clients, objects=objects,
                         sync_latency=latency, **timed)
            for latency in options.sync_latency
            for objects in options.objects
            for clients in options.clients],
        'read': [  # a read syncs nothing
            reading.race(clients=clients, objects=objects, access='get',
                         sync_latency=0.0, **site)
            for objects in options.objects
            for clients in options.clients],
        'light': [
            light.race(connections=clients, sync_latency=latency, **timed)
            for latency in options.sync_latency
            for clients in options.clients],
        'read-beside-commit': [
            reading.beside_race(sync_latency=READS_LATENCY, **timed)],
    }
    return [race for workload in WORKLOADS
            if workload in (options.workload or DEFAULT_WORKLOADS)
            for race in by_workload[workload]]
