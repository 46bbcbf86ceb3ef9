"""What happened, in order: the entries of a log.

A file is known by a number, which stays with it through every rename.  Paths
are relative to the recorded directory; '' is the directory itself.

A sync covers what was logged before it *began*; it is logged when it ends, so
that what was written meanwhile stands before it and is not covered.

The marks say what the workload asked for and was told.
"""

import typing


class Created(typing.NamedTuple):
    path: str
    file: int


class Wrote(typing.NamedTuple):
    file: int
    position: int
    data: bytes


class Truncated(typing.NamedTuple):
    file: int
    size: int


class Synced(typing.NamedTuple):
    file: int
    began: int


class SyncFailed(typing.NamedTuple):
    file: int
    began: int


class Reread(typing.NamedTuple):
    """The cache was dropped: the file shows what the disk has."""

    file: int
    content: bytes


class MadeDirectory(typing.NamedTuple):
    path: str


class Linked(typing.NamedTuple):
    source: str
    target: str


class Renamed(typing.NamedTuple):
    """Of a file or a directory; what had the name before is gone."""

    source: str
    target: str


class Removed(typing.NamedTuple):
    """Of a file or an empty directory."""

    path: str


class SyncedDirectory(typing.NamedTuple):
    path: str
    began: int


class Passed(typing.NamedTuple):
    """Time has passed: it is now so late."""

    at: float


# Marks of the workload

class Finishing(typing.NamedTuple):
    """`tpc_finish` is called: from here on it may be kept."""

    tid: bytes
    at: float


class Revoked(typing.NamedTuple):
    """It failed for good, or was lost in a crash: it must not come back."""

    tid: bytes


class Published(typing.NamedTuple):
    tid: bytes


class Acknowledged(typing.NamedTuple):
    tid: bytes
    at: float


class Kept(typing.NamedTuple):
    """These are durable, whatever the policy."""

    tids: frozenset
    #: Their blobs are, too.
    with_blobs: bool = True


class BlobsGone(typing.NamedTuple):
    """A crash took these away that nobody had promised: (oid, tid)."""

    keys: frozenset


class Sent(typing.NamedTuple):
    """This record is on its way to the log (of a quorum)."""

    number: int
    raw: bytes


class Landed(typing.NamedTuple):
    """That log has so many records."""

    number: int


class PackBegun(typing.NamedTuple):
    number: int


class PackDone(typing.NamedTuple):
    number: int


class PackRevoked(typing.NamedTuple):
    """A crash came first: it must not happen later."""

    number: int
