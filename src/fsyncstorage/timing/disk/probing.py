"""What it takes to bring some bytes to the disk, by way and by place.

Each way to sync a file writes a record and waits until it is durable; both
together are timed, for O_DSYNC does both in one call.  The first of the ways
is the one that FsyncStorage takes on this system.

The places are the end of the file, as in a commit, and its middle, where its
size stays what it is; and the end again, while another thread appends to the
same file, as the next commit does.
"""

import contextlib
import dataclasses
import fcntl
import functools
import itertools
import os
import threading
import typing

from fsyncstorage.datafile import disk

from .. import crew
from .. import statistics
from ..campaign import Race

#: About what a small commit writes.
RECORD = b'x' * 1000

APPEND, OVERWRITE, BESIDE = 'append', 'overwrite', 'append beside a writer'
PLACES = APPEND, OVERWRITE, BESIDE

#: So many records are there to be overwritten, in turn.
_RECORDS = 1000

#: No sample has more syncs: what is no disk would fill the memory.
MOST_SYNCS = 10_000

#: Between two appends of the other thread.
_PAUSE = 0.0001


@dataclasses.dataclass(frozen=True)
class Way:
    name: str
    summary: str
    #: Called with a descriptor and a position.
    write: typing.Callable
    #: To open the file with.
    flags: int = 0


def _and(sync):

    def write(fd, position):
        disk.write(fd, RECORD, position)
        sync(fd)

    return write


def _twice(fd, position):
    """As `durability two-sync` commits: the data, then a byte among them."""
    _and(disk.sync)(fd, position)
    disk.write(fd, RECORD[:1], position)
    disk.sync(fd)


def _ways():
    if hasattr(fcntl, 'F_FULLFSYNC'):  # macOS
        yield Way('F_FULLFSYNC', 'fsync that empties the drive\'s cache, too',
                  _and(disk.sync))
    if hasattr(os, 'fdatasync'):
        yield Way('fdatasync', 'the data, and the size of the file',
                  _and(os.fdatasync))
    yield Way('fsync', 'the data and all that is known of the file',
              _and(os.fsync))
    if hasattr(os, 'O_DSYNC'):
        yield Way('O_DSYNC', 'each write is synced by itself',
                  _and(lambda fd: None), os.O_DSYNC)
    yield Way('two syncs', 'the data, then one byte, as two-sync does',
              _twice)


WAYS = tuple(_ways())
TWO_SYNCS = WAYS[-1]


def race(**settings):
    return Race(
        'sync', settings, measure,
        ('p50_seconds', 'p90_seconds', 'p99_seconds', 'max_seconds',
         'write_p50_seconds'),
        suits=WAYS.__contains__)


def measure(way, directory, *, place, seconds):
    """Time one way in an empty directory; the figures of it."""
    path = os.path.join(directory, 'Data.fs')
    numbers, done = itertools.count(), threading.Event()
    with _opened(path, os.O_CREAT) as fd, _opened(path, way.flags) as synced:
        if place == OVERWRITE:
            disk.write(fd, RECORD * _RECORDS, 0)
            disk.sync(fd)
            numbers = itertools.cycle(range(_RECORDS))

        def writes(write, to):
            for number in numbers:
                yield functools.partial(write, to, number * len(RECORD))

        def sync(start):
            start()
            try:
                return crew.timed(itertools.islice(
                    writes(way.write, synced), MOST_SYNCS), seconds)
            finally:
                done.set()

        def append(start):
            appends = writes(_append, fd)
            start()
            return crew.timed(itertools.chain([next(appends)], (
                itertools.takewhile(
                    lambda _: not done.wait(_PAUSE), appends))))

        syncs, *beside = [each.durations for each in crew.threads(
            [sync, append] if place == BESIDE else [sync]).results]
    figures = {
        'syncs': len(syncs),
        **crew.times(syncs, (50, 90, 99)),
    }
    if beside:
        figures['write_p50_seconds'] = statistics.percentile(*beside, 50)
    return figures


@contextlib.contextmanager
def _opened(path, flags):
    fd = disk.open(path, os.O_RDWR | flags)
    try:
        yield fd
    finally:
        os.close(fd)


def _append(fd, position):
    disk.write(fd, RECORD, position)
