"""How long it takes to bring some bytes to the disk, by the way to sync.

In each way, a record is appended to a file, as a commit does, and made
durable; both together are timed, because O_DSYNC does both in one call.  The
first way is the one that FsyncStorage takes on this system.
"""

import dataclasses
import fcntl
import functools
import os
import typing

from fsyncstorage.datafile import disk

from ..running import crew
from ..running.campaign import Race

#: A small commit writes about as much.
RECORD = b'x' * 1000

#: In a sample; a file system in memory would fill the memory with more.
MOST_SYNCS = 10_000


@dataclasses.dataclass(frozen=True)
class Way:
    name: str
    summary: str
    #: Called with a descriptor and a position.
    write: typing.Callable
    #: The file is opened with these, too.
    flags: int = 0


def _and(sync):

    def write(fd, position):
        disk.write(fd, RECORD, position)
        sync(fd)

    return write


def _twice(fd, position):
    """As `durability two-sync` does: sync the data, then one byte of them."""
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
    """Time one way in an empty directory; return its figures."""
    fd = disk.open(os.path.join(directory, 'Data.fs'),
                   os.O_RDWR | os.O_CREAT | way.flags)
    try:
        syncs = crew.timed(
            (functools.partial(way.write, fd, number * len(RECORD))
             for number in range(MOST_SYNCS)), seconds).durations
    finally:
        os.close(fd)
    return {'syncs': len(syncs), **crew.times(syncs)}
