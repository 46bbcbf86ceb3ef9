"""The errors of this package, apart by whose fault they are.

A caller's mistake raises what stock FileStorage raises for it (or ValueError
for a setting).  What is here is the disk's fault, or the consequence of it.
"""

from ZODB.POSException import StorageSystemError
from ZODB.POSException import StorageTransactionError


class DiskError(StorageSystemError):
    """The disk failed; the storage protects what it has."""


class OutcomeUnknown(DiskError):
    """A sync failed: this commit may be on disk, or may not.

    It was not published.  Whether it is there is decided when the storage is
    opened again.
    """


class WritingStopped(DiskError):
    """A sync failed earlier: the storage only reads until it is reopened.

    A failed sync is never tried again: the kernel forgets which pages it
    could not write, so that a second sync reports success and proves nothing.
    """


class Unpublished(StorageTransactionError):
    """A conflict with a transaction that is appended, and not published yet.

    Only who owns the publishing of a storage meets it.  The transaction was
    aborted; it should be voted again when that of `tid` is published.
    """

    def __init__(self, tid: bytes) -> None:
        super().__init__(f'conflict with {tid.hex()}, not published yet')
        self.tid = tid


class Occupied(Exception):
    """Others were voted first, and the caller did not want to wait."""
