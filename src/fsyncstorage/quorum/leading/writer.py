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
  for good.  That includes a log that has lost what it had.  No single member
  makes it believe that (members).
- It leads only when a majority of the members shows the record of its epoch,
  each asked by itself.  One that has lost its last records could say that it
  was appended, and be the only one that has it.
- One member is believed that it has appended a record only while the writer
  has the lease, so that no other one can have led since.  Else a majority is
  asked: one that has lost just the records of the next writer would take ours.
- Its state is that of a node that has applied all that it has written.

So what `advance` has said to be in the log stands behind the record of this
writer's epoch, and before that of the next one (I16).

Whoever stops to try leaves a writer that can do nothing else: whether its
record is in the log is known when the next writer leads.

`advance` is in two halves, so that one thread can do something else between
the question and the answer.

It has no thread, no clock and no lock: one thread at a time calls it, waits
between two tries as it likes, and may be interrupted at any line.  All that it
has achieved is in `state`, which is replaced as a whole.  Only `confirm` and
`find_successor` may be called by another thread meanwhile; they may fence the
writer, and then what is answered later does not count.
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
from ..history.fold import Why
from ..history.fold import step
from ..history.record import IDENTITY
from ..history.record import NOBODY
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
        #: What is in the log.
        self.state = state
        self._identify = identify
        self.id = identify()
        #: Why, if it is.
        self.fenced: str | None = None
        #: Of what it has brought into the log.
        self.held = Held()
        self._task = _Task(b'', (), state.place.sequence)
        #: The last one that was made; the one of which an answer is to come.
        self._offer: _Offer | None = None
        self._asked: _Offer | None = None

    # What is to be written

    def lead(self, node: bytes, server: bytes = NOBODY) -> None:
        self._begin([lambda: Epoch(node, server)])

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
        self.ask()
        return self.answered()

    def ask(self) -> None:
        """The first half of a try: offer the next record, and return at once.

        After an interrupt, begin again with it.
        """
        self.refuse_if_fenced()
        self._asked = None
        if self.left:
            offer = self._next_offer()
            self._log.ask(offer.before, offer.place, offer.raw)
            self._asked = offer

    def answered(self) -> bool:
        """The second half: wait for what became of it."""
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
            self.refuse_if_fenced()  # `confirm`, meanwhile
            self.held.add(offer.place.sequence, offer.item)
            self.state = offer.after
        return not self.left

    def confirm(self, state: State | None = None) -> State:
        """What was written, or an earlier state, if a majority of the members
        has it.

        A state is kept only if it comes from here.  Raise Unanswered if that
        is not known; Fenced if a member has said that it was appended, and the
        others do not have it.
        """
        if state is None:
            state = self.state
        if not members.confirmed(self._log, state):
            self._fence(
                f'most members of the log do not have record'
                f' {state.place.sequence} of this writer, which was appended:'
                ' one of them is wrong, or the log was restored')
        return state

    def find_successor(self) -> None:
        """Raise Fenced if a majority of the members shows what another one
        has written behind the last record of this writer.

        An append finds that, too; this is for a writer that has nothing to
        append.  Raise Unanswered if it is not known.
        """
        state = self.state
        if self._log.ends().head.sequence <= state.place.sequence:
            return
        record = members.shown_by_most(self._log, state)
        if record is not None and record.writer != self.id:
            self._fence(_instead(record).reason)

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
        return _Offer(
            state.place, place_of(raw), raw, found.state, leads,
            item(raw, body))

    def _find(self, offer: _Offer) -> None:
        """Return if a majority of the members shows this very record."""
        log = self._log
        words: list[members.Word] = []
        for member in range(log.members):
            try:
                word = members.hear(log, self.state, member)
            except Unanswered:
                continue
            if isinstance(word, members.Shown) and word.raw != offer.raw:
                word = _instead(word.applied.record)
            words.append(word)
            if isinstance(word, members.Shown) and (
                    words.count(word) == members.majority(log)):
                return
        refused = members.refused_by_all(log, words)
        if refused is not None and not refused.why.elsewhere:
            self._fence(refused.reason)
        raise Unanswered(members.undecided(log, self.state, words))

    def refuse_if_fenced(self) -> None:
        if self.fenced is not None:
            raise Fenced(self.fenced)

    def _fence(self, reason: str) -> typing.NoReturn:
        self.fenced = reason
        raise Fenced(reason)


def _instead(record: Record) -> Refuse:
    """Another one is where ours should be."""
    return Refuse(Why.USURPED, (
        f'record {record.sequence} is of writer {record.writer.hex()}, in'
        f' epoch {record.epoch}'))
