"""What the members of the log say, and what is believed of it.

The disk of one member may be damaged.  It may give wrong bytes for a record,
or a wrong head; it may have lost its last records, or all of them; and it
knows nothing of that.  So:

- What a member *shows* can be believed of any one: a record that the fold
  applies behind a state has a CRC, and names all of the log before it.  No
  damage makes that.
- What it merely *says* is believed when a majority of the members say it, each
  asked by itself: that there is no more, that the log is another one, that it
  has lost what was confirmed, or begins too late.

One thing makes a member show what the others do not have.  If it has lost its
last records, and a writer that is late offers it one, it takes that behind
those that it has.  So what one alone shows is good to go on with, and no more.
A node *keeps* a state only if a majority has its record (`confirmed`), and a
writer leads only then.

`ask` is how a node gets a final word.  To follow a log, any member's records
will do; when one is refused, or before a node believes that there are no more,
it asks here.

If a member does not answer, those that do may not be enough: Unanswered.
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
    """What the log has behind this state, or why it is not followed.

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

    False: a majority does not.  Raise Unanswered if neither is known; also of
    a record that was trimmed.
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
    """The record that a majority has behind this state; None: there is none
    that so many have.  Raise Unanswered if that is not known."""
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
    """What one member has behind this state.

    (Its ends are asked for first: what comes meanwhile is shown.)
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
    """(Refusals are weighed when all have been asked.)"""
    return (not isinstance(word, Refuse)
            and words.count(word) >= majority(log))


def believed(log: Log, words: Sequence[Word]) -> Word | None:
    """What is believed when all were asked, and some have answered."""
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
    """A majority refuses for good; or no member has the record whole, now.

    (One that refuses for good, beside two damaged copies, may be wrong.)
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
