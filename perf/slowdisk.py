"""A server with a slow disk: each sync and each byte before it takes time.

A sync of a file takes the time to write its new bytes, at `speed` bytes a
second, and `latency` in addition; during that time no other file of the same
directory is synced, in any process.  So a commit waits for the sync of a pack,
as with a real disk.  Only syncs take longer: what is not synced (stock's
packed file), reads, and the names of files cost what they cost here.  A real
disk may do better: it can take the few bytes of a commit before the many of
the other file.

This is for the process of such a server, and for the one that packs for it.
It patches what `latency` patches, and the choice of the module that the
packing process runs.

It also reports the most memory that each of them had; for the server, since it
was first asked for its usage.
"""

import contextlib
import fcntl
import functools
import importlib
import json
import os
import pathlib
import re
import time
from unittest import mock

from fsyncstorage import datafile
from fsyncstorage.pack import process
from fsyncstorage.processes import starting
from fsyncstorage.timing.running import zeosites

# The package has an attribute of this name too: the class.
_stock = importlib.import_module('ZODB.FileStorage.FileStorage')

#: In the environment of the process that packs: the settings of its disk.
_SETTINGS = 'PERF_SLOW_DISK'
#: Files in the directory of the server.  The first is locked while something
#: is synced, and says how much of each file is synced; the second has the most
#: memory that the process that packs has had, in bytes.
TURN, PEAK_OF_CHILD = 'disk.turn', 'child.peak'

_STATUS = pathlib.Path('/proc/self/status')


class SlowDisk:
    """The disk of all processes that use this directory: what one process has
    synced, another does not sync again.

    `speed` is in bytes a second, or None; `latency` in seconds.
    """

    def __init__(self, directory, speed, latency, sleep=time.sleep):
        self._directory = directory
        self._turn = os.path.join(directory, TURN)
        self._speed, self._latency, self._sleep = speed, latency, sleep

    def begin(self):
        """Note what the directory has now as synced."""
        synced = {_key(each.stat()): each.stat().st_size
                  for each in os.scandir(self._directory)}
        with open(self._turn, 'w') as turn:
            json.dump(synced, turn)

    def slowed(self, sync):
        if not (self._speed or self._latency):
            return sync

        @functools.wraps(sync)
        def slow_sync(descriptor):
            with open(self._turn, 'r+') as turn:
                fcntl.flock(turn, fcntl.LOCK_EX)
                sync(descriptor)
                self._sleep(self._takes(descriptor, turn))

        return slow_sync

    def _takes(self, descriptor, turn):
        found = os.fstat(descriptor)
        synced = json.load(turn)
        new = max(0, found.st_size - synced.get(_key(found), 0))
        synced[_key(found)] = found.st_size
        turn.seek(0)
        json.dump(synced, turn)
        turn.truncate()
        return self._latency + (new / self._speed if self._speed else 0)


def _key(found):
    return f'{found.st_dev}-{found.st_ino}'


def serve(pipe, speed, latency, **options):
    """Like `zeosites.serve`, with the options `speed` and `latency`."""
    settings = os.getcwd(), speed, latency
    os.environ[_SETTINGS] = json.dumps(settings)
    disk = SlowDisk(*settings)
    disk.begin()
    slowed = disk.slowed
    patch = mock.patch.object
    with patch(_stock, 'fsync', slowed(_stock.fsync)), \
            patch(datafile.disk, 'sync', slowed(datafile.disk.sync)), \
            patch(starting, '_started', functools.partial(
                _started, starting._started)):
        zeosites.serve(pipe, **options, server_peak=_Peak())


def _started(start, module, *arguments):
    return start(__name__ if module == process.__name__ else module,
                 *arguments)


def main(pid):
    """The process that packs: as in the package, but on this disk."""
    directory, *settings = json.loads(os.environ[_SETTINGS])
    sync = SlowDisk(directory, *settings).slowed(datafile.disk.sync)

    def sync_and_note(descriptor):
        sync(descriptor)
        with open(os.path.join(directory, PEAK_OF_CHILD), 'w') as file:
            file.write(str(peak()))

    datafile.disk.sync = sync_and_note
    process.main(pid)


def peak():
    """The most memory that this process has had, in bytes."""
    found, = re.findall(r'VmHWM:\s+(\d+) kB', _STATUS.read_text())
    return int(found) << 10


class _Peak:
    """Its length is the peak since it was asked for the first time."""

    def __init__(self):
        self._is_first = True

    def __len__(self):
        if self._is_first:
            self._is_first = False
            with contextlib.suppress(OSError):
                pathlib.Path('/proc/self/clear_refs').write_text('5')
        return peak()
