"""Which records before the pack end are kept.

With garbage collection, these are kept, as by stock's packer:

- the current record of each object that is reachable at the pack time from the
  root;
- each record that an undo after the pack time points back to, and the current
  records of all objects that are reachable from there.

Without garbage collection, the current record of each object is kept.

A second pass over the file, in its order, reads the references of the records
that count, and of no others.  Each object has a *rank*, its place in the
sorted list of oids, and references are stored as ranks: so marking reads
nothing from the file.  Memory: 25 bytes for each object, 4 for each of its
current references, and 4 for each object that is still to be followed.  With
2**32 objects or more, ranks take 8 bytes instead of 4.

In one place we keep more than stock does.  An undo may point back to a record
of an object that was not reachable at the pack time.  Stock keeps that record,
but not what it refers to, though the undo may have made it reachable.
"""

import array
import bisect
import heapq
from collections.abc import Callable
from collections.abc import Iterable

from ZODB.POSException import POSKeyError

from ..format import scan
from ..format.scan import FIRST
from ..format.window import Window
from .chains import Chains
from .progress import MARK
from .progress import REFERENCES
from .progress import STEP
from .progress import Tell
from .survey import Survey

# The oids that a record refers to.
References = Callable[[bytes], Iterable[bytes]]

ROOT = 0
# The mark of an object says what is kept of it.
_NOTHING, _CURRENT, _UNDONE = 0, 1, 2
# Objects between two calls of `tell`.
_OBJECTS = 1 << 16


class Kept:

    def __init__(self, objects: 'Objects', marks: bytearray,
                 targets: frozenset[int]) -> None:
        self.objects = objects
        self._marks = marks
        #: Records that undos after the pack time point back to.
        self.targets = targets

    def __contains__(self, record: scan.Record) -> bool:
        """Is this record, before the pack end, kept?"""
        rank = self.objects.rank(record.oid)
        return (rank is not None and self.has_current(rank)
                and self.objects.positions[rank] == record.position
                ) or record.position in self.targets

    def has_current(self, rank: int) -> bool:
        """Is the current record of this object kept, if there is one?"""
        return self._marks[rank] == _CURRENT


def all_current(found: Survey) -> Kept:
    """What is kept without garbage collection."""
    objects = Objects(found)
    return Kept(objects, bytearray([_CURRENT]) * len(objects), frozenset())


def reachable(found: Survey, window: Window, references: References,
              tell: Tell) -> Kept:
    """What is kept with garbage collection.

    POSKeyError: a reference leads nowhere.
    """
    objects = Objects(found)
    targets = frozenset(found.later_targets)
    graph = _Graph(objects, window, references)
    graph.read(found.pack_end, targets, tell)
    marks = _Marking(objects, graph, tell)
    marks.begin_at_the_root()
    marks.go_on_from_undos(found)
    return Kept(objects, marks.marks, targets)


class Objects:
    """The objects in the order of their oids."""

    def __init__(self, found: Survey) -> None:
        #: Sorted.
        self.oids = array.array('Q')
        #: Where each is current at the pack time, or 0.
        self.positions = array.array('Q')
        index = found.current
        gone = sorted({oid for oid in found.later_oids
                       if oid.to_bytes(8, 'big') not in index})
        for oid, position in heapq.merge(
                ((int.from_bytes(oid, 'big'), position)
                 for oid, position in index.iteritems()),
                ((oid, 0) for oid in gone)):
            self.oids.append(oid)
            self.positions.append(position)
        # It takes as much memory as these, and is not needed any more.
        del found.current
        #: Of the last object that `rank` found: its oid minus its rank.
        self._ahead = 0

    def __len__(self) -> int:
        return len(self.oids)

    def rank(self, oid: bytes) -> int | None:
        number = int.from_bytes(oid, 'big')
        oids = self.oids
        # Oids are mostly dense, and neighbours are often asked for in turn.
        rank = number - self._ahead
        if 0 <= rank < len(oids) and oids[rank] == number:
            return rank
        rank = bisect.bisect_left(oids, number)
        if rank < len(oids) and oids[rank] == number:
            self._ahead = number - rank
            return rank
        return None

    def is_current(self, record: scan.Record) -> bool:
        """At the pack time."""
        rank = self.rank(record.oid)
        return rank is not None and self.positions[rank] == record.position


class _Graph:
    """What refers to what.

    All references are in one row of numbers: for each record, how many it has,
    and then their ranks.
    """

    def __init__(self, objects: Objects, window: Window,
                 references: References) -> None:
        self._objects = objects
        self._window = window
        self._references = references
        self._chains = Chains(window)
        code = 'I' if len(objects) < 0xffffffff else 'Q'
        self.row = array.array(code, [0])
        #: Stands for an object that is not there.
        self.nowhere = (1 << 8 * self.row.itemsize) - 1
        #: Where in the row the references of an object (by its rank) begin,
        #: and those of a record that an undo points back to (by its position).
        #: 0: it has none.
        self.of_rank = array.array('Q', bytes(8 * len(objects)))
        self.of_target: dict[int, int] = {}

    def read(self, end: int, targets: frozenset[int], tell: Tell) -> None:
        objects = self._objects
        position, due, current, found = FIRST, 0, 0, None
        while position < end:
            if position >= due:
                tell(REFERENCES, position, end)
                due = position + STEP
            found = scan.read_transaction(self._window, position, found)
            for record in found.records:
                rank = objects.rank(record.oid)
                if (rank is not None
                        and objects.positions[rank] == record.position):
                    self.of_rank[rank] = self._add(record)
                    current += 1
                if record.position in targets:
                    self.of_target[record.position] = self._add(record)
            position = found.end
        if current + objects.positions.count(0) != len(objects):
            raise scan.Damage(
                FIRST, None, scan.DAMAGED,
                'a second read of the file has found other records than the'
                ' first')

    def _add(self, record: scan.Record) -> int:
        oids = self.oids(record)
        if not oids:
            return 0
        row, nowhere, rank_of = self.row, self.nowhere, self._objects.rank
        begin = len(row)
        row.append(len(oids))
        for oid in oids:
            rank = rank_of(oid)
            row.append(nowhere if rank is None else rank)
        return begin

    def oids(self, record: scan.Record) -> list[bytes]:
        source = record if record.length else self._chains.source(record)
        if not source.length:
            return []
        data = self._window.read(
            source.position + scan.RECORD_HEADER, source.length)
        try:
            return list(self._references(data))
        except ValueError as wrong:
            raise ValueError(
                f'the record of the object {record.oid.hex()} at'
                f' {record.position} cannot be read: {wrong}') from None

    def missing_in(self, position: int) -> bytes:
        """The oid of a missing object that the record at this position refers
        to."""
        for oid in self.oids(scan.record_at(self._window, position)):
            rank = self._objects.rank(oid)
            if rank is None or not self._objects.positions[rank]:
                return oid
        raise AssertionError(position)


class _Marking:

    def __init__(self, objects: Objects, graph: _Graph, tell: Tell) -> None:
        self.marks = bytearray(len(objects))
        self._objects = objects
        self._graph = graph
        self._tell = tell
        #: Ranks whose references are not followed yet.
        self._todo = array.array(graph.row.typecode)
        self._followed = 0

    def begin_at_the_root(self) -> None:
        if not any(self._objects.positions):
            return  # the pack time is before the first object
        root = self._objects.rank(ROOT.to_bytes(8, 'big'))
        if root is None or not self._objects.positions[root]:
            raise POSKeyError(ROOT.to_bytes(8, 'big'))
        self.marks[root] = _CURRENT
        self._todo.append(root)
        self._follow_all()

    def go_on_from_undos(self, found: Survey) -> None:
        of_target, of_unreachable = [], []
        for number, target in zip(found.later_oids, found.later_targets):
            rank = self._objects.rank(number.to_bytes(8, 'big'))
            assert rank is not None
            if self.marks[rank]:
                of_target.append(target)
            else:
                self.marks[rank] = _UNDONE
                of_unreachable.append(target)
        for target in of_target:
            self._follow(self._graph.of_target.get(target, 0), target)
            self._follow_all()
        for target in of_unreachable:
            # Stock does not follow these, so it never fails for them.
            self._follow(self._graph.of_target.get(target, 0), None)
            self._follow_all(is_strict=False)

    def _follow_all(self, is_strict: bool = True) -> None:
        todo, of_rank = self._todo, self._graph.of_rank
        positions = self._objects.positions
        while todo:
            if not self._followed % _OBJECTS:
                self._tell(MARK, self._followed, len(self.marks))
            self._followed += 1
            rank = todo.pop()
            self._follow(of_rank[rank], positions[rank] if is_strict else None)

    def _follow(self, begin: int, position: int | None) -> None:
        """Mark the objects whose references begin at `begin` in the row.

        `position` is that of the record which refers to them: POSKeyError if
        one of them is not there.  With None, missing objects are passed over.
        """
        marks, positions = self.marks, self._objects.positions
        row, nowhere = self._graph.row, self._graph.nowhere
        for rank in row[begin + 1:begin + 1 + row[begin]]:
            if rank == nowhere or not (marks[rank] or positions[rank]):
                if position is not None:
                    raise POSKeyError(self._graph.missing_in(position))
            elif not marks[rank]:
                marks[rank] = _CURRENT
                self._todo.append(rank)
