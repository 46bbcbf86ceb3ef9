"""Blobs over ZEO and without it, by size; and the claims about downloads.

In 2004, SlinkP's notes on Zope said how long it takes to serve files of 5 KB
to 50 MB; large ones were slowest over ZEO.  This campaign measures the level
below: blobs, read by `FsyncClient` at `fsync-runzeo`, by the client of ZEO at
its own server, and straight from FileStorage and FsyncStorage; RelStorage over
PostgreSQL takes part where it is installed.  Reads are cold (with an empty
blob cache), cached or direct, and each size is written, too.  README.rst says
how to read them.
"""

import argparse
import functools

from fsyncstorage.timing import blobs
from fsyncstorage.timing.results import tables
from fsyncstorage.timing.results.wording import size as put

from .campaign import Campaign
from .claims import Claim
from .peers import relstorages

STOCK, OURS = 'zeo', 'fsync-client'

#: Larger than the blobs of 2004; only read, and by one client.
LARGE = 500 << 20

SMALL, MUCH = 5 << 10, 50 << 20


def races(quick):
    options = functools.partial(
        argparse.Namespace, quick=quick, sync_latency=[0.0])
    found = blobs.races(options(
        clients=blobs.CLIENTS[quick], sizes=blobs.SIZES[quick],
        workload=blobs.WORKLOADS))
    if not quick:
        found += blobs.races(options(
            clients=[1], sizes=[LARGE], workload=[blobs.READ]))
    return found


def claim(what, size, figure, **options):
    return Claim(
        f'{what}, {put(size)}, 1 client, against {STOCK}', 'blob-read',
        {'clients': 1, 'size': size}, OURS, f'cold_{figure}', against=STOCK,
        **options)


CLAIMS = [
    claim('time of a cold read', SMALL, 'p50_seconds', under=1 / 3),
    *(claim('bytes a second of cold reads', size, 'bytes_per_second',
            at_least=1.5)
      for size in (MUCH, LARGE)),
]

CAMPAIGNS = [Campaign(
    'blobs_2004', 'blobs over ZEO and without it, by size',
    [*blobs.CONTESTANTS.values(), relstorages.POSTGRESQL], races, rounds=5,
    claims=lambda document: CLAIMS, command='blobs', show=tables.show,
    added=relstorages.versions)]
