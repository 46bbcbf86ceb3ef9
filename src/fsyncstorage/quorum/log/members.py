"""What single members of the log say, and what most of them say.

The disk of one member may be damaged, and the member does not notice.  It may
have lost its last records, and then even take a record that all others refuse.
So what is final is believed when a majority of the members says it, each asked
separately: that a record is in the log, or that a node must not follow it.

Everything else is believed of one member.  What it shows has a CRC, and names
all of the log before it, so damage cannot produce it.  A node that has
followed a wrong member learns that before it keeps anything (`confirmed`).

If too few members answer, that is Unanswered.
"""

import typing
from collections.abc import Callable
from collections.abc import Iterator

from ..history.fold import Apply
from ..history.fold import Refuse
from ..history.fold import State
from ..history.fold import Why
from ..history.fold import compare
from ..history.fold import step
from ..history.record import FRONT
from ..history.record import Ends
from ..history.record import Place
from ..history.record import place_of
from .interface import Log
from .interface import Missing
from .interface import Trimmed
from .interface import Unanswered

T = typing.TypeVar('T')

#: What one member has after a state; None: the log ends there.
Word = Apply | Refuse | None


def majority(log: Log) -> int:
    return log.members // 2 + 1


def each(log: Log, question: Callable[[int], T]) -> Iterator[T]:
    """The answers of those members that answer, one after the other.

    It ends with Unanswered: the caller would have stopped if it had heard
    enough.
    """
    words = []
    for member in range(log.members):
        try:
            answer = question(member)
        except Unanswered as error:
            words.append(str(error))
        else:
            yield answer
    raise Unanswered(
        f'what {log.members - len(words)} of {log.members} members say is not'
        f' enough{": " * bool(words)}{"; ".join(words)}')


def agreed(log: Log, question: Callable[[int], T]) -> T:
    """The answer that a majority gives."""
    given: list[T] = []
    for answer in each(log, question):
        given.append(answer)
        if given.count(answer) == majority(log):
            break
    return answer


def confirmed(log: Log, state: State) -> bool:
    """Does a majority have the last record of this state?

    Raise Unanswered if that is not known, also if the record was trimmed.
    """
    return agreed(log, lambda member: _has(log, state.place, member))


def _has(log: Log, place: Place, member: int) -> bool:
    try:
        ends = log.ends(member)
        if place in (ends.head, Place(0, ends.log)):
            return True
        return any(
            len(raw) >= FRONT and place_of(raw) == place
            for raw in log.read(place.sequence, member))
    except Missing:
        return False
    except Trimmed:
        raise Unanswered(f'record {place.sequence} was removed') from None


def ends(log: Log) -> Ends:
    """Where the log begins and ends, according to a majority together.

    (A member that has lost something says an earlier head, or a later begin.)
    Raise Missing if a majority has no log.
    """
    def said(member: int) -> Ends | None:
        try:
            return log.ends(member)
        except Missing:
            return None

    found: list[Ends | None] = []
    for answer in each(log, said):
        found.append(answer)
        same = [one for one in found if one and answer
                and one.log == answer.log]
        if len(same) == majority(log):
            break
        if found.count(None) == majority(log):
            raise Missing('there is no log')
    return Ends(same[0].log, min(one.first for one in same),
                max(one.head for one in same))


def ask(log: Log, state: State) -> Word:
    """What the log has after this state: what a majority says, or else a
    record that any member shows."""
    shown, end, refused = None, 0, []
    try:
        for word in each(log, lambda member: hear(log, state, member)):
            if isinstance(word, Apply):
                shown = shown or word
            elif word is None:
                end += 1
            else:
                refused.append(word)
            if majority(log) in (end, len(refused)):
                return word
    except Unanswered:
        if shown is None:
            raise
    return shown


def hear(log: Log, state: State, member: int) -> Word:
    """What one member has after this state.

    Raise Unanswered if its record is damaged or lost, as it may be mended.
    (The member is asked for its ends first, so that records which arrive later
    are shown.)
    """
    try:
        ends = log.ends(member)
        found = log.read(state.place.sequence + 1, member)
    except Missing:
        return Refuse(Why.BEHIND, 'there is no log here')
    except Trimmed:
        return compare(state, ends) or Refuse(Why.TRIMMED, (
            f'record {state.place.sequence + 1} was removed'))
    refused = compare(state, ends)
    for raw in found:
        decided = step(state, raw)
        if isinstance(decided, Apply):
            return decided
        if isinstance(decided, Refuse) and refused is None:
            refused = decided
    if refused is None and ends.head != state.place:
        refused = Refuse(Why.HOLE, (
            f'the log ends at record {ends.head.sequence}, and record'
            f' {state.place.sequence + 1} is not shown'))
    if refused is not None and refused.why.elsewhere:
        raise Unanswered(
            f'{refused.reason}. If all members have it so, replace those whose'
            ' disks are damaged')
    return refused
