"""The command `fsync-time blobs`: how long it takes to read and write a blob.

By size, over ZEO with a blob cache that is empty or filled, and without any
server.
"""

import dataclasses

from ..options import arguments
from ..options import contestants
from ..results import wording
from ..running import loops
from ..servers import zeosites
from . import work

READ, WRITE = WORKLOADS = 'read', 'write'

CLIENTS = arguments.Default([1, 4], [1])
SIZES = arguments.Default(
    [5 << 10, 50 << 10, 500 << 10, 5 << 20, 50 << 20], [5 << 10, 5 << 20])

DESCRIPTION = f"""\
Measure what it takes to read and to write a blob, by size.

Each sample starts a server on an empty directory, and stops it afterwards.
Clients are processes with a blob cache of their own. A request is a
transaction with one blob. The workloads:

  read    load the object of the blob, open its file and read it to the end:
          cold, with all caches of the client empty; cached, with the file in
          its blob cache; direct, where the storage has no server, or clients
          share the directory of the server. A storage of your own is read
          directly: from its blob cache, if it has one
  write   make a blob, write its file, and commit

A client makes {work.REQUESTS} requests, or fewer, but at least
{work.LEAST_REQUESTS}, if they would have more than
{wording.size(work.VOLUME)}. The disk needs room for the bytes of all clients
and two more.
"""


def _served(name, /, ways=zeosites.CACHE, **more):
    return dataclasses.replace(zeosites.CONTESTANTS[name], ways=ways, **more)


CONTESTANTS = {contestant.name: contestant for contestant in (
    _served('zeo'),
    _served(
        'zeo', zeosites.NO_CACHE, name='zeo:shared',
        summary='the same, clients share the directory of the server'),
    _served('fsync-client'),
    _served('fsync-client:zeo'),
    contestants.CONTESTANTS['filestorage'],
    contestants.CONTESTANTS['fsync:group-commit'],
)}


def add_to(commands):
    parser = arguments.add_measuring(
        commands, 'blobs',
        'what it takes to read and to write a blob, by size', DESCRIPTION,
        CONTESTANTS,
        'zeo fsync-client --sizes 5KB,50MB --directory /srv/zeo', races)
    parser.add_argument(
        '--workload', action='append', choices=WORKLOADS,
        help='what to measure; can be repeated (default: both)')
    parser.add_argument(
        '--sizes', metavar='SIZE,...',
        type=arguments.several(arguments.size), default=SIZES,
        help='of the blobs (default: 5KB,50KB,500KB,5MB,50MB, or 5KB,5MB with'
             ' --quick)')
    parser.add_argument(
        '--clients', type=arguments.several(arguments.positive),
        default=CLIENTS, metavar='N,...',
        help='how many processes at a time (default: %(default)s);'
             ' a storage without a server takes part with one')


def races(options):
    quick = options.quick
    common = {
        'requests': work.QUICK_REQUESTS if quick else work.REQUESTS,
        'volume': work.QUICK_VOLUME if quick else work.VOLUME,
        'loop': loops.installed()[-1],  # as ZEO does
        'socket': False,
    }
    return [
        make(clients=clients, size=size, sync_latency=latency, **common)
        for workload, make, latencies in (
            # Nothing is synced while blobs are read.
            (READ, work.read_race, [0.0]),
            (WRITE, work.write_race, options.sync_latency))
        if workload in (options.workload or WORKLOADS)
        for latency in latencies
        for clients in options.clients
        for size in options.sizes]
