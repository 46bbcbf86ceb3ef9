"""What the log has of some records: bytes, and the staged blobs they name.

A writer has one `Held` for what it brings into the log.  What was there before
it led is read once, in slices, into another one (`Earlier`).  What is trimmed
is taken out.

The count of bytes is exact to `GRAIN`, because there is no mark for each
record, but only one per `GRAIN`, and one for each record that names blobs.  Of
those records the ids of the blobs are kept, too, 16 bytes each.  If everything
up to the last record is trimmed, the count is exact.

Any thread may call a `Held`, but only one thread adds.
"""

import collections
import threading
import typing

from ..history.record import IDENTITY
from ..history.record import MOST
from ..history.record import Body
from ..history.record import Damaged
from ..history.record import Data
from ..history.record import Place
from ..history.record import Unknown
from ..history.record import parse
from ..history.record import place_of
from ..log.interface import Log
from ..log.interface import Trimmed
from ..log.interface import Unanswered
from ..log.members import ends

#: Bytes between two marks: a trim may overlook as many.
GRAIN = MOST


class Item(typing.NamedTuple):
    """What counts of one record."""

    #: Its bytes, and those of the blobs that were staged for it.
    size: int
    #: The ids of all blobs that it names.
    blobs: bytes


def item(raw: bytes, body: Body) -> Item:
    blobs = body.blobs if isinstance(body, Data) else ()
    return Item(
        len(raw) + sum(blob.size for blob in blobs),
        b''.join(blob.staged for blob in blobs))


class Held:

    def __init__(self) -> None:
        #: The number of the first record that was added.
        self.first: int | None = None
        self._changed = threading.Lock()
        self._added = self._marked = self._trimmed = 0
        #: The number of the last record.
        self._last = 0
        #: Numbers of records, with all bytes that were added up to each, and
        #: the ids of the blobs that it names.
        self._marks: collections.deque[tuple[int, int, bytes]] = (
            collections.deque())

    def add(self, sequence: int, item: Item) -> None:
        """Add the next record, which has this number.  One thread does this,
        without a lock, so an interrupt of a commit leaves no lock taken."""
        if self.first is None:
            self.first = sequence
        self._last = sequence  # before it is added: see `trim`
        self._added += item.size
        if item.blobs or self._added - self._marked >= GRAIN:
            self._marked = self._added
            self._marks.append((sequence, self._added, item.blobs))

    def trim(self, first: int) -> None:
        """The records before this one were removed."""
        with self._changed:
            added = self._added
            while self._marks and self._marks[0][0] < first:
                self._trimmed = self._marks.popleft()[1]
            if self._last < first:
                self._trimmed = added

    def frees(self, first: int) -> bool:
        """Would `trim` find something to take out?"""
        with self._changed:
            return bool(self._marks) and self._marks[0][0] < first

    def clear(self) -> None:
        """From now on it is counted anew."""
        with self._changed:
            self._marks.clear()
            self._added = self._marked = self._trimmed = self._last = 0

    @property
    def size(self) -> int:
        return self._added - self._trimmed

    def named(self, first: int | None = None) -> set[bytes]:
        """The blobs that records name: in all, or in those before `first`."""
        with self._changed:
            marks = tuple(self._marks)
        return {ids[at:at + IDENTITY] for sequence, _, ids in marks
                if first is None or sequence < first
                for at in range(0, len(ids), IDENTITY)}


class Earlier:
    """What the log had before this writer led.

    Its bytes count for the limit, and blobs must not be removed before the
    records that name them.  So until a record is read, nothing after it is
    trimmed (trimming).  And until all are read, no blob is considered unnamed
    (tidying).

    One member of the log may be wrong, and show records that the others do not
    have.  So each record has to be linked to the one before, up to the one
    that has begun the epoch of this writer.  Where that fails, the reading
    goes on with the next member; `trouble` reports it when it has failed with
    each.
    """

    def __init__(self, log: Log) -> None:
        self.held = Held()
        #: All was read, and is linked to the record of this writer's epoch.
        self.is_read = False
        #: The number of the record that is read next; 0: none was read.
        self.next = 0
        #: Why the reading does not advance, if that may need an operator.
        self.trouble: str | None = None
        self._log = log
        self._own = Place(0, b'')
        self._before: Place | None = None
        #: How often the reading has failed.
        self._times = 0

    def begin(self, own: Place) -> None:
        """`own`: the record that has begun the epoch of this writer."""
        self._own = own

    def go_on(self) -> None:
        """Read some more.

        Raise Unanswered, Missing: call it again.
        """
        if self.is_read:
            return
        if not self.next:
            self.next = ends(self._log).first
        before = self.next
        try:
            for raw in self._log.read(self.next):
                self._add(raw)
        except (Damaged, Unknown):
            pass
        except Trimmed:
            # The leader before may go on with a removal that it had begun.
            self._begin_anew()
        if self.next > self._own.sequence:
            if self._before not in (None, self._own):
                self._begin_anew()
            self.is_read, self.trouble = True, None
        elif self.next == before:
            self._has_failed(before)
        else:
            self._times, self.trouble = 0, None

    def _add(self, raw: bytes) -> None:
        """Count this record, if it is the next one before the own epoch's."""
        record, place = parse(raw), place_of(raw)
        if place.sequence != self.next or place.sequence > self._own.sequence:
            return
        if self._before is not None and record.previous != self._before.link:
            self._begin_anew()
        if place.sequence < self._own.sequence:
            self.held.add(place.sequence, item(raw, record.body))
        self._before = place
        self.next += 1

    def _begin_anew(self) -> typing.NoReturn:
        """From the log's first record: what was read is gone, or a sound
        record is not linked to the one before, and which of the two is wrong
        is not known."""
        self.held.clear()
        self._before = None
        self.next, failed = 0, self.next
        self._has_failed(failed)

    def _has_failed(self, number: int) -> typing.NoReturn:
        words = (f'record {number}, which was there before this node led, is'
                 ' not shown, or not as it was')
        self._log.turn()
        self._times += 1
        if self._times >= self._log.members:
            self.trouble = (
                f'{words}: nothing behind it is removed. Replace the members'
                ' whose disks are damaged')
        raise Unanswered(words)
