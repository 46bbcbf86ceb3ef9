"""What single members of the log say, and when it is believed.

The disk of one member may be damaged.  The member may return wrong bytes for a
record, or a wrong head; it may have lost its last records, or all of them; and
it does not notice.  So:

- What a member *shows* is believed even of a single one: a record that the
  fold applies to a state has a CRC, and names all of the log before it.
  Damage cannot produce such a record.
- What it merely *says* is believed when a majority of the members say it, each
  asked separately: that there are no more records, that the log is another
  one, that it has lost what was confirmed, or that it begins too late.

In one case a member shows what the others do not have.  If it has lost its
last records, and a late writer offers it a record, it takes that record after
the ones that it still has.  So what a single member shows is good enough to go
on with, but not more.  A node *keeps* a state only if a majority has its
record (`confirmed`), and only then does a writer lead.

`ask` gives a node a final word.  To follow a log, the records of any member
are enough; when one is refused, or before a node believes that there are no
more, it calls `ask`.

If some members do not answer, the others may be too few: Unanswered.
"""

import typing
from collections.abc import Sequence

from ..history.fold import Apply
from ..history.fold import Refuse
from ..history.fold import State
from ..history.fold import Why
from ..history.fold import compare
from ..history.fold import step
from ..history.record import FRONT
from ..history.record import Place
from ..history.record import Record
from ..history.record import place_of
from .interface import Log
from .interface import Missing
from .interface import Trimmed
from .interface import Unanswered


class Shown(typing.NamedTuple):
    """The next record, and what the fold makes of it."""

    raw: bytes
    applied: Apply


class Nothing(typing.NamedTuple):
    """The log ends with the record of this state."""


Word = Shown | Nothing | Refuse


def majority(log: Log) -> int:
    return log.members // 2 + 1


def ask(log: Log, state: State) -> Word:
    """What the log has after this state, or why the node must not follow it.

    Raise Unanswered if that cannot be known yet.
    """
    words: list[Word] = []
    for member in range(log.members):
        try:
            word = hear(log, state, member)
        except Unanswered:
            continue
        words.append(word)
        if is_said_by_enough(log, word, words):
            return word
    found = believed(log, words)
    if found is None:
        raise Unanswered(undecided(log, state, words))
    return found


def confirmed(log: Log, state: State) -> bool:
    """Does a majority have the last record of this state?

    False: a majority does not have it.  Raise Unanswered if neither is known,
    also if the record was trimmed.
    """
    place = state.place
    answers = []
    for member in range(log.members):
        try:
            answers.append(_has(log, place, member))
        except Unanswered:
            continue
        if answers.count(answers[-1]) == majority(log):
            return answers[-1]
    raise Unanswered(
        f'{answers.count(True)} of {log.members} members have shown record'
        f' {place.sequence}, and {answers.count(False)} have not')


def shown_by_most(log: Log, state: State) -> Record | None:
    """The record that a majority has after this state; None if no record is
    on that many members.  Raise Unanswered if that is not known."""
    words: list[Word] = []
    for member in range(log.members):
        try:
            words.append(hear(log, state, member))
        except Unanswered:
            continue
        word = words[-1]
        if is_said_by_enough(log, word, words):
            return word.applied.record if isinstance(word, Shown) else None
    if len(words) < log.members:
        raise Unanswered(undecided(log, state, words))
    return None


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


def hear(log: Log, state: State, member: int) -> Word:
    """What one member has after this state.

    (It is asked for its ends first, so records that arrive later are shown.)
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
            return Shown(raw, decided)
        if isinstance(decided, Refuse) and refused is None:
            refused = decided
    if refused is not None:
        return refused
    if ends.head == state.place:
        return Nothing()
    return Refuse(Why.HOLE, (
        f'the log ends at record {ends.head.sequence}, and record'
        f' {state.place.sequence + 1} is not shown'))


def is_said_by_enough(log: Log, word: Word, words: Sequence[Word]) -> bool:
    """(Refusals are weighed when all members have been asked.)"""
    return (not isinstance(word, Refuse)
            and words.count(word) >= majority(log))


def believed(log: Log, words: Sequence[Word]) -> Word | None:
    """What is believed when all members were asked, and some have answered."""
    for word in words:
        if is_said_by_enough(log, word, words):
            return word
    refused = refused_by_all(log, words)
    if refused is not None:
        return refused
    shown = [word for word in words if isinstance(word, Shown)]
    return shown[0] if shown and all(
        word.raw == shown[0].raw for word in shown) else None


def refused_by_all(log: Log, words: Sequence[Word]) -> Refuse | None:
    """A majority refuses for good; or no member has the whole record now.

    (A single member that refuses for good, when the other two have damaged
    copies, may be the wrong one.)
    """
    refused = [word for word in words if isinstance(word, Refuse)]
    final = [word for word in refused if not word.why.elsewhere]
    if len(final) >= majority(log):
        return final[0]
    if len(refused) == log.members:
        return next(word for word in refused if word.why.elsewhere)
    return None


def undecided(log: Log, state: State, words: Sequence[Word]) -> str:
    said = '; '.join(
        word.reason if isinstance(word, Refuse)
        else 'the record is shown' if isinstance(word, Shown)
        else 'nothing is there' for word in words)
    return (
        f'{len(words)} of {log.members} members have answered what is behind'
        f' record {state.place.sequence}, and that is not enough: {said}')
