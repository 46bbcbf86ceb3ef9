"""The writer: it offers records to the log, one at a time.

A writer begins with the state of a node that has applied all of the log, and
has an identity of its own.  `lead` offers the record of the next epoch; when
that record is in the log, this writer and no other writes (until another one
leads).  Then `write` offers a batch, and `say` any other record.  These calls
only begin: each call of `advance` tries once to bring the next record into the
log, and the caller repeats it until it says that all of them are there.

It promises:

- At each sequence number it offers one record, always the same bytes, until
  it knows what became of it: an append that was not answered may take effect
  at any later time.
- A record in the log is its own if it has the very same bytes.  Then only the
  answer was lost.
- It offers nothing that the fold would not apply after what the log has.  Once
  another record stands where its own should, it offers nothing more: it is
  *fenced* for good.  The same holds if the log has lost what it had.
- A majority of the members has to show the record of its epoch before it
  leads, and what fences it (members).
- It believes one member that says that a record was appended only if it has
  the lease *after* that answer, so that no other writer can have led before.
  Otherwise a majority has to show the record: a member that has lost just the
  records of the next writer would take ours.
- Its state is that of a node that has applied all that it has written.

So what `advance` has said to be in the log stands after the record of this
writer's epoch, and before that of the next one (I16).

If the caller stops repeating `advance`, the writer can do nothing else:
whether its record is in the log is known only when the next writer leads.

`advance` is in two halves, so that one thread can do something else between
the question and the answer.

It has no thread, no clock and no lock.  One thread at a time calls it, waits
between two tries as it likes, and may be interrupted at any line.  All that it
has achieved is in `state`, which is replaced as a whole.
"""

import os
import typing
from collections.abc import Callable
from collections.abc import Sequence

from ..history.batch import Batch
from ..history.batch import chunks
from ..history.fold import Apply
from ..history.fold import Refuse
from ..history.fold import State
from ..history.fold import step
from ..history.record import IDENTITY
from ..history.record import Body
from ..history.record import Epoch
from ..history.record import PackBegin
from ..history.record import PackEnd
from ..history.record import PackSwap
from ..history.record import Place
from ..history.record import Record
from ..history.record import Trim
from ..history.record import pack
from ..history.record import place_of
from ..log import members
from ..log.interface import Log
from ..log.interface import Moved
from ..log.interface import Unanswered
from .held import Held
from .held import Item
from .held import item


class Fenced(Exception):
    """Nothing more of this writer gets into the log."""


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
    leads: bool
    item: Item


def new_identity() -> bytes:
    return os.urandom(IDENTITY)


class Writer:

    def __init__(self, log: Log, state: State,
                 identify: Callable[[], bytes] = new_identity,
                 has_lease: Callable[[], bool] = lambda: True) -> None:
        self._log = log
        self._has_lease = has_lease
        #: The state after all that is in the log.
        self.state = state
        self._identify = identify
        self.id = identify()
        #: Why it is fenced, if it is.
        self.fenced: str | None = None
        #: What it has brought into the log.
        self.held = Held()
        self._task = _Task(b'', (), state.place.sequence)
        #: The last offer that was made; the offer whose answer is awaited.
        self._offer: _Offer | None = None
        self._asked: _Offer | None = None

    # What is to be written

    def lead(self, node: bytes) -> None:
        self._begin([lambda: Epoch(node)])

    def write(self, batch: Batch) -> None:
        self._begin([chunk.body for chunk in chunks(batch)])

    def say(self, body: PackBegin | PackSwap | PackEnd | Trim) -> None:
        self._begin([lambda: body])

    def _begin(self, bodies: Sequence[Callable[[], Body]]) -> None:
        self.refuse_if_fenced()
        if self.left:
            raise AssertionError('the fate of another record is not known')
        self._task = _Task(
            self._identify(), bodies, self.state.place.sequence)

    @property
    def left(self) -> int:
        """How many records are still to be written."""
        task = self._task
        return task.before + len(task.bodies) - self.state.place.sequence

    # How records get into the log

    def advance(self) -> bool:
        """Try once; true if all that was to be written is in the log.

        Raise Unanswered if it is not known whether it is there: try again.
        Raise Fenced if it is not there, and never will be, or if the log has
        lost what it had.
        """
        self.ask()
        return self.answered()

    def ask(self) -> None:
        """The first half of a try: offer the next record, and return at once.

        After an interrupt, begin again with this call.
        """
        self.refuse_if_fenced()
        self._asked = None
        if self.left:
            offer = self._next_offer()
            self._log.ask(offer.before, offer.place, offer.raw)
            self._asked = offer

    def answered(self) -> bool:
        """The second half: wait until the fate of the record is known."""
        if self.left:
            offer, self._asked = self._asked, None
            if offer is None:
                raise Unanswered('nothing was asked')
            try:
                self._log.answered()
            except Moved:
                self._find(offer)
            else:
                if offer.leads or not self._has_lease():
                    self._find(offer)
            self.held.add(offer.place.sequence, offer.item)
            self.state = offer.after
        return not self.left

    def _next_offer(self) -> _Offer:
        """The offer after this state: once made, it is always the same."""
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
        return _Offer(
            state.place, place_of(raw), raw, found.state, leads,
            item(raw, body))

    def _find(self, offer: _Offer) -> None:
        """Return if a majority of the members shows this very record; raise
        Fenced if a majority shows another one, or refuses what is to follow.
        """
        log, ours, others = self._log, 0, 0
        for word in members.each(
                log, lambda member: members.hear(log, self.state, member)):
            if isinstance(word, Apply) and word.state.place == offer.place:
                ours += 1
            elif word is not None:
                others += 1
                reason = _why_not(word)
            if ours == members.majority(log):
                return
            if others == members.majority(log):
                self.fenced = reason
                raise Fenced(reason)

    def refuse_if_fenced(self) -> None:
        if self.fenced is not None:
            raise Fenced(self.fenced)


def _why_not(word: Apply | Refuse) -> str:
    """Why nothing more of this writer gets into the log."""
    if isinstance(word, Refuse):
        return word.reason
    record = word.record
    return (f'record {record.sequence} is of writer {record.writer.hex()}, in'
            f' epoch {record.epoch}')
