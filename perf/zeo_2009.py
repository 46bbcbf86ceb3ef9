"""Commits and reads over ZEO: the table of 2009, on this machine.

The rows and columns are those of the post, for ZEO; for ours, also with a
client that reads the data file itself; and for RelStorage over PostgreSQL and
SQLite where they are installed.  `zeo_2009` is over unix sockets, as in the
post.  `zeo_remote` has server and clients in two networks: what one sends to
the other arrives half a millisecond later, as between two machines.  They
still share the processors of this one, and the process that passes on the
packets takes its part of them; nothing limits the bandwidth, and nothing is
lost.  README.rst says how to read them.
"""

import contextlib
import dataclasses
import functools

from fsyncstorage.timing.results.wording import duration
from fsyncstorage.timing.running import loops
from fsyncstorage.timing.servers.zeosites import CONTESTANTS
from fsyncstorage.timing.zeo import reading
from fsyncstorage.timing.zeo import writing

from . import network
from . import table2009
from .campaign import Campaign
from .campaign import missing
from .peers import relstorages

#: In a full run, and in a quick run.
CLIENTS = (1, 2, 4, 8, 16), (1, 4)
OBJECTS = (1, 4, 334), (4,)
SECONDS = 1.0, 0.5

HERE = {'socket': True}
#: The delay is for one way: a round trip has it twice.
REMOTE = {'socket': False, 'network_delay': 0.0005}


class RemoteSite:
    """A contestant, with its clients in a network of their own."""

    def __init__(self, site):
        self._site = dataclasses.replace(site, host=network.SERVER)
        self.name, self.summary = site.name, site.summary
        self.can_be_slowed = site.can_be_slowed
        self.missing = functools.partial(missing, site)

    @contextlib.contextmanager
    def running(self, directory, *, network_delay, **settings):
        with network.network(network_delay) as apart:
            apart.enter_server()
            with self._site.running(directory, **settings) as site:
                apart.enter_clients()
                yield site


def races(where, quick):
    each = [{'clients': clients, 'objects': objects, 'sync_latency': 0.0,
             'loop': loops.installed()[-1], **where}
            for objects in OBJECTS[quick] for clients in CLIENTS[quick]]
    return [
        *(writing.race(seconds=SECONDS[quick], **place) for place in each),
        *(reading.race(access='get', **place) for place in each)]


def added(contestants):
    delay = REMOTE['network_delay']
    yield (
        f'Server and clients are in two networks, {duration(delay)} added each'
        ' way: a round trip takes'
        f' {duration(network.round_trip(delay))} (measured).')
    yield from relstorages.versions(contestants)


_SERVED = CONTESTANTS['zeo'], CONTESTANTS['fsync-client']
# Only where local reads are possible.
_LOCAL = [site for name, site in CONTESTANTS.items()
          if name == 'fsync-client:local']

CAMPAIGNS = [
    Campaign(
        'zeo_2009', 'commits and reads over ZEO: the table of 2009',
        [*_SERVED, *_LOCAL, relstorages.POSTGRESQL, relstorages.SQLITE],
        functools.partial(races, HERE), rounds=3, show=table2009.show_zeo,
        command='zeo', added=relstorages.versions),
    Campaign(
        'zeo_remote', 'the same, with a network between server and clients',
        [RemoteSite(site) for site in (*_SERVED, relstorages.POSTGRESQL)],
        functools.partial(races, REMOTE), rounds=3, show=table2009.show_zeo,
        command='zeo', added=added,
        obstacle=lambda directory: network.obstacle()),
]
