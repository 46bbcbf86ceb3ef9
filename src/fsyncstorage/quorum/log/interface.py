"""The calls that an engine must offer to keep the log: as few as possible.

The engine keeps records under numbers that begin with 1.  To the engine, a
record is just bytes.  It also keeps a *head*: the place of the last record.
What it has acknowledged is on a majority of its members.  It promises:

- An append (`ask`) compares and swaps.  It takes effect only if the head is
  what the caller says, and then as a whole, whatever becomes of its answer.
  It may take effect at any time after the call, even after the caller has
  given up.
- A majority has confirmed each answer, and no answer is older than its
  question.
- Appended records stay, in their order, until they are trimmed.

One member may have a damaged disk, and return wrong or outdated bytes.  Each
call but `hold` asks one member: the one whose number is given, or whichever
answers.  A record has a CRC for its reader; the engine checks all other
values.  What a member says beyond that may be wrong (`members`): where the log
ends, that a record was appended, that the head has moved.

The fence between two writers is the swap on the head.  The lease only decides
who tries to write, so that two nodes do not fence each other in turns.  While
all members are sound, no promise about commits depends on the lease, or on a
clock.

In addition to the log, the engine keeps data that belongs to it and has no
order: a note of each node, and the chunks of staged blobs.

Any call may raise Unanswered: it took effect, or did not, or still will.  Each
call says what it promises then.  Several threads may make calls, but `ask` and
`answered` belong to one thread.
"""

import time
import typing
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence

from ..history.record import Ends
from ..history.record import Place

#: The most bytes of a note, and of a holder's name.
NOTE = 1024
HOLDER = 64
#: Notes whose name begins with this byte are not about a node.
RESERVED = b'*'


def clock() -> float:
    """The clock for leases, of the holder and of the nodes that wait for it.

    It goes on while the machine sleeps, and does not jump.
    """
    return time.clock_gettime(
        getattr(time, 'CLOCK_BOOTTIME', time.CLOCK_MONOTONIC))


class Unanswered(Exception):
    """No answer: the request may have taken effect, or still may."""


class Full(Unanswered):
    """The engine has no room for this.  It says what the operator can do."""


class Moved(Exception):
    """The head is not what the caller said: this append had no effect now.

    (An earlier append of the same bytes may have had one.)
    """


class Trimmed(Exception):
    """The log does not have these records any more."""


class Missing(Exception):
    """There is no log here: none was created, or all of it was removed."""


class Exists(Exception):
    """There is a log already, or something else in its place."""


class Log(typing.Protocol):

    #: How many members can be asked; the number `member` counts modulo this.
    members: int

    def create(self, log: bytes) -> None:
        """Begin an empty log with this identity; raise Exists if there is one.

        Unanswered: the log may be there, or still appear.  Nobody else knows
        this identity, so `ends` shows whether the log is this one; to call
        `create` again does no harm.
        """

    def ends(self, member: int | None = None) -> Ends:
        """The identity of the log, and where it begins and ends.

        Raise Missing if there is no log.
        """

    # Records

    def ask(self, before: Place, place: Place, raw: bytes) -> None:
        """Send an append, and return at once: put a record at `place`, and
        move the head there, if the head is `before`.

        If `answered` is not called, no answer is read: the append may take
        effect, now or later.
        """

    def answered(self) -> None:
        """Wait for the answer to what was asked last.

        Raise Moved if the head was another one.  Unanswered: offer the same
        bytes again, and nothing else at this place.
        """

    def read(self, sequence: int,
             member: int | None = None) -> Sequence[bytes]:
        """Some records, from `sequence` on; none if it is not there yet, or if
        the member has lost it.

        It returns a few records, or one that is large.  Raise Trimmed if this
        record was removed.
        """

    def trim(self, first: int) -> None:
        """Remove the records before this one.  (A Trim record has said so.)

        It also lets the engine forget the values that were replaced: heads,
        notes, leases.  So it is called now and then even if no record is to be
        removed.  Unanswered: some may be removed, now or later; call it again.
        """

    # The lease

    def hold(self, holder: bytes, seconds: float,
             may_take: Callable[[], bool] = lambda: True) -> int:
        """Get the lease for `seconds`, or keep it; 0 if another one has it.

        One that is free is taken only if `may_take()`.

        Otherwise return the *term* of the lease.  The term is a new number
        whenever the lease was got, and the same number when it was kept: then
        nobody else had it in between.  After a different number, or 0, another
        node may have led: the holder must read to the end of the log before it
        answers anybody.

        The time begins within the call.  A holder counts it from before the
        call, by a clock that goes on while its machine sleeps
        (CLOCK_BOOTTIME), and believes in less of it than it has asked for.
        Before the time has expired, nobody else gets the lease, except a
        caller with the same name: that is the holder's later self, and gets it
        at once, in another term.  To keep it does not make its time shorter:
        the holder may believe in the time before.

        A majority of the members shows the lease: no single member can make a
        holder believe that it has the lease, or has lost it.

        Unanswered: the caller does not have the lease, but may have got it in
        the engine, so others may have to wait.
        """

    def holder(self) -> bytes | None:
        """The node that got the lease last, and has not given it back.

        Its time may have expired: only `hold` finds that out.
        """

    def let_go(self, holder: bytes) -> None:
        """Give the lease back, if this holder has it.

        Unanswered: it may be kept until its time has expired.
        """

    # Notes

    def note(self, node: bytes, raw: bytes) -> None:
        """Keep this note of a node, in place of the one before.

        Unanswered: either of the two is kept; or the new one still arrives
        late, and may then replace a later note, too.
        """

    def notes(self, member: int | None = None) -> Mapping[bytes, bytes]:
        """The note of each node."""

    def forget(self, node: bytes) -> None:
        """Remove the note of a node."""

    # Chunks of staged blobs

    def stage(self, id: bytes, number: int, data: bytes) -> None:
        """Keep a chunk of a blob.  If it is called again, the bytes must be
        the same.  A chunk that is there takes no more room."""

    def staged(self, id: bytes, number: int,
               member: int | None = None) -> bytes | None:
        """The chunk; None if the member does not have it."""

    def unstage(self, ids: Iterable[bytes]) -> None:
        """Remove all chunks of these blobs."""

    def all_staged(self) -> set[bytes]:
        """The ids of all blobs that had chunks before the call, and still
        have them."""

    def turn(self) -> None:
        """From now on, first ask the next member."""

    def find_leader(self) -> None:
        """From now on, first ask the member that an append reaches by the
        shortest way, if a member says that it is this one."""

    # The end

    def stop(self) -> None:
        """Any thread may call it: calls that wait, now or later, soon raise
        Unanswered.  It cannot be undone."""

    def close(self) -> None:
        """Close everything that is open.  No call is under way, and none
        follows."""
