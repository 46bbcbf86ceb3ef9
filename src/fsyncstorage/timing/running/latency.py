"""Changes how the storages sync, while a measurement lasts.

All patching of storages is here, as context managers that undo their change at
the end.  They patch:

- for stock FileStorage, `fsync`, a global of its module that is None on a
  platform without it (read in ZODB 6.4);
- for FsyncStorage, `datafile.disk.sync`, which makes each sync of a file.

To make a sync slower, the calling thread sleeps after the real one, without
the GIL: to the storage, this is a slower disk.  Syncs of a directory are not
changed; no commit makes one.
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
    """Add seconds to every sync; yields a list that gets an entry for each.
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
