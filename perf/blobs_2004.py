"""Blobs over ZEO and without it, by size; and the claims about downloads.

In 2004 SlinkP's notes on Zope had what it takes to serve files of 5 KB to
50 MB, and large ones were slowest over ZEO.  This measures what is below that:
blobs, read by `FsyncClient` at `fsync-runzeo`, by the client of ZEO at its own
server, and straight from FileStorage and FsyncStorage; RelStorage over
PostgreSQL takes part where it is installed.  Reads are cold (with an empty
blob cache), cached or direct, and each size is written, too.  Writes
`blobs_2004.json` (all samples) and `blobs_2004.txt` (the tables and the
claims).  README.rst says how to read them.
"""

import sys

import claims
import running
from fsyncstorage.timing.blobs import command as blobs
from fsyncstorage.timing.blobs import sites as blobsites
from fsyncstorage.timing.blobs import tables as blobtables
from fsyncstorage.timing.blobs import work as blobwork
from fsyncstorage.timing.wording import size as put

STOCK, OURS = 'zeo', 'fsync-client'

ROUNDS = 5

#: Larger than those of 2004: claimed, and read by one client alone.
LARGE = 500 << 20

SMALL, MUCH = 5 << 10, 50 << 20


def contestants():
    """Those that are installed."""
    for contestant in blobsites.CONTESTANTS.values():
        if reason := contestant.missing():
            print(f'{contestant.name} is left out: {reason}', file=sys.stderr)
        else:
            yield contestant


def races(quick):
    clients, sizes = (
        (blobs.QUICK_CLIENTS, blobs.QUICK_SIZES) if quick
        else (blobs.DEFAULT_CLIENTS, blobs.DEFAULT_SIZES))
    common = {**blobs.common(quick), 'sync_latency': 0.0}
    found = [
        make(clients=number, size=size, **common)
        for make in (blobwork.read_race, blobwork.write_race)
        for number in clients
        for size in sizes]
    if not quick:
        found.append(blobwork.read_race(clients=1, size=LARGE, **common))
    return found


def claim(what, size, figure, **options):
    return claims.Claim(
        f'{what}, {put(size)}, 1 client, against {STOCK}', 'blob-read',
        {'clients': 1, 'size': size}, OURS, f'cold_{figure}', against=STOCK,
        **options)


CLAIMS = [
    claim('time of a cold read', SMALL, 'p50_seconds', under=1 / 3),
    *(claim('bytes a second of cold reads', size, 'bytes_per_second',
            at_least=1.5)
      for size in (MUCH, LARGE)),
]


def show_claims(document, console):
    return claims.show(CLAIMS, document, console)


if __name__ == '__main__':
    sys.exit(running.measure(
        'blobs_2004', __doc__, list(contestants()), races, ROUNDS,
        blobtables.show, show_claims))
