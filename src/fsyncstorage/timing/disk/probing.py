"""What it takes to bring some bytes to the disk, by way.

Each way to sync a file appends a record, as a commit does, and waits until it
is durable; both together are timed, for O_DSYNC does both in one call.  The
first of the ways is the one that FsyncStorage takes on this system.
"""

import dataclasses
import fcntl
import functools
import os
import typing

from fsyncstorage.datafile import disk

from ..running import crew
from ..running.campaign import Race

#: About what a small commit writes.
RECORD = b'x' * 1000

#: No sample has more syncs: what is no disk would fill the memory.
MOST_SYNCS = 10_000


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
        ('p50_seconds', 'p99_seconds', 'max_seconds'),
        suits=WAYS.__contains__)


def measure(way, directory, *, seconds):
    """Time one way in an empty directory; the figures of it."""
    fd = disk.open(os.path.join(directory, 'Data.fs'),
                   os.O_RDWR | os.O_CREAT | way.flags)
    try:
        syncs = crew.timed(
            (functools.partial(way.write, fd, number * len(RECORD))
             for number in range(MOST_SYNCS)), seconds).durations
    finally:
        os.close(fd)
    return {'syncs': len(syncs), **crew.times(syncs)}
