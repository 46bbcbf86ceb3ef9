"""Files of blobs that are larger than the cache: they stay while in use.

Who has one open holds a shared lock on it (`flock`), so that everybody can see
it; and who closes it asks for its removal, which then succeeds for the last.
"""

import fcntl
import io
import os

from ZODB.blob import BlobFile


class _Guest:

    _leave = None

    def stay(self, leave):
        """Lock it; call `leave` when it is closed, by this process."""
        fcntl.flock(self.fileno(), fcntl.LOCK_SH)
        os.stat(self.name)  # it may have been removed just before
        self._process = os.getpid()
        self._leave = leave

    def close(self):
        leave = self._leave
        if self.closed or leave is None or self._process != os.getpid():
            super().close()
        else:
            # Closing is not enough: a child may have inherited the file.
            fcntl.flock(self.fileno(), fcntl.LOCK_UN)
            super().close()
            leave()


class GuestFile(_Guest, io.FileIO):
    pass


class GuestBlobFile(_Guest, BlobFile):
    pass


def open_guest(path, leave, blob=None):
    """A raw file; FileNotFoundError if it is gone."""
    if blob is None:
        file = GuestFile(path)
    else:
        file = GuestBlobFile(path, 'r', blob)
    try:
        file.stay(leave)
    except BaseException:
        file.close()
        raise
    return file
