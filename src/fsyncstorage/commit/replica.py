"""What a storage needs of the log that its commits go to, too.

Under a policy that is *replicated* the storage is given a `Replica`, and asks
no more of a log than this.  So it imports nothing of one.

The storage owns its replica, from its opening to its close.  `sync` is called
by one thread at a time, the leader (commit.sequencer); the rest by any.

Left to others: the log, its records, and who may write
(quorum.leading.replicator).
"""

import typing
from collections.abc import Callable
from collections.abc import Sequence

from .blobs import Stored
from .pipeline import Commit

#: Beside a data file, the name of what a node keeps of its log.  A file that
#: has one is written under such a policy only: what is appended past the log
#: would be cut off again.
SUFFIX = '.quorum'

#: Reads bytes of a file, by position and length.
Read = Callable[[int, int], bytes]


class NotReplicated(Exception):
    """The log takes nothing more from this storage.

    What was offered to it last may be in it, or come into it.
    """

    def __init__(self, why: str, remedy: str) -> None:
        super().__init__(why)
        #: What is to be done, in words that end a sentence.
        self.remedy = remedy


class Replica(typing.Protocol):

    @property
    def pack_hooks(self) -> typing.Any:
        """What a pack of the storage asks, as the other nodes pack, too
        (pack.agreed.Hooks; not called that here, as this room does not know
        packs)."""

    #: The instance that a server of the storage has: the ids of its commits
    #: begin with it, and the log knows it.  None: any.
    instance: bytes | None

    @property
    def log_identity(self) -> bytes:
        """The name of the log: two storages that have it have one history.
        """

    def may_answer(self) -> bool:
        """May others be told what is read here?  Else another node may have
        committed since.  It is asked before each answer, by any thread."""

    def begin(self, path: str, end: int, read: Read) -> None:
        """The file of this name is open, locked and synced, and ends here.

        `read` reads what is durable of it, until the close.  Raise if the log
        does not have the file up to here.
        """

    def check_size(self, size: int) -> None:
        """Part of a vote: raise if a transaction of so many bytes is too
        large."""

    def stage(self, blobs: Stored, has_turn: bool, wait: bool) -> None:
        """Part of a vote: these blobs must be there when a batch names them.

        It may take long, so it comes before the transaction has its turn; and
        again when it has, for those that came since.  It notes in
        `blobs.replicated` what the commit of the transaction will have.  Raise
        if they cannot be there.  Without `wait`, NoRoomInLog if there is no
        room for them: then they have a place in a line, and it is called
        again.
        """

    def call_when_room(self, blobs: Stored,
                       function: Callable[[], object]) -> bool:
        """Behind NoRoomInLog: call the function when `stage` will not wait, in
        any thread.  False: they do not wait for room."""

    def unstage(self, blobs: Stored) -> None:
        """The transaction was aborted: nothing names its blobs."""

    def sync(self, end: int, read: Read, commits: Sequence[Commit],
             sync_disk: Callable[[], object]) -> None:
        """Make the file durable up to this end, in the log and on the disk.

        `commits` are those behind what is durable.  `read` reads them with the
        status that each finally has, whatever the file says by now.
        `sync_disk` is called once.

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
        """The tid of a commit of an epoch that is over, if it is in the log;
        None: it is not, and never will be.

        It would be behind the tid `since`.  LookupError: nobody here can know.
        """

    def end_votes(self) -> None:
        """The storage is about to be closed: votes do not wait any more."""

    def closing(self) -> None:
        """The storage is being closed: votes do not wait any more, and a
        `sync` that has no answer within some seconds raises NotReplicated.
        May be repeated."""

    def keep(self) -> None:
        """Nothing is under way any more: keep what has come of it."""

    def stop(self) -> None:
        """From now on no `sync` waits for the log.  May be repeated."""

    def close(self) -> None:
        """Let go of all.  May be repeated."""
