"""Commits and reads over ZEO: the table of 2009, on this machine.

The rows and columns of the post, over unix sockets as it did: ZEO, ours, and
RelStorage over PostgreSQL and SQLite where they are installed.  README.rst
says how to read them.
"""

from fsyncstorage.timing import loops
from fsyncstorage.timing import pinning
from fsyncstorage.timing.zeo import reading
from fsyncstorage.timing.zeo import writing
from fsyncstorage.timing.zeo.sites import CONTESTANTS

from . import table2009
from .campaign import Campaign
from .peers import relstorages

CLIENTS, QUICK_CLIENTS = (1, 2, 4, 8, 16), (1, 4)
OBJECTS, QUICK_OBJECTS = (1, 4, 334), (4,)
SECONDS, QUICK_SECONDS = 1.0, 0.5


def races(quick, sync_seconds):
    site = {'loop': loops.installed()[-1], 'pin': pinning.FREE, 'socket': True,
            'sync_latency': 0.0}
    clients, objects, seconds = (
        (QUICK_CLIENTS, QUICK_OBJECTS, QUICK_SECONDS) if quick
        else (CLIENTS, OBJECTS, SECONDS))
    each = [{'clients': number, 'objects': amount, **site}
            for amount in objects for number in clients]
    return [*(writing.race(seconds=seconds, **settings) for settings in each),
            *(reading.race(access='get', **settings) for settings in each)]


CAMPAIGNS = [Campaign(
    'zeo_2009', 'commits and reads over ZEO: the table of 2009',
    [CONTESTANTS['zeo'], CONTESTANTS['fsync-client'],
     relstorages.POSTGRESQL, relstorages.SQLITE],
    races, rounds=3, show=table2009.show_zeo, command='zeo',
    added=relstorages.versions)]
