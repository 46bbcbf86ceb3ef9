"""Changes how the storages sync and read, as long as a measurement lasts.

All patching of storages is here, as context managers that put back what they
found.  These seams are used:

- stock FileStorage calls globals of its module: `fsync`, which is None on a
  platform that has none, and `open` for the files that it loads from (read in
  ZODB 6.4);
- every sync of a file of FsyncStorage goes through `datafile.disk.sync`; a
  load first asks for what is cached, with `CachedView.pread`, and waits for
  the disk in `View.pread`.

What is added to a sync is slept after the real one, to a load before it waits
for the disk; in the calling thread and without the GIL: to the storage the
disk has become slower.  Syncs of a directory are left alone; no commit makes
one.
"""

import contextlib
import importlib
import io
import os
import sys
import time

from fsyncstorage import datafile
from fsyncstorage.reading import CachedView
from fsyncstorage.reading import View
from fsyncstorage.reading import pread_cached

from . import pagecache

# The package has an attribute of this name too: the class.
_stock = importlib.import_module('ZODB.FileStorage.FileStorage')


@contextlib.contextmanager
def slowed(delay, sleep=time.sleep):
    """Add seconds to every sync.

    Yields a list to which each sync appends how long it took, with what was
    added: its length is the number of syncs.
    """
    durations = []

    def slow(sync):
        def slow_sync(fd):
            began = time.perf_counter()
            sync(fd)
            if delay:
                sleep(delay)
            durations.append(time.perf_counter() - began)
        return slow_sync

    with _replaced(_stock, 'fsync', slow(_stock.fsync)), \
            _replaced(datafile.disk, 'sync', slow(datafile.disk.sync)):
        yield durations


@contextlib.contextmanager
def cold_reads(delay, sleep=time.sleep):
    """Add seconds to every load that finds nothing in the page cache.

    Nothing is read ahead.  Yields a list that has an entry for each of them.
    """
    reads = _ColdReads(delay, sleep)
    with _replaced(_stock, 'open', reads.stock_open), \
            _replaced(CachedView, 'pread', staticmethod(reads.pread_cached)), \
            _replaced(View, 'pread', staticmethod(reads.pread)), \
            _replaced(datafile.disk, 'open', reads.open):
        yield reads.misses


class _ColdReads:

    def __init__(self, delay, sleep):
        self.misses = []  # their positions
        self._delay = delay
        self._sleep = sleep
        self._open = datafile.disk.open
        self._not_cached = set()

    def wait(self, descriptor, length, position):
        """Before a read that may have to wait for the disk."""
        if position in self._not_cached or not pagecache.is_cached(
                descriptor, length, position):
            self._not_cached.discard(position)
            self.misses.append(position)
            self._sleep(self._delay)

    def stock_open(self, path, mode):
        if mode != 'rb':
            return open(path, mode)
        file = _StockFile(path, self.wait)
        pagecache.read_singly(file.fileno())
        return io.BufferedReader(file, _buffer_size(file.fileno()))

    def open(self, path, flags):
        descriptor = self._open(path, flags)
        pagecache.read_singly(descriptor)
        return descriptor

    def pread_cached(self, descriptor, length, position):
        try:
            return pread_cached(descriptor, length, position)
        except BlockingIOError:
            # The disk begins to read, and may be done when a thread comes to
            # wait for it.
            self._not_cached.add(position)
            raise

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
    """That of a file that `open` has opened."""
    size = os.fstat(descriptor).st_blksize
    if sys.version_info < (3, 14):
        return size
    return max(size, io.DEFAULT_BUFFER_SIZE)


def stock_without_fsync():
    """Take out the fsync of stock FileStorage, as ZODB itself would."""
    return _replaced(_stock, 'fsync', None)


def stock_sync(fd):
    """The fsync of stock FileStorage, with whatever is added to it now."""
    _stock.fsync(fd)


@contextlib.contextmanager
def _replaced(owner, name, value):
    own = vars(owner).get(name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if own is None:  # it came from the class
            delattr(owner, name)
        else:
            setattr(owner, name, own)
