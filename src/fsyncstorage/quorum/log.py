"""What is asked of the engine that keeps the log: as little as possible.

The engine keeps records, which are bytes to it, under numbers that begin with
1, and a *head*: the place of the last record.  A majority of its members has
what it has answered for.  It promises:

- `append` compares and swaps: it takes effect only if the head is what the
  caller says, as a whole or not at all, and whatever becomes of its answer.
  It may take effect at any time after the call, also when the caller has left.
- What `ends` and `read` answer was confirmed by a majority, and is no older
  than the question.  Only a damaged disk makes it untrue: one member may give
  other bytes than those that were appended.  So `read` can be asked of
  another member.
- What was appended stays, in its order, until it is trimmed.

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


class Log(typing.Protocol):

    def ends(self) -> Ends:
        ...

    def append(self, before: Place, place: Place, raw: bytes) -> None:
        """Put a record at `place`, and the head there, if it is `before`.

        Raise Moved if it is not.
        """

    def read(self, sequence: int, member: int = 0) -> Sequence[bytes]:
        """Some records from this one on: none if it is not there yet.

        Of few records, or of one that is large.  Another number of `member`
        asks another member first.  Raise Trimmed if this one was removed.
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
