"""Reads the records after a state, and folds them.

A `Reader` returns the records that follow, in their order, each once, with the
state after it.  It reads from one member.  When it has shown nothing new for
ten seconds, or a record is refused, the reader asks all (`members`), and reads
on from the next one.

A *refusal* is what a majority says: `Refused` says why, and what to do.
"""

import contextlib
import math
import time
from collections.abc import Iterator

from ZODB.POSException import StorageError

from ..history.fold import Apply
from ..history.fold import Refuse
from ..history.fold import State
from ..history.fold import Why
from ..history.fold import step
from .interface import Log
from .interface import Missing
from .interface import Trimmed
from .interface import Unanswered
from .members import ask
from .members import confirmed
from .members import ends
from .outage import Patience

#: (While its old note is in the log, its name is taken.)
ANEW = (
    'make this node anew: move its files away, fsync-quorum forget its name,'
    ' then fsync-quorum bootstrap --from another one')
_RESTORED = (
    'The log was restored from a backup, emptied, or is another one, and what'
    ' was acknowledged since is only in the files of the nodes. Bring back the'
    ' right log; if it is lost, begin a new one from the node whose file has'
    ' most (fsync-quorum bootstrap), and let the others join it')
BROKEN = (
    'No log that keeps its promises has that. Leave the files and the log as'
    ' they are, and report it')
WHAT_TO_DO = {
    Why.UNKNOWN: 'Upgrade this node: standbys are upgraded first',
    Why.OTHER_LOG: (
        'Either the name in the section is that of another database, or this'
        f' file was copied from one. Correct the name; or {ANEW}'),
    Why.FORKED: _RESTORED,
    Why.STALE: BROKEN,
    Why.USURPED: BROKEN,
    Why.MISPLACED: BROKEN,
    Why.INCOMPLETE: BROKEN,
    Why.SENSELESS: BROKEN,
    Why.BEHIND: _RESTORED,
    Why.TRIMMED: f'This node was away for too long: {ANEW}',
}


#: Seconds without a record after which to ask all, and to read on from the
#: next member.
LOOKED_EVERY = 10.0


class Refused(StorageError):
    """This node cannot follow the log; it says why, and what to do."""

    def __init__(self, reason: str, why: Why | None = None) -> None:
        super().__init__(reason)
        self.why = why


class Reader:

    def __init__(self, log: Log, state: State, asks_all: bool = False) -> None:
        """`asks_all`: before it believes for the first time that nothing
        follows."""
        self._log = log
        #: After the last record that was returned.
        self.state = state
        #: When there was something new, or all were asked.
        self._news = -math.inf if asks_all else time.monotonic()

    def read(self) -> list[Apply]:
        """The records of one answer that follow; none, if there are none yet.

        Raise Unanswered, or Refused.
        """
        try:
            found = self._log.read(self.state.place.sequence + 1)
        except (Missing, Trimmed):
            return self.look()
        given = []
        refused = False
        for raw in found:
            decided = step(self.state, raw)
            if isinstance(decided, Apply):
                given.append(self._go_on(decided))
            elif isinstance(decided, Refuse):
                refused = True
        if given:
            self._news = time.monotonic()
        elif refused or time.monotonic() >= self._news + LOOKED_EVERY:
            return self.look()
        return given

    def look(self) -> list[Apply]:
        """The next record, from any member; none, if a majority says that the
        log ends here.  Then read on from the next member.

        Raise Unanswered, or Refused.
        """
        self._log.turn()
        word = ask(self._log, self.state)
        self._news = time.monotonic()
        if isinstance(word, Refuse):
            raise Refused(f'{word.reason}. {WHAT_TO_DO[word.why]}', word.why)
        return [] if word is None else [self._go_on(word)]

    def _go_on(self, decided: Apply) -> Apply:
        self.state = decided.state
        return decided

    def to_the_end(self, patience: Patience) -> Iterator[Apply]:
        """All that the log has by now, and perhaps more.

        Another node may go on writing, faster than all members can be asked:
        so it ends where a majority has ended when it began.
        """
        head = patience.answer(self._head)
        while self.state.place.sequence < head or not self._is_confirmed():
            given = patience.answer(self.read) or patience.answer(self.look)
            if not given:  # `head` was one member's lie
                return
            yield from given

    def _is_confirmed(self) -> bool:
        """(If that is not known, a later state may be confirmed.)"""
        with contextlib.suppress(Unanswered):
            return confirmed(self._log, self.state)
        return False

    def _head(self) -> int:
        with contextlib.suppress(Missing):
            return ends(self._log).head.sequence
        return 0
