"""What is asked of the engine that keeps the log: as little as possible.

The engine keeps records, which are bytes to it, under numbers that begin with
1, and a *head*: the place of the last record.  A majority of its members has
what it has answered for.  It promises:

- `append` compares and swaps: it takes effect only if the head is what the
  caller says, as a whole or not at all, and whatever becomes of its answer.
  It may take effect at any time after the call, also when the caller has left.
- What it answers was confirmed by a majority, and is no older than the
  question.
- What was appended stays, in its order, until it is trimmed.

One member may have a damaged disk, and give other bytes than it was given, or
older ones.  So:

- A record that is read is what one member shows.  Who reads has to find
  damage: records have a CRC.  What was staged, and all else, has none, and is
  checked by the engine.
- What members only say (where the log ends, that it was trimmed, that there is
  none) two of them have said.  If only one can be asked, there is no answer.
- A wrong member may say that a record was appended, when all others have
  refused it.  So one is believed only while nobody else can lead, as the
  caller has the lease (writer).
- A wrong member may say that the head has moved.  `ends` and `read` show it:
  the append has taken effect then.
- `ends`, `read`, `notes` and `staged` can be asked of one member by its
  number.  It is what this one says, alone; no other is asked in its place.

The fence between two writers is the swap on the head.  The lease says who
tries to write, so that two of them do not take turns.  While all members are
sound, nothing that is promised of commits rests on it, or on a clock.

Beside the log the engine keeps what belongs to it, and has no order: a note of
each node, and the chunks of staged blobs.

Any call may raise Unanswered: it took effect, or did not, or will.  What each
call promises then is said there.  Calls may come from several threads; but
`ask`, `answered` and `append` are one thread's, and so is `wait`.
"""

import time
import typing
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence

from ..history.record import Ends
from ..history.record import Place

#: Bytes of a note, and of a holder's name.
NOTE = 1024
HOLDER = 64
#: Notes whose name begins with it are about no node.
RESERVED = b'*'


def clock() -> float:
    """By which a lease is counted, by its holder and by those who wait for it.

    It goes on while the machine sleeps, and does not jump.
    """
    return time.clock_gettime(
        getattr(time, 'CLOCK_BOOTTIME', time.CLOCK_MONOTONIC))


class Unanswered(Exception):
    """No answer: what was asked for may have happened, or may happen yet."""


class Full(Unanswered):
    """The engine has no room for it.  It says what the operator can do."""


class Moved(Exception):
    """The head is another one: this append has not taken effect now.

    (One before it may have, with the same bytes.)
    """


class Trimmed(Exception):
    """The log does not have these records any more."""


class Missing(Exception):
    """There is no log here: none was created, or all of it was removed."""


class Exists(Exception):
    """There is a log already, or something else in its place."""


class Log(typing.Protocol):

    #: How many members can be asked; `member` counts modulo this.
    members: int

    def create(self, log: bytes) -> None:
        """Begin an empty log with this identity; raise Exists if there is one.

        Unanswered: it may be there, or come yet.  Nobody else knows this
        identity, so `ends` shows whether it is this one; to call it again
        does no harm.
        """

    def ends(self, member: int | None = None) -> Ends:
        """The identity of the log, and where it begins and ends.

        Two members have said so, and neither has ended it later, or begun it
        earlier; or this member has.  Raise Missing if there is none.
        """

    # Records

    def append(self, before: Place, place: Place, raw: bytes) -> None:
        """Put a record at `place`, and the head there, if it is `before`.

        Raise Moved if it is not.  Unanswered: offer the same bytes again, and
        nothing else at this place.
        """

    def ask(self, before: Place, place: Place, raw: bytes) -> None:
        """The first half of `append`: send it, and return at once.

        It raises nothing of this: `answered` does.  If that is not called, no
        answer comes: the append may take effect, now or later.
        """

    def answered(self) -> None:
        """The second half: wait for the answer; raise what `append` does."""

    def read(self, sequence: int,
             member: int | None = None) -> Sequence[bytes]:
        """Some records from this one on: none if it is not there yet; or if
        this member has lost it.

        Of few records, or of one that is large.  Raise Trimmed if this one was
        removed.
        """

    def wait(self, sequence: int, seconds: float) -> None:
        """Return when this record may be there, or after some time.

        A notice may be lost: the caller reads in any case.  Where this cannot
        be asked for it takes a moment all the same, so that the caller may
        come again at once.
        """

    def trim(self, first: int) -> None:
        """Remove what is before this record.  (A record has said so.)

        It also lets the engine forget what was replaced: heads, notes,
        leases.  So it is called now and then, also where nothing is to be
        removed.  Unanswered: some of it may be removed, now or later; call it
        again.
        """

    def make_room(self) -> bool:
        """The engine is full, and takes back what was removed; false: it is
        not full.

        To remove needs no room, so `trim` and `unstage` were called before.
        Unanswered: there may be room now, or later.  Full: there is none; it
        says what the operator can do.
        """

    # The lease

    def hold(self, holder: bytes, seconds: float) -> int:
        """Get the lease for so long, or keep it; 0: another one has it.

        The *term* of the lease, else.  It is another number whenever the lease
        was got, and the same one when it was kept: then nobody else had it in
        between.  After another number, or none, somebody may have led: the
        holder reads to the end of the log before it answers anybody.

        The time begins within the call.  A holder counts it from before the
        call, and by a clock that goes on while its machine sleeps
        (CLOCK_BOOTTIME), and believes in less of it than it has asked for.
        Nobody else gets the lease before the time is over, but one with the
        same name, at once, in another term: that is its later self.

        A majority of the members shows it: no single one makes a holder
        believe that it has the lease, or has lost it.

        Unanswered: it may have got it, so others may have to wait; it does
        not have it.
        """

    def holder(self) -> bytes | None:
        """The one that got the lease last, and has not given it back.

        Its time may be over: only `hold` finds that out.
        """

    def let_go(self, holder: bytes) -> None:
        """Give the lease back, if this one has it.

        Unanswered: it may be kept until its time is over.
        """

    # Notes

    def note(self, node: bytes, raw: bytes) -> None:
        """Keep this of a node, in the place of what was kept.

        Unanswered: either of them is kept; or this one comes yet, and then
        replaces a later one, too.
        """

    def notes(self, member: int | None = None) -> Mapping[bytes, bytes]:
        """Of each node, what was kept of it.

        Two members were asked, and a note that either has is there; or it is
        what this member has.
        """

    def forget(self, node: bytes) -> None:
        """Remove the note of a node."""

    # Chunks of staged blobs

    def stage(self, id: bytes, number: int, data: bytes) -> None:
        """Keep a chunk of a blob: the same bytes each time, if it is called
        again.  One that is there takes no more room."""

    def staged(self, id: bytes, number: int,
               member: int | None = None) -> bytes | None:
        """What was kept; None: two members do not have it, or this one."""

    def unstage(self, ids: Iterable[bytes]) -> None:
        """Remove all chunks of these blobs."""

    def all_staged(self) -> set[bytes]:
        """The ids of blobs that have chunks: of all that had some before the
        call, and have them still."""

    def find_leader(self) -> None:
        """Ask the member first, from now on, from which an append takes the
        shortest way, if one says that it is this."""

    # The end

    def stop(self) -> None:
        """Any thread may call it: calls that wait, now or later, raise
        Unanswered soon.  It cannot be taken back."""

    def close(self) -> None:
        """Give back what it has open.  No call is under way, and none comes.
        """
