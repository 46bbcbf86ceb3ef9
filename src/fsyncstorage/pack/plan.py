"""Which records a pack keeps: decided here, for a pack and for a forecast.

As by stock's packer: with garbage collection, what is reachable at the pack
time, and what undos after it point back to; without, the current record of
each object.

A first read of the file checks each transaction, since a copy would hide
damage.  It finds the *pack end*: the position of the first transaction after
the pack time.  A second read, in the order of the file, reads the references
of the records that count.  References are stored as *ranks* (the place of an
object in the sorted list of oids), so marking reads nothing from the file.
(docs/internals/pack.rst has the memory that this takes, and where we keep more
than stock does)
"""

import array
import bisect
import heapq
import typing
from collections.abc import Callable
from collections.abc import Iterable

from ZODB.fsIndex import fsIndex
from ZODB.POSException import POSKeyError

from ..format import scan
from ..format.scan import FIRST
from ..format.scan import Chains
from ..format.window import Window
from ..positions import Positions
from .progress import CHECK
from .progress import MARK
from .progress import REFERENCES
from .progress import Tell
from .progress import transactions

# The oids that a record refers to.
References = Callable[[bytes], Iterable[bytes]]

ROOT = 0
# The mark of an object says what is kept of it.
_NOTHING, _CURRENT, _UNDONE = 0, 1, 2
# Objects between two calls of `tell`.
_OBJECTS = 1 << 16


class Job(typing.NamedTuple):
    stop: bytes     # the tid of the pack time
    end: int        # the old file is read up to here before the pack decides
    gc: bool
    rate: int | None = None     # most bytes to read or write in a second
    sums: bool = False          # is the checksum of the new file wanted?


class NothingToDo(Exception):
    """The file would not become shorter."""


def planned(job: Job, window: Window, references: References,
            tell: Tell) -> 'Plan':
    """Decide what a pack keeps.

    Raises NothingToDo, scan.Damage, or POSKeyError (a reference leads
    nowhere).  Without garbage collection no references are read.
    """
    found = survey(window, job.stop, tell)
    if found.is_redundant:
        raise NothingToDo(
            'The database has already been packed to a later time or no'
            ' changes have been made since the last pack')
    plan = Plan(found, job.gc)
    if job.gc:
        _mark_reachable(plan, found, window, references, tell)
    return plan


# The first read

class _Survey:

    def __init__(self) -> None:
        #: Where the current record of each object is at the pack time.
        self.current = Positions(fsIndex())
        self.pack_end = FIRST
        #: Was the file packed to this time before, or to a later one?
        self.is_redundant = False
        #: Where back pointers behind the pack end lead.
        self.targets: set[int] = set()
        #: Those that lead across it: their objects, and their targets.
        self.later_oids = array.array('Q')
        self.later_targets = array.array('Q')

    def _add(self, found: scan.Transaction) -> None:
        """A transaction up to the pack time."""
        index = self.current
        for record in found.records:
            if record.length or record.back:
                index[record.oid] = record.position
            elif record.oid in index:  # its creation is undone
                del index[record.oid]

    def _add_later(self, found: scan.Transaction) -> None:
        for record in found.records:
            if not record.back:
                continue
            self.targets.add(record.back)
            if record.back < self.pack_end:
                self.later_oids.append(int.from_bytes(record.oid, 'big'))
                self.later_targets.append(record.back)


def survey(window: Window, stop: bytes, tell: Tell) -> _Survey:
    """Read up to the end of the window; scan.Damage if anything is wrong."""
    result = _Survey()
    is_later = False
    all_packed, status = True, b''
    for found in transactions(window, FIRST, window.end, CHECK, tell):
        if not is_later and found.tid > stop:
            is_later, status = True, found.status
        if is_later:
            result._add_later(found)
        else:
            all_packed = all_packed and found.status == b'p'
            status = found.status
            result._add(found)
            result.pack_end = found.end
    result.is_redundant = all_packed and status == b'p'
    return result


class Plan:
    """What is kept of the records before `pack_end`.

    At first, all current records are, without garbage collection, and none,
    with it.
    """

    def __init__(self, found: _Survey, gc: bool) -> None:
        self.pack_end = found.pack_end
        #: Records that undos after the pack time point back to.
        self.targets = frozenset(found.targets)
        self.objects = Objects(found)
        #: What is kept of each object, by its rank.
        self.marks = bytearray([_NOTHING if gc else _CURRENT]) * len(
            self.objects)
        self._gc = gc

    def keeps(self, record: scan.Record) -> bool:
        rank = self.objects.rank(record.oid)
        return (rank is not None and self.marks[rank] == _CURRENT
                and self.objects.positions[rank] == record.position
                ) or self._gc and record.position in self.targets


class Objects:
    """The objects in the order of their oids."""

    def __init__(self, found: _Survey) -> None:
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


# What is reachable

def _mark_reachable(plan: Plan, found: _Survey, window: Window,
                    references: References, tell: Tell) -> None:
    """POSKeyError: a reference leads nowhere."""
    graph = _Graph(plan.objects, window, references)
    graph.read(plan.pack_end, plan.targets, tell)
    marking = _Marking(plan, graph, tell)
    marking.begin_at_the_root()
    marking.go_on_from_undos(found)


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
        current = 0
        for found in transactions(
                self._window, FIRST, end, REFERENCES, tell):
            for record in found.records:
                rank = objects.rank(record.oid)
                if (rank is not None
                        and objects.positions[rank] == record.position):
                    self.of_rank[rank] = self._add(record)
                    current += 1
                if record.position in targets:
                    self.of_target[record.position] = self._add(record)
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

    def __init__(self, plan: Plan, graph: _Graph, tell: Tell) -> None:
        self.marks = plan.marks
        self._objects = plan.objects
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

    def go_on_from_undos(self, found: _Survey) -> None:
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
