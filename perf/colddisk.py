"""A server whose data file is on the disk, and not in the page cache.

A database that was just made is in the memory of the machine; a large one is
not.  To measure what a cold read costs there, the file is dropped from the
cache first, and the server reads nothing ahead.

This module is also the program of such a server.  It is like the launcher of
the timing driver, but a load that has to wait for the disk waits longer, and
is counted.  It patches:

- `open`, a global of the module, with which stock FileStorage opens the files
  that it loads from (read in ZODB 6.4);
- `CachedView.pread`, with which FsyncStorage first asks for what is cached,
  and `View.pread`, in which it waits for the disk.

To make a read slower, the calling thread sleeps before it, without the GIL: to
the storage, this is a slower disk.
"""

import contextlib
import errno
import importlib
import io
import json
import os
import sys
import tempfile
import time
from unittest import mock

from fsyncstorage.datafile import disk
from fsyncstorage.format.view import CachedView
from fsyncstorage.format.view import View
from fsyncstorage.format.view import pread_cached
from fsyncstorage.timing.servers import launcher

from .pagecache import is_cached

# The package has an attribute of this name too: the class.
_stock = importlib.import_module('ZODB.FileStorage.FileStorage')

patch = mock.patch.object

_PROBE = b'x' * 4096


def main(options):
    """Like that of the launcher, with the option `read_latency`."""
    with cold_reads(options['read_latency']) as misses:
        launcher.main(options, misses=misses)


def drop(path):
    """The next read of any part of the file is one of the disk."""
    descriptor = os.open(path, os.O_RDWR)
    try:
        disk.sync(descriptor)  # unwritten pages would stay in the cache
        disk.drop_cache(descriptor, 0)
    finally:
        os.close(descriptor)


def read_singly(descriptor):
    """Nothing is read ahead through this descriptor; in a large file, that
    would not help much."""
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)


def obstacle(directory):
    """Why files in there cannot be dropped, or None."""
    with tempfile.NamedTemporaryFile(dir=directory, buffering=0) as file:
        file.write(_PROBE)
        if not is_cached(file.fileno(), len(_PROBE), 0):
            return 'this system does not tell what it has in its cache'
        drop(file.name)
        if is_cached(file.fileno(), len(_PROBE), 0):
            return 'this file system is in memory, or keeps what it has read'
    return None


@contextlib.contextmanager
def cold_reads(delay, sleep=time.sleep):
    """Add seconds to every load that finds nothing in the page cache.

    Nothing is read ahead.  Yields a list that has an entry for each of them.
    """
    reads = _ColdReads(delay, sleep)
    with patch(_stock, 'open', reads.stock_open, create=True), \
            patch(CachedView, 'pread', staticmethod(reads.pread_cached)), \
            patch(View, 'pread', staticmethod(reads.pread)), \
            patch(disk, 'open', reads.open):
        yield reads.misses


class _ColdReads:

    def __init__(self, delay, sleep):
        self.misses = []  # their positions
        self._delay = delay
        self._sleep = sleep
        self._open = disk.open
        self._not_cached = set()

    def wait(self, descriptor, length, position):
        """Before a read that may have to wait for the disk."""
        if position in self._not_cached or not is_cached(
                descriptor, length, position):
            self._miss(position)

    def _miss(self, position):
        self._not_cached.discard(position)
        self.misses.append(position)
        self._sleep(self._delay)

    def stock_open(self, path, mode):
        if mode != 'rb':
            return open(path, mode)
        file = _StockFile(path, self.wait)
        read_singly(file.fileno())
        return io.BufferedReader(file, _buffer_size(file.fileno()))

    def open(self, path, flags, mode=0o666):
        descriptor = self._open(path, flags, mode)
        read_singly(descriptor)
        return descriptor

    def pread_cached(self, descriptor, length, position):
        if is_cached(descriptor, length, position):
            return pread_cached(descriptor, length, position)
        # The disk begins to read, and may be done when a thread comes to wait
        # for it: that one waits all the same.
        self._not_cached.add(position)
        data = pread_cached(descriptor, length, position)
        # A fast disk has answered at once.
        if self._delay:
            raise BlockingIOError(errno.EAGAIN, 'a slower disk would not have')
        self._miss(position)
        return data

    def pread(self, descriptor, length, position):
        self.wait(descriptor, length, position)
        return os.pread(descriptor, length, position)


class _StockFile(io.FileIO):

    def __init__(self, path, wait):
        super().__init__(path)
        self._wait = wait

    def readinto(self, buffer):
        self._wait(self.fileno(), len(buffer), self.tell())
        return super().readinto(buffer)


def _buffer_size(descriptor):
    """The size of the buffer of a file that `open` has opened."""
    size = os.fstat(descriptor).st_blksize
    if sys.version_info < (3, 14):
        return size
    return max(size, io.DEFAULT_BUFFER_SIZE)


if __name__ == '__main__':
    main(json.loads(sys.argv[1]))
