"""What is asked of the engine that keeps the log: as little as possible.

The engine keeps records, which are bytes to it, under numbers that begin with
1, and a *head*: the place of the last record.  A majority of its members has
what it has answered for.  It promises:

- `append` compares and swaps: it takes effect only if the head is what the
  caller says, as a whole or not at all, and whatever becomes of its answer.
  It may take effect at any time after the call, also when the caller has left.
- What `ends` and `read` answer was confirmed by a majority, and is no older
  than the question.
- What was appended stays, in its order, until it is trimmed.

One member may have a damaged disk: it gives other bytes than those that were
appended, or wrong ends, or has lost the last ones; and it may say of an append
that the head is another one, or that it is not.  So each member can be asked
by itself, and `members` says what is believed.

The fence between two writers is the swap on the head alone.  The lease says
who tries to write, so that two of them do not take turns; nothing that is
promised rests on it, or on a clock.

Any call may raise Unanswered: it took effect, or did not, or will.
"""

import typing
from collections.abc import Sequence

from .record import Ends
from .record import Place


class Unanswered(Exception):
    """No answer: what was asked for may have happened, or may happen yet."""


class Moved(Exception):
    """The head is another one: this append has not taken effect now.

    (One before it may have, with the same bytes.)
    """


class Trimmed(Exception):
    """The log does not have these records any more."""


class Missing(Exception):
    """There is no log here: none was created, or all of it was removed."""


class Log(typing.Protocol):

    #: How many members there are.  `member` is a number modulo this: that one
    #: is asked, and no other in its place.  None: whichever answers.
    members: int

    def ends(self, member: int | None = None) -> Ends:
        """Raise Missing if there is no log."""

    def append(self, before: Place, place: Place, raw: bytes) -> None:
        """Put a record at `place`, and the head there, if it is `before`.

        Raise Moved if it is not.
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
        """Some records from this one on: none if it is not there yet.

        Of few records, or of one that is large.  Raise Trimmed if this one was
        removed.
        """

    def wait(self, sequence: int, seconds: float) -> None:
        """Return when this record may be there, or after some time.

        A notice may be lost: the caller reads in any case.
        """

    def trim(self, first: int) -> None:
        """Remove what is before this record.  (A record has said so.)"""

    def hold(self, holder: bytes, seconds: float) -> bool:
        """Get the lease for so long, or keep it; false: another has it.

        The time begins within the call.  A holder counts it from before the
        call, and by a clock that goes on while its machine sleeps
        (CLOCK_BOOTTIME).
        """

    def holder(self) -> bytes | None:
        """The one that has the lease."""

    def let_go(self, holder: bytes) -> None:
        """Give the lease back, if this one has it."""

    # Notes

    def note(self, node: bytes, raw: bytes) -> None:
        """Keep this of a node, in the place of what was kept.

        Unanswered: either of them is kept; or this one comes yet, and then
        replaces a later one, too.
        """

    # The end

    def stop(self) -> None:
        """Any thread may call it: calls that wait, now or later, raise
        Unanswered soon.  It cannot be taken back."""
