"""How long the new file would be, and what would be freed, by class.

It reads the old file once more, and asks for each record up to the pack end
whether it is kept, as the copy does; nothing is copied.

Freed are the bytes of records with their headers, by class, and what is left
of transactions: headers, users, descriptions, extensions.  (A record that is
kept with its data in the place of a pointer becomes longer, and is counted
there.)  Together they are what the file becomes shorter by.
"""

import collections
import typing

from ..format import scan
from ..format.classes import Classes
from ..format.scan import FIRST
from ..format.scan import POINTER
from ..format.scan import RECORD_HEADER
from ..format.window import Window
from .chains import Chains
from .copying import Output
from .copying import list_blobs
from .marking import Kept
from .plan import Plan
from .progress import COUNT
from .progress import STEP
from .progress import Tell

#: The class of records without data: the creation of the object is undone.
NO_DATA = '(no data)'
# Bytes of an index, for each object: it takes fewer, unless oids are sparse.
_INDEX = 12
# Classes that are listed by name.
MOST_LISTED = 1000


def index_size(kept: Kept) -> int:
    """Of the index of the new file, at most, about."""
    return _INDEX * kept.objects


class Row(typing.NamedTuple):
    """What is freed of one class."""

    name: str
    #: Objects whose state at the pack time goes: nothing refers to them.
    objects: int
    records: int
    bytes: int


class Counted(typing.NamedTuple):
    old_size: int
    new_size: int
    index_size: int
    #: Of transactions, beside their records.
    transactions: int
    rows: list[Row]     # the largest first

    @property
    def needed(self) -> int:
        """Room for the new file and its index."""
        return self.new_size + self.index_size


def nothing(size: int) -> Counted:
    """Of a file of this size, of which nothing can be freed."""
    return Counted(size, size, 0, 0, [])


def counted(plan: Plan, window: Window, removed: Output | None,
            tell: Tell) -> Counted:
    """`removed` gets the list of the blobs that are not kept.

    scan.Damage, OSError.
    """
    count = _Count(plan, window, removed)
    count.read(tell)
    new_size = count.size + window.end - plan.pack_end + count.replaced()
    if count.size == plan.pack_end:
        return nothing(window.end)
    return Counted(window.end, new_size, index_size(plan.kept),
                   count.transactions, count.rows())


class _Count:

    def __init__(self, plan: Plan, window: Window,
                 removed: Output | None) -> None:
        self._plan = plan
        self._window = window
        self._chains = Chains(window)
        self._removed = removed
        self._classes = Classes()
        self._no_data = self._classes.named(NO_DATA)
        #: By the number of their class.
        self._objects: collections.Counter[int] = collections.Counter()
        #: Of the new file, up to the pack end.
        self.size = FIRST
        self.transactions = 0

    def read(self, tell: Tell) -> None:
        end, position, due, found = self._plan.pack_end, FIRST, 0, None
        while position < end:
            if position >= due:
                tell(COUNT, position, end)
                due = position + STEP
            found = scan.read_transaction(self._window, position, found)
            self._add(found)
            position = found.end

    def _add(self, found: scan.Transaction) -> None:
        kept = []
        size = found.end - found.position
        for record in found.records:
            size -= record.end - record.position
            if record in self._plan.kept:
                kept.append(record)
                self._keep(record)
            else:
                self._drop(record)
        if kept:
            self.size += size
        else:
            self.transactions += size
        if self._removed is not None and len(kept) < len(found.records):
            list_blobs(self._removed, found.records, kept, self._window,
                       self._chains)

    def _keep(self, record: scan.Record) -> None:
        length = record.length or self._length(record)
        self.size += RECORD_HEADER + length
        if length > (record.length or POINTER):
            self._classes.bytes[self._class(record)] -= length - POINTER

    def _length(self, record: scan.Record) -> int:
        """Of what is written for a record without data."""
        return self._chains.source(record).length or POINTER

    def _drop(self, record: scan.Record) -> None:
        number = self._class(record)
        self._classes.records[number] += 1
        self._classes.bytes[number] += record.end - record.position
        if self._plan.kept.is_current(record):
            self._objects[number] += 1

    def _class(self, record: scan.Record) -> int:
        source = record if record.length else self._chains.source(record)
        if not source.length:
            return self._no_data
        return self._classes.of_record(
            self._window, source.position, source.length)

    def replaced(self) -> int:
        """What the records behind the pack end become longer by: those that
        point back to one that is not kept."""
        longer = 0
        for position in self._plan.targets:
            record = scan.record_at(self._window.scout(), position)
            if record not in self._plan.kept:
                more = (record.length or self._length(record)) - POINTER
                if more:
                    self._classes.bytes[self._class(record)] -= more
                longer += more
        return longer

    def rows(self) -> list[Row]:
        """The largest first; those that are not listed are in the last."""
        made = sorted(
            (Row(name, self._objects[number], records, size)
             for number, (name, records, size) in enumerate(zip(
                 self._classes.names, self._classes.records,
                 self._classes.bytes))
             if records or size),
            key=lambda row: (-row.bytes, row.name))
        listed, others = made[:MOST_LISTED], made[MOST_LISTED:]
        if others:
            listed.append(Row(f'({len(others):,} more)', *(
                sum(each) for each in zip(*(row[1:] for row in others)))))
        return listed
