"""What a storage asks of the log that its commits also go to: four questions.

Under a policy that is *replicated* the storage is given a `Replica`, and uses
nothing of a log but this interface.  So it imports no module of the log.

1. `may_write`: may this node write?  At each begin, vote and append.
2. `sync`: are this batch and all before it kept, by a majority and by the
   disk?  It takes the place of a sync of the disk.
3. `keep_blobs`: does the log have the blobs of this vote?
4. `may_answer`: may an answer that was read here be sent?

Before an index file gets its name, the place in the log is saved
(`keep_up_to`).

The storage owns its replica, from its opening to its close.  `sync` is called
by one thread at a time, the leader (commit.sequencer); the other methods may
be called by any thread.

Left to others: the log, its records, and who may write
(quorum.leading.replicator).  A server, the metrics and a pack ask the same
object for more (its names, its trouble, its figures), by `storage.replica`.
"""

import typing
from collections.abc import Callable
from collections.abc import Sequence

from .blobs import Stored
from .pipeline import Commit

#: The suffix of the file, beside a data file, in which a node keeps its place
#: in the log.  A data file with such a file is written only under a replicated
#: policy: anything appended without the log would be cut off again.
SUFFIX = '.quorum'

#: Reads bytes of a file, by position and length.
Read = Callable[[int, int], bytes]


class NotReplicated(Exception):
    """The log takes nothing more from this storage.

    What was offered to the log last may be in it, or may still come into it.
    """

    def __init__(self, why: str, remedy: str) -> None:
        super().__init__(why)
        #: What the operator should do, in words that end a sentence.
        self.remedy = remedy


@typing.runtime_checkable
class Replica(typing.Protocol):

    #: What a pack of the storage asks, because the other nodes pack, too.
    #: (This is pack.agreed.Hooks, but this room does not know packs.)
    pack_hooks: typing.Any

    def begin(self, path: str, end: int, read: Read) -> None:
        """The file of this name is open, locked and synced, and ends here.

        `read` reads the durable part of the file, until the close.  Raise if
        the log does not have the file up to here.
        """

    def may_write(self, size: int = 0) -> None:
        """Raise LeaderChanged if this node writes no more: then nothing of the
        transaction was promised to anybody, and it can be tried again.

        In a vote, `size` is that of the transaction: raise if it is too large
        for the log."""

    def sync(self, end: int, read: Read, commits: Sequence[Commit],
             sync_disk: Callable[[], object]) -> None:
        """Make the file durable up to this end, in the log and on the disk.

        `commits` are those behind the durable part.  `read` reads them with
        their final status, whatever the file has now.  Call `sync_disk` once.

        Raise NotReplicated if the log takes nothing more; any error is final.
        After an interrupt the call is made again, for the same commits, and
        perhaps more.
        """

    def keep_blobs(self, blobs: Stored) -> None:
        """Part of a vote: bring these blobs into the log, so that a batch can
        name them; raise if they cannot be brought there.

        This may take long, so it is called before the transaction has its
        turn; then again when it has its turn, for blobs that were added since,
        which must wait for no other vote.  It notes in `blobs.in_log` what the
        commit of the transaction will have.
        """

    def keep_up_to(self, end: int) -> None:
        """Save that the log has the file up to this end, which is synced;
        OSError: that failed.

        An index up to there gets its name after that: so a start knows of all
        that its index has."""

    def may_answer(self) -> bool:
        """May an answer that was read here be sent?  If not, another node may
        have committed since.

        Called before each answer, by any thread."""

    def closing(self) -> None:
        """The storage is being closed: votes do not wait any more, and a
        `sync` that has no answer within some seconds raises NotReplicated.
        May be repeated."""

    def close(self) -> None:
        """Nothing is under way any more, or nothing more will be kept: save
        the state on the disk, let no `sync` wait for the log, and release
        everything.  May be repeated."""
