"""The errors of this package.

A caller's mistake raises what stock FileStorage raises for it (or ValueError
for a setting).  A DiskError is the disk's fault, or a consequence of it.
"""

from ZODB.POSException import StorageError
from ZODB.POSException import StorageSystemError
from ZODB.POSException import StorageTransactionError


class DiskError(StorageSystemError):
    """The disk failed, or writing stopped because it did."""


class OutcomeUnknown(StorageError):
    """This commit may have been kept, or may not.

    It is no TransientError: repeated without a look at what is there, the
    commit could take effect twice.
    """


class SyncFailed(DiskError, OutcomeUnknown):
    """A sync failed: this commit may be on disk, or may not.

    It was not published.  The next opening of the storage decides whether it
    is there.
    """


class WritingStopped(DiskError):
    """A sync failed earlier: the storage only reads until it is reopened.

    A failed sync is never tried again: the kernel forgets which pages it
    could not write, so that a second sync reports success and proves nothing.
    """


class Unpublished(StorageTransactionError):
    """A conflict with a transaction that is appended, and not published yet.

    Raised only for transactions of the event loop that publishes.  The
    transaction was aborted; it should be voted again when that of `tid` is
    published.
    """

    def __init__(self, tid: bytes) -> None:
        super().__init__(f'conflict with {tid.hex()}, not published yet')
        self.tid = tid


class Occupied(Exception):
    """A vote or a finish had to wait for others, and the caller refused that.

    It can be made again.
    """


class NoRoomInLog(Occupied):
    """A vote had to wait for room in a log, and has nothing meanwhile."""
