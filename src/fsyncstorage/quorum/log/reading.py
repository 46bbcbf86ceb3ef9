"""Reads the records after a state, and folds them.

A `Reader` returns the records that follow, in their order, each once, with the
state after it.  It takes them from any member that shows them.  Before it
believes that there are no more, or refuses one, it asks all members
(`members`).

A *refusal* is final: `Refused` says why, and what to do.  Damage and holes are
refused only if all members show the same; they may be mended later.
"""

import contextlib
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
from .members import Shown
from .members import ask
from .members import confirmed
from .members import majority
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
_MEMBERS = (
    'All members of the log that could be asked have it so. Replace those'
    ' whose disks are damaged, then start this node again')

WHAT_TO_DO = {
    Why.DAMAGED: _MEMBERS,
    Why.HOLE: _MEMBERS,
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


class Refused(StorageError):
    """This node cannot follow the log; it says why, and what to do."""

    def __init__(self, reason: str, why: Why | None = None) -> None:
        super().__init__(reason)
        self.why = why


class Reader:

    def __init__(self, log: Log, state: State, careful: bool = False) -> None:
        """If `careful`, all members are asked for each record."""
        self._log = log
        #: After the last record that was returned.
        self.state = state
        self._careful = careful

    def read(self) -> list[Apply]:
        """The records of one answer that follow.

        An empty list: none are there yet, or none are shown.  Raise
        Unanswered, or Refused.
        """
        if self._careful:
            return self.look()
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
        return self.look() if refused and not given else given

    def look(self) -> list[Apply]:
        """The next record, from any member that has it.

        An empty list: this is the log that was followed, and it ends here.
        Raise Unanswered, or Refused.
        """
        word = ask(self._log, self.state)
        if isinstance(word, Refuse):
            raise Refused(f'{word.reason}. {WHAT_TO_DO[word.why]}', word.why)
        return [self._go_on(word.applied)] if isinstance(word, Shown) else []

    def _go_on(self, decided: Apply) -> Apply:
        self.state = decided.state
        return decided

    def to_the_end(self, patience: Patience) -> Iterator[Apply]:
        """All that the log has by now, and perhaps more: another node may go
        on writing, faster than all members can be asked."""
        head = patience.answer(self._head)
        while self.state.place.sequence < head or not self._is_confirmed():
            given = patience.answer(self.read) or patience.answer(self.look)
            if not given:  # a majority says so, if `head` is one member's lie
                return
            yield from given

    def _is_confirmed(self) -> bool:
        """(If that is not known, a later state may be confirmed.)"""
        with contextlib.suppress(Unanswered):
            return confirmed(self._log, self.state)
        return False

    def _head(self) -> int:
        """The number of a record up to which at least a majority has
        everything that was confirmed."""
        heads = []
        for member in range(self._log.members):
            try:
                heads.append(self._log.ends(member).head.sequence)
            except Missing:
                heads.append(0)
            except Unanswered:
                pass
        if len(heads) < majority(self._log):
            raise Unanswered(
                f'{len(heads)} of {self._log.members} members have said where'
                ' the log ends')
        return max(heads)
