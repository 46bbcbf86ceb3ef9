"""Files from a blob to a browser, by size; and the claims about serving them.

nginx with a plain file is the yardstick.  Ours sends files through nginx
(X-Accel-Redirect), and from waitress and gunicorn; stock ZEO is there for
comparison.  `files` has the sizes of the notes of 2004; `large_files` has 1
GB, for the contestants with claims.  README.rst says how to read them.

Requests are for files of one size, ten at a time, as in 2004 and 2010.  They
come in two ways:

- cold: each is for another file, which the blob cache does not have; before
  them there is one alone, whose first byte is timed;
- warm: all are for one file, which was sent before.

One request before these opens what is opened only once, and does not count.
"""

import functools

from fsyncstorage.timing.blobs import work as blobwork
from fsyncstorage.timing.running import loops
from fsyncstorage.timing.running.campaign import Race

from . import history
from . import questions
from .campaign import Campaign
from .claims import Claim
from .web import load
from .web import memory
from .web import nginx
from .web.sites import CONTESTANTS

#: Those of the notes of 2004.
SMALL, _, MEDIUM, LARGE, HUGE = ALL = [
    size << 10 for size in (5, 50, 500, 5000, 50000)]
GIGABYTE = 1 << 30

#: In a full run, and in a quick run, where not all claims can be checked.
SIZES = ALL, (SMALL, MEDIUM, LARGE)
LARGE_SIZES = (SMALL, GIGABYTE), (SMALL, 50 << 20)

#: Requests of a sample, if they have no more bytes than the volume.
REQUESTS = 2000, 500
VOLUME, COLD_VOLUME = (1 << 30, 500 << 20), (500 << 20, 50 << 20)

YARDSTICK, BARE = 'nginx', 'x-accel:bare'
THROUGH_NGINX = 'x-accel:direct', 'x-accel:fsync-client'
BY_GUNICORN = 'gunicorn:direct', 'gunicorn:fsync-client'

#: What takes part if files have 1 GB.
OF_LARGE_FILES = (
    YARDSTICK, *THROUGH_NGINX, 'waitress:fsync-client', 'waitress:zeo',
    'gunicorn:fsync-client', 'gunicorn:zeo')

#: The processes whose memory is measured.
PROCESSES = (
    ('x-accel:fsync-client', 'nginx'),
    ('x-accel:fsync-client', 'application'),
    ('x-accel:fsync-client', 'server'),
    ('waitress:fsync-client', 'application'),
    ('gunicorn:fsync-client', 'application'),
)
#: Two peaks that differ by less than this factor are the same.
FLAT = 1.25


def races(sizes, quick):
    return [
        race(size=size, requests=REQUESTS[quick], volume=VOLUME[quick],
             cold_volume=COLD_VOLUME[quick],
             loop=loops.installed()[-1])  # as ZEO does
        for size in sizes[quick]]


def race(**settings):
    return Race('files', settings, measure, (
        'warm_per_second', 'warm_bytes_per_second',
        'cold_per_second', 'cold_bytes_per_second', 'first_byte_seconds',
        *map(memory.figure, memory.ROLES)))


def measure(contestant, directory, *, size, requests, volume, cold_volume,
            **site_settings):
    """The figures of one contestant."""
    cold = blobwork.number(size, requests, cold_volume)
    warm = max(load.AT_ONCE, blobwork.number(size, requests, volume))
    figures = {}
    with contestant.running(
            directory, size=size, number=1 + cold, **site_settings) as address:

        def ask(way, requests):
            figures[f'{way}_per_second'] = per_second = load.load(
                address, contestant.path(way), size, requests, load.AT_ONCE)
            figures[f'{way}_bytes_per_second'] = per_second * size

        if small := contestant.path('small'):
            load.fetch(address, small, len(b'small'))
        memory.forget()
        if 'cold' in contestant.ways:
            figures['first_byte_seconds'] = load.fetch(
                address, contestant.path('cold'), size)
            ask('cold', cold)
        load.fetch(address, contestant.path('warm'), size)
        ask('warm', warm)
        return {**figures, **memory.peaks()}


def claim(words, contestant, figure, size, **options):
    against = f', against {options["against"]}' if 'against' in options else ''
    return Claim(
        f'{contestant}: {words}, {size >> 10:,} KB{against}', 'files',
        {'size': size}, contestant, figure, **options)


def _memory_claim(contestant, role):
    return Claim(
        f'{contestant}: peak of {role}, 1 GB against {SMALL >> 10} KB',
        'files', {'size': GIGABYTE}, contestant, memory.figure(role),
        against=contestant, against_settings={'size': SMALL}, under=FLAT)


CLAIMS = [
    *(claim('warm', name, 'warm_per_second', MEDIUM,
            against=BARE, at_least=0.7)
      for name in THROUGH_NGINX),
    *(claim('warm', name, 'warm_per_second', size,
            against=YARDSTICK, at_least=0.85)
      for size in (LARGE, HUGE) for name in THROUGH_NGINX),
    *(claim('warm', name, 'warm_per_second', HUGE,
            against=YARDSTICK, at_least=0.5)
      for name in BY_GUNICORN),
]

LARGE_CLAIMS = [
    *(claim('warm', name, 'warm_per_second', GIGABYTE,
            against=YARDSTICK, at_least=0.85)
      for name in THROUGH_NGINX),
    *(_memory_claim(*process) for process in PROCESSES),
    *(claim('first byte of a cold file', name, 'first_byte_seconds',
            GIGABYTE, under=0.05)
      for name in ('waitress:fsync-client', 'gunicorn:fsync-client')),
    *(claim('cold', f'{server}:fsync-client', 'cold_per_second',
            GIGABYTE, against=f'{server}:zeo', at_least=1.5)
      for server in ('waitress', 'gunicorn')),
]


def show(document, console):
    questions.show(document, console)
    history.show_files(console)


def added(contestants):
    """Yields sentences on the programs that measured and sent."""
    yield f'Requests came from {load.name()}.'
    if version := nginx.version():
        yield f'nginx was {version}.'


_campaign = functools.partial(Campaign, show=show, added=added)

CAMPAIGNS = [
    _campaign(
        'files', 'files from a blob to a browser, by size',
        list(CONTESTANTS.values()), functools.partial(races, SIZES),
        rounds=7, claims=lambda document: CLAIMS),
    _campaign(
        'large_files', 'the same, files of 1 GB',
        [CONTESTANTS[name] for name in OF_LARGE_FILES],
        functools.partial(races, LARGE_SIZES), rounds=3,
        claims=lambda document: LARGE_CLAIMS),
]
