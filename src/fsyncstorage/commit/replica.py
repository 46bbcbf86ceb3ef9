"""What a storage needs from the log that its commits also go to.

Under a policy that is *replicated* the storage is given a `Replica`, and uses
nothing of a log but this interface.  So it imports no module of the log.

The storage owns its replica, from its opening to its close.  `sync` is called
by one thread at a time, the leader (commit.sequencer); the other methods may
be called by any thread.

Left to others: the log, its records, and who may write
(quorum.leading.replicator).
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


class Replica(typing.Protocol):

    @property
    def pack_hooks(self) -> typing.Any:
        """What a pack of the storage asks, because the other nodes pack, too.

        (This is pack.agreed.Hooks, but this room does not know packs.)"""

    #: The instance that a server of the storage has: the ids of its commits
    #: begin with it, and the log knows it.  None: any.
    instance: bytes | None

    @property
    def log_identity(self) -> bytes:
        """The name of the log: storages with the same name have one history.
        """

    def may_answer(self) -> bool:
        """May an answer that was read here be sent?  If not, another node may
        have committed since.

        Called before each answer, by any thread."""

    def begin(self, path: str, end: int, read: Read) -> None:
        """The file of this name is open, locked and synced, and ends here.

        `read` reads the durable part of the file, until the close.  Raise if
        the log does not have the file up to here.
        """

    def check_size(self, size: int) -> None:
        """Part of a vote: raise if a transaction of `size` bytes is too large.
        """

    def stage(self, blobs: Stored, has_turn: bool, wait: bool) -> None:
        """Part of a vote: bring these blobs into the log, so that a batch can
        name them.

        This may take long, so it is called before the transaction has its
        turn; then again when it has its turn, for blobs that were added since.
        It notes in `blobs.replicated` what the commit of the transaction will
        have.  Raise if the blobs cannot be brought into the log.  Without
        `wait`, raise NoRoomInLog if there is no room for them: then they keep
        a place in a queue, and the call is made again.
        """

    def call_when_room(self, blobs: Stored,
                       function: Callable[[], object]) -> bool:
        """After NoRoomInLog: call the function, in any thread, when `stage`
        will not wait.  Return False if the blobs do not wait for room."""

    def unstage(self, blobs: Stored) -> None:
        """The transaction was aborted: nothing will name its blobs."""

    def sync(self, end: int, read: Read, commits: Sequence[Commit],
             sync_disk: Callable[[], object]) -> None:
        """Make the file durable up to this end, in the log and on the disk.

        `commits` are those behind the durable part.  `read` reads them with
        their final status, whatever the file has now.  Call `sync_disk` once.

        Raise NotReplicated if the log takes nothing more; any error is final.
        After an interrupt the call is made again, for the same commits, and
        perhaps more.
        """

    @property
    def trouble(self) -> str | None:
        """Why commits wait for the log, if they do for longer than usual."""

    def stats(self) -> dict[str, object]:
        """Figures for the operator."""

    def became_of(self, id: bytes, since: bytes) -> bytes | None:
        """The tid of a commit of an epoch that has ended, if it is in the log;
        None if it is not, and never will be.

        Such a commit is later than the tid `since`.  LookupError if this node
        cannot know.
        """

    def end_votes(self) -> None:
        """The storage is about to be closed: votes do not wait any more."""

    def closing(self) -> None:
        """The storage is being closed: votes do not wait any more, and a
        `sync` that has no answer within some seconds raises NotReplicated.
        May be repeated."""

    def keep(self) -> None:
        """Nothing is under way any more: save the state on the disk."""

    def stop(self) -> None:
        """From now on no `sync` waits for the log.  May be repeated."""

    def close(self) -> None:
        """Release everything.  May be repeated."""
