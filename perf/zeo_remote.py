"""Commits and reads over ZEO, with a network between server and clients.

What one sends to the other arrives half a millisecond later, as between two
machines.  They still share the processors of this one, and the process that
passes on the packets takes its part of them; nothing limits the bandwidth, and
nothing is lost.  It needs Linux, and root, for it makes network devices.
"""

import contextlib
import dataclasses

from fsyncstorage.timing import loops
from fsyncstorage.timing import pinning
from fsyncstorage.timing.wording import duration
from fsyncstorage.timing.zeo import reading
from fsyncstorage.timing.zeo import writing
from fsyncstorage.timing.zeo.sites import CONTESTANTS

from . import network
from . import table2009
from .campaign import Campaign
from .campaign import missing
from .peers import relstorages

#: Each way: a round trip has it twice.
DELAY = 0.0005

SECONDS, QUICK_SECONDS = 1.0, 0.5


class RemoteSite:
    """A contestant, with its clients in a network of their own."""

    def __init__(self, site):
        self._site = dataclasses.replace(site, host=network.SERVER)
        self.name, self.summary = site.name, site.summary
        self.can_be_slowed = site.can_be_slowed
        self.takes_light_clients = site.takes_light_clients

    def missing(self):
        return missing(self._site)

    @contextlib.contextmanager
    def running(self, directory, *, network_delay, **settings):
        with network.network(network_delay) as apart:
            apart.enter_server()
            with self._site.running(directory, **settings) as site:
                apart.enter_clients()
                yield site


def races(quick, sync_seconds):
    site = {'loop': loops.installed()[-1], 'pin': pinning.FREE,
            'socket': False, 'sync_latency': 0.0, 'network_delay': DELAY}
    clients, objects, seconds = (
        ((1,), (4,), QUICK_SECONDS) if quick
        else ((1, 4, 16), (1, 334), SECONDS))
    each = [{'clients': number, 'objects': amount, **site}
            for amount in objects for number in clients]
    return [*(writing.race(seconds=seconds, **settings) for settings in each),
            *(reading.race(access='get', **settings) for settings in each)]


def added(contestants):
    yield (
        f'Server and clients are in two networks, {duration(DELAY)} added each'
        ' way: a round trip takes'
        f' {duration(network.round_trip(DELAY))} (measured).')
    yield from relstorages.versions(contestants)


CAMPAIGNS = [Campaign(
    'zeo_remote', 'the same, with a network between server and clients',
    [RemoteSite(site) for site in (
        CONTESTANTS['zeo'], CONTESTANTS['fsync-client'],
        relstorages.POSTGRESQL)],
    races, rounds=5, show=table2009.show_zeo, added=added,
    obstacle=lambda directory: network.obstacle())]
