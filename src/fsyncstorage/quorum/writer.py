"""The writer: it offers records to the log, one at a time.

A writer begins with the state of a node that has applied all of the log, and
has an identity of its own.  `lead` offers the record of the next epoch; when
that is in the log, this writer and no other writes (until another one leads).
Then `write` offers a batch, and `say` anything else.  Each of them only begins
it: `advance` tries once to bring the next record of it into the log, and is
called until it says that all of it is there.

It promises:

- At each sequence number it offers one record, always the same bytes, until
  it knows what became of it: an append that was not answered may take effect
  at any later time.
- A record that is there is its own if it has the very same bytes.  Then the
  answer was lost, and nothing else.
- It offers nothing that the fold does not apply behind what the log has, and
  nothing more once another record stands where its own should: it is *fenced*
  for good.  That includes a log that has lost what it had.
- Its state is that of a node that has applied all that it has written.

So what `advance` has said to be in the log stands behind the record of this
writer's epoch, and before that of the next one (I16).

Whoever stops to try leaves a writer that can do nothing else: whether its
record is in the log is known when the next writer leads.

It has no thread, no clock and no lock: one thread at a time calls it, waits
between two tries as it likes, and may be interrupted at any line.  All that it
has achieved is in `state`, which is replaced as a whole.
"""

import os
import typing
from collections.abc import Callable
from collections.abc import Sequence

from .batch import Batch
from .batch import chunks
from .fold import Apply
from .fold import Refuse
from .fold import State
from .fold import compare
from .fold import step
from .log import Log
from .log import Moved
from .log import Trimmed
from .log import Unanswered
from .record import IDENTITY
from .record import Body
from .record import Epoch
from .record import PackBegin
from .record import PackSwap
from .record import Place
from .record import Record
from .record import Trim
from .record import pack
from .record import place_of


class Fenced(Exception):
    """Nothing more of this writer comes into the log."""


class _Task(typing.NamedTuple):
    """Records that belong together, and the number of the one before them."""

    batch: bytes
    bodies: Sequence[Callable[[], Body]]
    before: int


class _Offer(typing.NamedTuple):
    before: Place
    place: Place
    raw: bytes
    after: State


def new_identity() -> bytes:
    return os.urandom(IDENTITY)


class Writer:

    def __init__(self, log: Log, state: State,
                 identify: Callable[[], bytes] = new_identity) -> None:
        self._log = log
        #: What is in the log.
        self.state = state
        self._identify = identify
        self.id = identify()
        #: Why, if it is.
        self.fenced: str | None = None
        self._task = _Task(b'', (), state.place.sequence)
        self._offer: _Offer | None = None
        self._reads = 0

    # What is to be written

    def lead(self, node: bytes) -> None:
        self._begin([lambda: Epoch(node)])

    def write(self, batch: Batch) -> None:
        self._begin([chunk.body for chunk in chunks(batch)])

    def say(self, body: PackBegin | PackSwap | Trim) -> None:
        self._begin([lambda: body])

    def _begin(self, bodies: Sequence[Callable[[], Body]]) -> None:
        if self.fenced is not None:
            raise Fenced(self.fenced)
        if self.left:
            raise AssertionError('the fate of another record is not known')
        self._task = _Task(
            self._identify(), bodies, self.state.place.sequence)

    @property
    def left(self) -> int:
        """How many records are to be written."""
        task = self._task
        return task.before + len(task.bodies) - self.state.place.sequence

    # How it comes into the log

    def advance(self) -> bool:
        """Try once; true if all that was to be written is in the log.

        Raise Unanswered if it is not known whether it is: try again.  Raise
        Fenced if it is not, and never will be, or if the log has lost what it
        had.
        """
        if self.fenced is not None:
            raise Fenced(self.fenced)
        if self.left:
            offer = self._next_offer()
            try:
                self._log.append(offer.before, offer.place, offer.raw)
            except Moved:
                self._find(offer)
            self.state = offer.after
        return not self.left

    def _next_offer(self) -> _Offer:
        """What is offered behind this state: once made, always the same."""
        offer = self._offer
        if offer is None or offer.before != self.state.place:
            offer = self._offer = self._make_offer()
        return offer

    def _make_offer(self) -> _Offer:
        state, task = self.state, self._task
        body = task.bodies[-self.left]()
        leads = isinstance(body, Epoch)
        raw = pack(Record(
            state.log, state.place.sequence + 1, state.place.link,
            state.epoch + leads, self.id, task.batch, state.generation,
            state.end if leads else state.next, body))
        found = step(state, raw)
        if not isinstance(found, Apply):
            raise AssertionError(f'no node would apply this: {found}')
        return _Offer(state.place, place_of(raw), raw, found.state)

    def _find(self, offer: _Offer) -> None:
        """Return if the head was moved by this very record."""
        refused = compare(self.state, self._log.ends())
        if refused is not None:
            self._fence(refused.reason)
        self._reads += 1
        try:
            found = self._log.read(offer.place.sequence, self._reads)
        except Trimmed:
            self._fence(f'record {offer.place.sequence} was trimmed')
        if not found:
            raise Unanswered(f'record {offer.place.sequence} is not shown')
        if found[0] == offer.raw:
            return
        other = step(self.state, found[0])
        if isinstance(other, Apply):
            self._fence(
                f'record {offer.place.sequence} is of writer'
                f' {other.record.writer.hex()}, in epoch'
                f' {other.record.epoch}')
        if isinstance(other, Refuse) and not other.why.elsewhere:
            self._fence(other.reason)
        raise Unanswered(f'record {offer.place.sequence} is not shown')

    def _fence(self, reason: str) -> typing.NoReturn:
        self.fenced = reason
        raise Fenced(reason)
