"""How long the new file would be, and what would be freed, by class.

Each record up to the pack end is *added* once, before it is known what is
kept.  The pass that reads references adds it (marking), or, if there is no
such pass, a pass of our own.  When it is known which objects are kept, the
figures are a sum over objects and transactions.  Nothing is copied.

Two figures tell what is freed.  One is the bytes of records with their
headers, by the class that the object has at the pack time (if the object is
not there then, by the class of each record).  The other is what transactions
have besides records: headers, users, descriptions, extensions.  Their sum is
how much shorter the file becomes.  (A record that is kept with its data in the
place of a pointer becomes longer, so less is freed of its class.)

Memory: 28 bytes for each object, and 8 for each transaction.
"""

import array
import typing

from ..format import scan
from ..format.classes import Classes
from ..format.scan import FIRST
from ..format.scan import POINTER
from ..format.scan import RECORD_HEADER
from ..format.window import Window
from .chains import Chains
from .goneblobs import GoneBlobs
from .marking import Kept
from .marking import Objects
from .plan import Plan
from .progress import COUNT
from .progress import STEP
from .progress import Tell

#: The class of an object whose creation is undone.
NO_DATA = '(no data)'
# Bytes of an index for each object; fewer, unless oids are sparse.
_INDEX = 12
# Bytes for each object in the list of the objects that go (restorable).
_GONE = 8
# How a record begins that a storage wrapper has changed; a pickle never does.
_WRAPPED = b'.'
# Classes that are listed by name.
MOST_LISTED = 1000


class Row(typing.NamedTuple):
    """What is freed of one class."""

    name: str
    #: Objects whose state at the pack time is not kept: nothing refers to
    #: them.
    objects: int
    records: int
    bytes: int


class Counted(typing.NamedTuple):
    old_size: int
    new_size: int
    #: Bytes on the disk, for the new file and the files beside it.
    needed: int
    #: Bytes that are freed of transactions, in addition to their records.
    transactions: int
    rows: list[Row]     # the largest first


def room(size: int, kept: Kept, share: float) -> int:
    """Bytes that a new file of this size needs on the disk.

    The disk takes about the given share of its bytes (less than 1 if it
    compresses).  Its index and the list of the objects that go are added, with
    the most bytes that they can have.
    """
    return (int(size * share) + _INDEX * len(kept.objects)
            + _GONE * kept.most_that_go)


class Tally:
    """`removed` gets the blobs that are not kept."""

    def __init__(self, window: Window,
                 removed: GoneBlobs | None = None,
                 share: float = 1.0) -> None:
        self._share = share
        self._window = window
        self._chains = Chains(window)
        self._classes = Classes()
        self._no_data = self._classes.named(NO_DATA)
        self._removed = removed

    def begin(self, objects: Objects, targets: frozenset[int]) -> None:
        """`targets` are records that are kept even if their objects go."""
        self._objects = objects
        self._targets = targets
        count = len(objects)
        # These have an element for each object, at its rank.
        self._bytes = array.array('Q', bytes(8 * count))
        self._records = array.array('I', bytes(4 * count))
        self._class_of = array.array('I', bytes(4 * count))
        #: The bytes of the current record, as it would be written.
        self._length = array.array('Q', bytes(8 * count))
        #: The ranks of current records, in the order of the file.
        self._ranks = array.array('I' if count < 1 << 32 else 'Q')
        # For each transaction that has such records: how many it has, and how
        # many bytes it has in addition to all of its records.
        self._counts = array.array('I')
        self._beside = array.array('I')
        #: Of targets: rank, and bytes as they would be written; the ranks of
        #: those that are current; the bytes of those without a rank; and what
        #: their transactions have in addition to records.
        self._kept: list[tuple[int, int]] = []
        self._kept_current: set[int] = set()
        self._kept_by_itself = 0
        self._kept_beside = 0
        self._all_beside = 0

    def read(self, plan: Plan, tell: Tell) -> None:
        """Add all records, by a pass of our own over the file."""
        objects, end = plan.kept.objects, plan.pack_end
        self.begin(objects, plan.kept.targets)
        position, due, found = FIRST, 0, None
        while position < end:
            if position >= due:
                tell(COUNT, position, end)
                due = position + STEP
            found = scan.read_transaction(self._window, position, found)
            self.add(found, [
                objects.rank(record.oid) for record in found.records])
            position = found.end

    def add(self, found: scan.Transaction, ranks: list[int | None]) -> None:
        """Add a transaction; `ranks` are those of its records."""
        beside = found.end - found.position
        positions, targets = self._objects.positions, self._targets
        kept: set[bytes] = set()            # oids
        current: dict[bytes, int] = {}      # and ranks
        for record, rank in zip(found.records, ranks):
            position, length = record.position, record.length
            size = RECORD_HEADER + (length or POINTER)
            beside -= size
            is_target = position in targets
            if is_target:
                kept.add(record.oid)
            if rank is None or not positions[rank]:
                self._add_by_itself(record, size, is_target)
                continue
            self._bytes[rank] += size
            self._records[rank] += 1
            is_current = positions[rank] == position
            if is_current:
                self._class_of[rank] = self._class(record)
            if is_target:
                self._kept.append((rank, self._new_size(record)))
                if is_current:
                    self._kept_current.add(rank)
            elif is_current:
                current[record.oid] = rank
                self._length[rank] = (
                    size if length else self._new_size(record))
        self._add_beside(beside, kept, current)
        if self._removed is not None:
            self._removed.add(
                found, kept, self._window, self._chains, current)

    def _add_beside(self, beside: int, kept: set[bytes],
                    current: dict[bytes, int]) -> None:
        self._all_beside += beside
        if kept:
            self._kept_beside += beside
        elif current:
            self._ranks.extend(current.values())
            self._counts.append(len(current))
            self._beside.append(beside)

    def _new_size(self, record: scan.Record) -> int:
        """The size of the record in the new file, with its data in full."""
        return RECORD_HEADER + (
            record.length or self._chains.source(record).length or POINTER)

    def _add_by_itself(self, record: scan.Record, size: int,
                       is_kept: bool) -> None:
        """Add a record of an object that is not there at the pack time."""
        number = self._class(record)
        self._classes.records[number] += 1 - is_kept
        self._classes.bytes[number] += size
        if is_kept:
            length = self._new_size(record)
            self._classes.bytes[number] -= length
            self._kept_by_itself += length

    def _class(self, record: scan.Record) -> int:
        source = record if record.length else self._chains.source(record)
        if not source.length:
            return self._no_data
        where = self._window, source.position, source.length
        number = self._classes.of_plain(*where)
        if number:
            return number
        if self._window.read(
                source.position + RECORD_HEADER, 1) == _WRAPPED:
            raise ValueError(
                f'the record of the object {source.oid.hex()} at'
                f' {source.position} was wrapped by another storage'
                ' (compressed, for example): what it refers to cannot be'
                ' foretold')
        return self._classes.of_rare(*where)

    # When all was added, and it is known what is kept

    def counted(self, plan: Plan) -> Counted:
        """The figures.  Raises scan.Damage, OSError."""
        kept, end = plan.kept, self._window.end
        if self._removed is not None:
            self._removed.decide(kept)
            self._removed.flush()
        beside = self._kept_beside + self._beside_kept(kept)
        objects = [0] * len(self._classes.names)
        size = FIRST + beside + self._sum_up(kept, objects)
        if size == plan.pack_end:
            return Counted(end, end, 0, 0, [])
        size += end - plan.pack_end + self._longer(plan)
        return Counted(end, size, room(size, kept, self._share),
                       self._all_beside - beside, self._rows(objects))

    def _beside_kept(self, kept: Kept) -> int:
        """The bytes besides records, of transactions that keep a record."""
        total, ranks = 0, iter(self._ranks)
        for count, beside in zip(self._counts, self._beside):
            # (A list, so that all ranks are consumed: `any` stops early.)
            if any([kept.has_current(next(ranks)) for _ in range(count)]):
                total += beside
        return total

    def _sum_up(self, kept: Kept, objects: list[int]) -> int:
        """Fill in what is freed, by class; return the bytes that are kept."""
        size = self._kept_by_itself
        records, freed = self._classes.records, self._classes.bytes
        for rank, number in enumerate(self._class_of):
            records[number] += self._records[rank]
            freed[number] += self._bytes[rank]
            if not kept.objects.positions[rank] or rank in self._kept_current:
                continue
            if kept.has_current(rank):
                records[number] -= 1
                freed[number] -= self._length[rank]
                size += self._length[rank]
            else:
                objects[number] += 1
        for rank, length in self._kept:
            number = self._class_of[rank]
            records[number] -= 1
            freed[number] -= length
            size += length
        return size

    def _longer(self, plan: Plan) -> int:
        """How much longer the records behind the pack end become.

        Those that point back to a record that is not kept get its data in the
        place of the pointer.
        """
        total, scout = 0, self._window.scout()
        for position in plan.targets:
            if position not in plan.kept.targets:
                record = scan.record_at(scout, position)
                rank = plan.kept.objects.rank(record.oid)
                if rank is not None and record not in plan.kept:
                    more = self._new_size(record) - RECORD_HEADER - POINTER
                    self._classes.bytes[
                        self._class_of[rank] if plan.kept.objects.positions[
                            rank] else self._class(record)] -= more
                    total += more
        return total

    def _rows(self, objects: list[int]) -> list[Row]:
        """The largest first; the last row sums up what is not listed."""
        classes = self._classes
        made = sorted(
            (Row(*each) for each in zip(
                classes.names, objects, classes.records, classes.bytes)
             if any(each[1:])),
            key=lambda row: (-row.bytes, row.name))
        listed, others = made[:MOST_LISTED], made[MOST_LISTED:]
        if others:
            listed.append(Row(f'({len(others):,} more)', *(
                sum(each) for each in zip(*(row[1:] for row in others)))))
        return listed
