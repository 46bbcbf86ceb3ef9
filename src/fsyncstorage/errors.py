"""The errors of this package.

A caller's mistake raises what stock FileStorage raises for it (or ValueError
for a setting).  A DiskError is the disk's fault, or a consequence of it.
"""

from collections.abc import Iterable

from transaction.interfaces import TransientError
from ZEO.Exceptions import ClientDisconnected
from ZODB.POSException import StorageError
from ZODB.POSException import StorageSystemError
from ZODB.POSException import StorageTransactionError


class DiskError(StorageSystemError):
    """The disk failed, or writing stopped because it did."""


class OutcomeUnknown(StorageError):
    """This commit may have been kept, or may not.

    This is not a TransientError: if a program repeats the commit without a
    check of what is there, the commit can take effect twice.
    """


class NotFinishedInTime(ClientDisconnected):
    """A server has aborted this transaction, at the end of its
    `transaction-timeout`.

    Its client is still connected; but this is the error by which stock's
    server tells it, and after which applications try again.
    """


class SyncFailed(DiskError, OutcomeUnknown):
    """A sync failed, or a write that could not be taken back: this commit may
    be on disk, or may not.

    The commit was not published.  The next opening of the storage decides
    whether it is there.
    """


class WritingStopped(DiskError):
    """A sync failed earlier: the storage only reads until it is reopened.

    A failed sync is never tried again: the kernel forgets which pages it
    could not write, so that a second sync reports success and proves nothing.
    """


class VoteAgain(StorageTransactionError):
    """A vote has ended early.  Its transaction holds nothing now, takes more
    records, and can be voted again.

    Raised only for a client of a server.
    """


class Unpublished(VoteAgain):
    """A conflict with a transaction that is appended, and not published yet.

    The vote should be made again when the transaction `tid` is published.
    """

    def __init__(self, tid: bytes) -> None:
        super().__init__(f'conflict with {tid.hex()}, not published yet')
        self.tid = tid


class Unresolved(VoteAgain):
    """A vote would have to resolve a conflict, which may take long: a thread
    that may do that should make it."""

    def __init__(self) -> None:
        super().__init__('a conflict has to be resolved')


class ConflictsLeft(VoteAgain):
    """The client has to resolve these conflicts, and store the objects again.
    """

    def __init__(self, conflicts: list[dict[str, object]]) -> None:
        super().__init__(f'conflicts of {len(conflicts)} objects')
        #: In the form in which they are sent to clients.
        self.conflicts = conflicts


class Barred(StorageTransactionError, TransientError):
    """This transaction was not appended: somebody has asked what became of it,
    and was told that it is not committed."""

    def __init__(self) -> None:
        super().__init__('the transaction is not committed: its client, or the'
                         ' server, has given it up before it was finished')


class LeaderChanged(StorageError, TransientError):
    """This node does not write any more, and another one may (`quorum`).

    Nothing of this transaction was promised to anybody, so it can be tried
    again, at the node that leads.
    """


class Occupied(Exception):
    """A vote or a finish would have to wait, and the caller refused that.

    The same call can be made again.
    """


def unknown_key(key: str, known: Iterable[str]) -> str:
    """What to say of a key that a section of a configuration does not have."""
    import difflib  # for a mistake only: each client imports this module
    nearest = difflib.get_close_matches(key.lower(), known, 1)
    words = f'; did you mean {nearest[0]!r}?' if nearest else ''
    return f'{key!r} is not a known key name{words}'
