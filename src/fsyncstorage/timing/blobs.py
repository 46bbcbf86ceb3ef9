"""The command `fsync-time blobs`: how long a blob takes to read and write.

DESCRIPTION says what the workloads are.  A read loads the object of a blob,
opens the committed file and reads it to the end; a write makes a blob, writes
its file and commits it.  All clients read the same blobs, each its own copy.
The first request of each is not timed, because it opens files and connections.
"""

import dataclasses
import functools
import itertools
import os

from ZODB.blob import Blob

from . import arguments
from .contestants import CONTESTANTS as WITHOUT_SERVER
from .results import wording
from .running import crew
from .running import population
from .running import zeosites
from .running.sampling import Race

READ, WRITE = WORKLOADS = 'read', 'write'
WAYS = 'cold', 'cached', 'direct'

CLIENTS = arguments.Default([1, 4], [1])
SIZES = arguments.Default(
    [5 << 10, 50 << 10, 500 << 10, 5 << 20, 50 << 20], [5 << 10, 5 << 20])

#: Requests of each client, if they have no more bytes than the volume.
REQUESTS, QUICK_REQUESTS = 500, 50
VOLUME, QUICK_VOLUME = 150 << 20, 15 << 20
LEAST_REQUESTS = 3

#: A file is read in pieces, as by a program that sends it to a browser.
READ_SIZE = 1 << 18

FIGURES = 'per_second', 'bytes_per_second', 'p50_seconds'

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

A client makes {REQUESTS} requests, or fewer, but at least {LEAST_REQUESTS}, if
they would have more than {wording.size(VOLUME)}. The disk needs room for the
bytes of all clients and two more.
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
    WITHOUT_SERVER['filestorage'],
    WITHOUT_SERVER['fsync:group-commit'],
)}


def races(options):
    quick = options.quick
    common = {
        'requests': QUICK_REQUESTS if quick else REQUESTS,
        'volume': QUICK_VOLUME if quick else VOLUME,
        'loop': zeosites.loops()[-1],  # as ZEO does
        'socket': False,
    }
    return [
        make(clients=clients, size=size, sync_latency=latency, **common)
        for workload, make, latencies in (
            # Nothing is synced while blobs are read.
            (READ, read_race, [0.0]),
            (WRITE, write_race, options.sync_latency))
        if workload in (options.workload or WORKLOADS)
        for latency in latencies
        for clients in options.clients
        for size in options.sizes]


add_to = arguments.Command(
    'blobs', 'what it takes to read and to write a blob, by size',
    DESCRIPTION, CONTESTANTS,
    'zeo fsync-client --sizes 5KB,50MB --directory /srv/zeo', races, {
        '--workload': dict(
            action='append', choices=WORKLOADS,
            help='what to measure; can be repeated (default: both)'),
        '--sizes': dict(
            metavar='SIZE,...', type=arguments.several(arguments.size),
            default=SIZES,
            help='of the blobs (default: 5KB,50KB,500KB,5MB,50MB, or 5KB,5MB'
                 ' with --quick)'),
        '--clients': dict(
            type=arguments.several(arguments.positive), default=CLIENTS,
            metavar='N,...',
            help='how many processes at a time (default: %(default)s);'
                 ' a storage without a server takes part with one'),
    }).add_to


def read_race(**settings):
    return _race('blob-read', settings, read, WAYS)


def write_race(**settings):
    return _race('blob-write', settings, write, [WRITE])


def _race(workload, settings, measure, ways):
    return Race(
        workload, settings, measure,
        tuple(f'{way}_{figure}' for way in ways for figure in FIGURES),
        lambda contestant: settings['clients'] == 1 or not contestant.alone)


def number(size, requests, volume):
    """How many requests a client makes."""
    return max(LEAST_REQUESTS, min(requests, volume // size))


def read(contestant, directory, *, clients, size, requests, volume,
         **site_settings):
    """Time the reads of one contestant; return its figures."""
    with contestant.running(directory, **site_settings) as site:
        plant(site, number(size, requests, volume), size)
        results, usages = crew.processes(
            site, [_reader(site, contestant.ways, size)] * clients)
    figures = {}
    for way, usage, stretches in zip(contestant.ways, usages, zip(*results)):
        figures.update(_figures(way, size, stretches, usage))
    return figures


def plant(site, number, size):
    """Make this number of blobs, and a small one before them."""
    data = os.urandom(size)
    population.plant(site, lambda connection: {'blobs': [
        new_blob(connection, b'small'),
        *(new_blob(connection, data) for _ in range(number))]})
    # Otherwise the system would write them while reads are timed.
    os.sync()


def new_blob(connection, data):
    blob = Blob()
    # A blob of a connection is written to a directory of its storage, not to
    # the system's directory of temporary files.
    connection.add(blob)
    with blob.open('w') as file:
        file.write(data)
    return blob


@crew.job
def _reader(site, ways, size, start):
    """A job that returns a stretch for each of the ways."""
    with crew.connected(site) as (manager, connection):
        small, *blobs = population.ghosts(connection, 'blobs')
        read_file(small)
        found = []
        for way in ways:
            connection.cacheMinimize()
            start()
            found.append(crew.timed([
                functools.partial(_read_whole, manager, blob, size)
                for blob in blobs]))
        return found


def _read_whole(manager, blob, size):
    manager.begin()
    if (found := read_file(blob)) != size:
        raise EOFError(f'a blob of {size} bytes was read as one of {found}')


def read_file(blob):
    """Read it to the end; return how many bytes it has."""
    buffer = bytearray(READ_SIZE)
    total = 0
    with blob.open() as file:
        while length := file.readinto(buffer):
            total += length
    return total


def write(contestant, directory, *, clients, size, requests, volume,
          **site_settings):
    """Time the commits of one contestant; return its figures."""
    # The first one is not timed.
    contents = itertools.chain([b'small'], itertools.repeat(os.urandom(size)))

    def change(connection, objects):
        objects[0]['blob'] = new_blob(connection, next(contents))

    return _figures(WRITE, size, *population.changed(
        contestant, directory, clients, 1, change,
        times=number(size, requests, volume), **site_settings))


def _figures(way, size, stretches, usage):
    rates = crew.rates(way, stretches, usage)
    return {
        **rates,
        f'{way}_bytes_per_second': rates[f'{way}_per_second'] * size,
        **crew.percentiles(crew.durations(stretches), f'{way}_'),
    }
