"""What the blob cache costs: a hit, and room made for a blob.

A cache is full of 100,000 small blobs, and processes share it.  Each process
opens blobs at random and reads them.  One of a hundred is new, and some were
removed before; for these, the least recently used blob is removed.  Two things
are timed: the call that finds a blob; and, for a blob that has to be
downloaded, the time until there is room for it.  The download comes from
memory.

The claims are about processes that pause for a millisecond after each blob.
Without the pause, eight of them compete for the processors, and most of the
time that is measured is spent waiting for one.

Also shown is how long it takes to read the directory that a stock client left.
"""

import contextlib
import functools
import itertools
import os
import random
import time

from ZEO.ClientStorage import BlobCacheLayout
from ZODB.utils import p64

from fsyncstorage.client.blobs.blobcache import BlobCache
from fsyncstorage.timing.options.contestants import Contestant
from fsyncstorage.timing.results import estimates
from fsyncstorage.timing.results import tables
from fsyncstorage.timing.results.wording import duration
from fsyncstorage.timing.running import crew
from fsyncstorage.timing.running.campaign import Race
from fsyncstorage.timing.servers import served

from .campaign import Campaign
from .claims import Claim
from .web import sites

#: In a full run, and in a quick run.
BLOBS, SECONDS = (100000, 5000), (10, 1)
#: (processes, seconds between two loads)
LOADS = (1, 0), (8, 0.001), (8, 0)
SIZE = 1000
NEW = 0.01
SERIAL = p64(1)

#: Figure -> what is claimed of it, in seconds.
CLAIMED = {
    'hit_p50': 0.0001,
    'hit_p99': 0.001,
    'eviction_p50': 0.002,
    'eviction_p99': 0.02,
}

CLAIMS = [
    Claim(
        words=figure.replace('_', ' '),
        workload='loads', settings={'processes': 8, 'pause': 0.001},
        contestant='fsyncclient', figure=figure, under=most)
    for figure, most in CLAIMED.items()
]


def races(quick):
    return [
        Race('loads', {
            'processes': number,
            'pause': pause,
            'blobs': BLOBS[quick],
            'seconds': SECONDS[quick],
            'sync_latency': 0.0,
        }, measure, (*CLAIMED, 'walk'))
        for number, pause in LOADS
    ]


def measure(contestant, directory, *, pause, blobs, seconds, sync_latency,
            **settings):
    fill(directory, blobs)
    began = time.perf_counter()
    BlobCache(directory, blobs * SIZE, fetch=None).close()
    walk = time.perf_counter() - began
    no_server = served.Site(served.NoServer(), None, None)
    hits, evictions = zip(*crew.processes(no_server, [
        functools.partial(work, directory, blobs, number, pause, seconds)
        for number in range(settings['processes'])]).results)
    hits, evictions = sum(hits, []), sum(evictions, [])
    return {
        'hit_p50': estimates.percentile(hits, 50),
        'hit_p99': estimates.percentile(hits, 99),
        'eviction_p50': estimates.percentile(evictions, 50),
        'eviction_p99': estimates.percentile(evictions, 99),
        'walk': walk,
        'hits': len(hits),
        'evictions': len(evictions),
    }


def fill(directory, blobs):
    """Make the directory of blobs that a stock client would leave."""
    layout = BlobCacheLayout()
    sites.make_cache(directory)
    for number in range(blobs):
        path = os.path.join(
            directory, layout.getBlobFilePath(p64(number), SERIAL))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, 'wb') as file:
            file.write(bytes(SIZE))


def work(directory, blobs, number, pause, seconds, start):
    """Load blobs; return how long each hit and each eviction took."""
    hits, evictions = [], []

    def fetch(oid, serial, download):
        began = time.perf_counter()
        download.expect(SIZE)
        evictions.append(time.perf_counter() - began)
        download.write(bytes(SIZE))

    with contextlib.closing(
            BlobCache(directory, blobs * SIZE, fetch)) as cache:
        new = itertools.count((number + 1) * 10 * blobs)
        start()
        end = time.perf_counter() + seconds
        while (began := time.perf_counter()) < end:
            is_new = random.random() < NEW
            oid = p64(next(new) if is_new else random.randrange(blobs))
            evicted = len(evictions)
            file = cache.open(oid, SERIAL)
            if len(evictions) == evicted:
                hits.append(time.perf_counter() - began)
            with file:
                file.read()
            if pause:
                time.sleep(pause)
    return hits, evictions


CAMPAIGNS = [Campaign(
    'blob_cache', 'the blob cache: a hit, and room for a blob',
    [Contestant('fsyncclient', 'the blob cache of our client', None)], races,
    rounds=5, claims=lambda document: CLAIMS,
    show=functools.partial(tables.show, questions=(), put=duration))]
