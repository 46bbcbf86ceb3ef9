"""Requests for files of one size, ten at a time, as in 2004 and 2010.

They come in two ways:

- cold: each is for another file, which the blob cache does not have; before
  them there is one alone, whose first byte is timed;
- warm: all are for one file, which was sent before.

A request before the first one opens what is opened only then, and does not
count.
"""

from ..blobs import work as blobwork
from ..campaign import Race
from . import loader
from . import memory

AT_ONCE = 10


def race(**settings):
    return Race('files', settings, measure, (
        'warm_per_second', 'warm_bytes_per_second',
        'cold_per_second', 'cold_bytes_per_second', 'first_byte_seconds',
        *map(memory.figure, memory.ROLES)))


def measure(contestant, directory, *, size, requests, volume, cold_volume,
            **site_settings):
    """The figures of one contestant."""
    cold = blobwork.number(size, requests, cold_volume)
    warm = max(AT_ONCE, blobwork.number(size, requests, volume))
    figures = {}
    with contestant.running(
            directory, size=size, number=1 + cold, **site_settings) as address:

        def load(way, requests):
            figures[f'{way}_per_second'] = per_second = loader.load(
                address, contestant.path(way), size, requests, AT_ONCE)
            figures[f'{way}_bytes_per_second'] = per_second * size

        if small := contestant.path('small'):
            loader.fetch(address, small, len(b'small'))
        memory.forget()
        if 'cold' in contestant.ways:
            figures['first_byte_seconds'] = loader.fetch(
                address, contestant.path('cold'), size)
            load('cold', cold)
        loader.fetch(address, contestant.path('warm'), size)
        load('warm', warm)
        return {**figures, **memory.peaks()}
