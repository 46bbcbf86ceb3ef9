"""Cold reads over ZEO, of a server whose data are on the disk alone.

A new database is completely in memory; a large one is not, and there the disk
decides what a cold read costs.  Before each series of cold reads, the data
file is dropped from the page cache; the objects are far apart in it, nothing
is read ahead, and each client reads objects of its own: so no read helps
another one.

This is measured with the disk as it is, and with 8 ms added to each read,
which is what a spinning disk takes.  The tables say how many reads an object
took: about one, because the system may keep some pages that it was told to
drop, and clients also have to read the list of their objects.
"""

import dataclasses
import os

from persistent.mapping import PersistentMapping

from fsyncstorage.timing.results.wording import duration
from fsyncstorage.timing.running import crew
from fsyncstorage.timing.running import loops
from fsyncstorage.timing.running.campaign import Race
from fsyncstorage.timing.running.population import small_object
from fsyncstorage.timing.servers.zeosites import CONTESTANTS
from fsyncstorage.timing.servers.zeosites import DATA_FILE
from fsyncstorage.timing.zeo import reading

from . import colddisk
from .campaign import Campaign

#: Seconds added to a read of the disk.
LATENCIES = 0.0, 0.008

#: How many each client reads; and in a quick run.
OBJECTS = 334, 20

#: Longer than what is read for a small object.
_SPACE = 'x' * (8 << 10)

#: The figures with the number of reads of the disk, by what is timed.
MISSES = {'cold': 'cold_misses', 'prefetch': 'prefetch_misses'}


def cold(site):
    """A contestant whose server waits for the disk."""
    return dataclasses.replace(site, program=colddisk.__name__)


def races(quick):
    site = {'loop': loops.installed()[-1], 'socket': False,
            'sync_latency': 0.0}
    return [
        race(clients=clients, objects=1, access='get', read_latency=latency,
             planted=OBJECTS[quick], **site)
        for latency in LATENCIES for clients in ((1,) if quick else (1, 4))]


def race(**settings):
    return Race('read', settings, measure, (
        'cold_per_second', 'cold_p50_seconds', 'prefetch_per_second',
        *MISSES.values()))


def measure(contestant, directory, *, clients, objects, access, planted,
            **site_settings):
    """Time the reads of one contestant; return its figures."""
    figures = {}
    with contestant.running(directory, **site_settings) as site:
        groups = [reading.Group(*group, access, objects)
                  for group in plant(site, clients, planted)]
        for missed, ways in zip(
                MISSES.values(), (reading.ONE_BY_ONE, reading.PREFETCH)):
            colddisk.drop(os.path.join(directory, DATA_FILE))
            before = site.server.usage()['misses']
            figures.update(reading.read(site, groups, ways))
            misses = site.server.usage()['misses'] - before
            figures[missed] = misses / (
                clients * (planted - planted % objects))
    return figures


def plant(site, clients, number):
    """Names and oids of groups of objects, one for each client.

    No two objects are on the same page of a data file: it has the objects in
    the order in which ZODB meets them, and a large one between any two.
    """

    def job(start):
        made = {
            f'of client {client}': [small_object(n) for n in range(number)]
            for client in range(clients)}
        with crew.connected(site) as (manager, connection):
            for group, objects in made.items():
                connection.root()[group] = PersistentMapping(
                    spaced=[(one, PersistentMapping(filling=_SPACE))
                            for one in objects],
                    all=objects)
            manager.commit()
            return [(group, [one._p_oid for one in objects])
                    for group, objects in made.items()]

    return crew.processes(site, [job]).results[0]


def added(contestants):
    yield (
        'Objects were dropped from the page cache before cold reads, and'
        f' {" or ".join(map(duration, LATENCIES))} added to each read of one.')


CAMPAIGNS = [Campaign(
    'zeo_cold', 'cold reads over ZEO, of a server that has to read its disk',
    [cold(CONTESTANTS['zeo']), cold(CONTESTANTS['fsync-client'])],
    races, rounds=5, added=added, obstacle=colddisk.obstacle)]
