"""What a node makes of the next record: a pure function.

`step(state, raw)` is one of

    Apply     the record is the next one, and right: here is the state after it
    Skip      the node has it already
    Refuse    it is not applied, and nothing after it is applied

Nothing else decides which part of a log becomes part of a file.  So nodes that
begin with the same state, and are shown the same log, have the same bytes,
whatever else they are shown, how often, and in which order.

CHECKS lists what the next record must be, one function for each condition.
Most violations cannot happen while the engine keeps its promises and all nodes
run this very code; a node relies on neither.

A record that is refused stops the node.  It is never left out: its writer may
have acknowledged commits in it, which would then be lost in silence.

`compare(state, ends)` says whether a log can be the one that the node has
followed, by its ends alone.

Both judge what one member of the log has said.  This member may be wrong while
others are right.  So what is refused here is not refused for good before
`members.ask` says so.
"""

import enum
import typing
from dataclasses import dataclass
from dataclasses import replace

from . import record as records
from .record import NOBODY
from .record import Data
from .record import Ends
from .record import Epoch
from .record import PackBegin
from .record import PackEnd
from .record import PackSwap
from .record import Place
from .record import Record
from .record import Trim


class Why(enum.Enum):
    """Why a record, or a log, is refused."""

    DAMAGED = 'damaged'
    HOLE = 'a hole'
    UNKNOWN = 'of a later release'
    OTHER_LOG = 'another log'
    FORKED = 'another history'
    STALE = 'of an epoch that is over'
    USURPED = 'of a writer that no record has named'
    MISPLACED = 'at another place of the file'
    INCOMPLETE = 'within a batch'
    SENSELESS = 'what cannot follow'
    BEHIND = 'a log that ends before what was confirmed'
    TRIMMED = 'a log that begins behind what is needed'

    @property
    def elsewhere(self) -> bool:
        """Another member of the log may have it right, or this one later."""
        return self in (Why.DAMAGED, Why.HOLE)


class Incomplete(typing.NamedTuple):
    """A batch whose last chunk is still to come."""

    id: bytes
    #: Where all of it ends, and where its next chunk begins.
    end: int
    next: int


class Pack(typing.NamedTuple):
    """A pack that is under way, and all that its result depends on except the
    file: a node without a packed file when the swap arrives can pack again."""

    id: bytes
    #: Where the part of the file that is packed ends.
    end: int
    time: bytes
    collects: bool
    version: bytes


@dataclass(frozen=True, slots=True)
class State:
    """What a node knows after a record."""

    log: bytes
    place: Place
    epoch: int
    writer: bytes
    #: Of the file.
    generation: int
    #: Where the file ends: after the last whole batch.
    end: int
    incomplete: Incomplete | None = None
    #: The pack that is under way.
    pack: Pack | None = None

    @property
    def next(self) -> int:
        """Where the next bytes go."""
        return self.incomplete.next if self.incomplete else self.end


class Apply(typing.NamedTuple):
    state: State
    record: Record


class Skip(typing.NamedTuple):
    """The node has it already."""


class Refuse(typing.NamedTuple):
    why: Why
    reason: str


def beginning(log: bytes, generation: int, end: int) -> State:
    """The state of a node whose file begins a log."""
    return State(log, Place(0, log), 0, NOBODY, generation, end)


def compare(state: State, ends: Ends) -> Refuse | None:
    """Why a log with these ends must not be followed, or None."""
    have, head = state.place, ends.head
    if ends.log != state.log:
        return Refuse(Why.OTHER_LOG, (
            f'this is the log {ends.log.hex()}, not {state.log.hex()}'))
    if head.sequence < have.sequence:
        return Refuse(Why.BEHIND, (
            f'the log ends at record {head.sequence}, and record'
            f' {have.sequence} was confirmed'))
    if head.sequence == have.sequence and head.link != have.link:
        return Refuse(Why.FORKED, (
            f'record {have.sequence} is another one than was confirmed'))
    if ends.first > have.sequence + 1:
        return Refuse(Why.TRIMMED, (
            f'the log begins with record {ends.first}, and record'
            f' {have.sequence + 1} is needed'))
    return None


def step(state: State, raw: bytes) -> Apply | Skip | Refuse:
    try:
        record = records.parse(raw)
    except records.Damaged as error:
        return Refuse(Why.DAMAGED, str(error))
    except records.Unknown as error:
        return Refuse(Why.UNKNOWN, str(error))
    place = records.place_of(raw)
    if record.log != state.log:
        return _refuse(Why.OTHER_LOG, state, record)
    if place.sequence <= state.place.sequence:
        if place.sequence == state.place.sequence and place != state.place:
            return _refuse(Why.FORKED, state, record)
        return Skip()
    for check in CHECKS:
        why = check(state, record)
        if why is not None:
            return _refuse(why, state, record)
    return Apply(_after(replace(state, place=place), record), record)


def _refuse(why: Why, state: State, record: Record) -> Refuse:
    return Refuse(why, (
        f'record {record.sequence} is {why.value}: it is of epoch'
        f' {record.epoch}, at {record.position} in generation'
        f' {record.generation}, and is to follow record'
        f' {state.place.sequence}, of epoch {state.epoch}, at {state.next} in'
        f' generation {state.generation}'))


# What the next record must be

def _has_the_next_number(state: State, record: Record) -> Why | None:
    if record.sequence != state.place.sequence + 1:
        return Why.HOLE
    return None


def _names_the_one_before(state: State, record: Record) -> Why | None:
    if record.previous != state.place.link:
        return Why.FORKED
    return None


def _is_of_the_epoch(state: State, record: Record) -> Why | None:
    """Only an Epoch begins the next epoch, and names its writer.

    A record of an epoch that has ended must not be after the record that ended
    it: then the swap on the head did not hold, and commits in that record may
    have been acknowledged (I16).
    """
    if record.epoch < state.epoch:
        return Why.STALE
    if isinstance(record.body, Epoch):
        return Why.USURPED if record.epoch != state.epoch + 1 else None
    if (record.epoch, record.writer) != (state.epoch, state.writer):
        return Why.USURPED
    return None


def _is_at_the_end(state: State, record: Record) -> Why | None:
    """Each record says where its writer's file ends."""
    body = record.body
    if isinstance(body, Data):
        fits = record.position == state.next and body.begin == state.end
    else:
        fits = record.position == state.end
    if fits and record.generation == state.generation:
        return None
    return Why.MISPLACED


def _keeps_batches_whole(state: State, record: Record) -> Why | None:
    """A batch that is not complete is followed by its next chunk, or by
    another epoch."""
    begun, body = state.incomplete, record.body
    if begun is None or isinstance(body, Epoch):
        return None
    if isinstance(body, Data) and (
            record.batch, body.end) == (begun.id, begun.end):
        return None
    return Why.INCOMPLETE


def _makes_sense(state: State, record: Record) -> Why | None:
    """(A PackBegin within a pack gives up the earlier pack: its writer could
    not report its end.)"""
    body = record.body
    if isinstance(body, PackSwap | PackEnd) and (
            state.pack is None or body.pack != state.pack.id):
        return Why.SENSELESS
    if isinstance(body, Trim) and body.first > record.sequence:
        return Why.SENSELESS
    return None


CHECKS = (
    _has_the_next_number, _names_the_one_before, _is_of_the_epoch,
    _is_at_the_end, _keeps_batches_whole, _makes_sense)


# What a record changes

def _after(state: State, record: Record) -> State:
    body = record.body
    if isinstance(body, Data):
        next = record.position + len(body.data)
        if next == body.end:
            return replace(state, end=next, incomplete=None)
        return replace(
            state, incomplete=Incomplete(record.batch, body.end, next))
    if isinstance(body, Epoch):
        return replace(
            state, epoch=record.epoch, writer=record.writer,
            incomplete=None, pack=None)
    if isinstance(body, PackBegin):
        return replace(state, pack=Pack(
            record.batch, record.position, body.time, body.collects,
            body.version))
    if isinstance(body, PackSwap):
        return replace(
            state, generation=state.generation + 1, end=body.size, pack=None)
    if isinstance(body, PackEnd):
        return replace(state, pack=None)
    return state  # a Trim changes nothing here
