"""Files of blobs that do not fit into the cache: they stay while in use.

A process that has a guest open holds a shared lock (`keep` of the cache
directory), which other processes can see.  When it closes the file, it asks
for the removal of the guest, which succeeds when the last process asks.
"""

import io

from ZODB.blob import BlobFile


class _Guest:

    _lock = None

    def stay(self, lock, leave):
        """Close this lock with the file, and then call `leave`."""
        self._lock = lock
        self._leave = leave

    def close(self):
        lock, self._lock = self._lock, None
        super().close()
        if lock is not None:
            lock.close()
            self._leave()


class GuestFile(_Guest, io.FileIO):
    pass


class GuestBlobFile(_Guest, BlobFile):
    pass


def open_guest(directory, name, leave, blob=None):
    """A raw file; FileNotFoundError if it is gone."""
    path = directory.blob(name)
    lock = directory.keep(name)
    try:
        if blob is None:
            file = GuestFile(path)
        else:
            file = GuestBlobFile(path, 'r', blob)
    except BaseException:
        lock.close()
        raise
    file.stay(lock, leave)
    return file
