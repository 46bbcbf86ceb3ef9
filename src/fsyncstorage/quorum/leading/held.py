"""What the log has of some records: bytes, and the staged blobs they name.

A writer has one `Held` for what it brings into the log.  What was there before
it led is read into another one (earlier).  What is trimmed is taken out.

The count of bytes is exact to `GRAIN`, because there is no mark for each
record, but only one per `GRAIN`, and one for each record that names blobs.  Of
those records the ids of the blobs are kept, too, 16 bytes each.  If everything
up to the last record is trimmed, the count is exact.

Any thread may call it, but only one thread adds.
"""

import collections
import threading
import typing

from ..history.record import IDENTITY
from ..history.record import MOST
from ..history.record import Body
from ..history.record import Data

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
