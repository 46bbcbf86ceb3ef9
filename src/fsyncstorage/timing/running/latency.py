"""Changes how the storages sync, as long as a measurement lasts.

All patching of storages is here, as context managers that put back what they
found.  These seams are used:

- stock FileStorage calls `fsync`, a global of its module that is None on a
  platform that has none (read in ZODB 6.4);
- every sync of a file of FsyncStorage goes through `datafile.disk.sync`.

What is added to a sync is slept after the real one, in the calling thread and
without the GIL: to the storage the disk has become slower.  Syncs of a
directory are left alone; no commit makes one.
"""

import contextlib
import importlib
import time
from unittest import mock

from fsyncstorage import datafile

# The package has an attribute of this name too: the class.
_stock = importlib.import_module('ZODB.FileStorage.FileStorage')


@contextlib.contextmanager
def slowed(delay, sleep=time.sleep):
    """Add seconds to every sync.

    Yields a list that has an entry for each sync.
    """
    syncs = []

    def slow(sync):
        def slow_sync(fd):
            sync(fd)
            if delay:
                sleep(delay)
            syncs.append(fd)
        return slow_sync

    with mock.patch.object(_stock, 'fsync', slow(_stock.fsync)), \
            mock.patch.object(datafile.disk, 'sync', slow(datafile.disk.sync)):
        yield syncs


def stock_without_fsync():
    """Take out the fsync of stock FileStorage, as ZODB itself would."""
    return mock.patch.object(_stock, 'fsync', None)


def stock_sync(fd):
    """The fsync of stock FileStorage, with whatever is added to it now."""
    _stock.fsync(fd)
