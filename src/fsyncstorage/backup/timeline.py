"""A timeline: one history of one database, read in its order.

It is a chain of the objects of its log, in the order of their numbers.  Each
head has the sum of the head before it, and a segment begins where the one
before it ends.  A timeline may have a parent: what is before its first number
is the parent's, as its `begin` says.

A pack of the file begins a *generation*.  It stands in the log, and says which
bytes it has made of all before it: so many, with this sum.  The segments
behind it are of the new file.  These bytes are the *base* of the generation,
which is put later.  Reading may begin at a pack that has one; it must, where
all before it was removed.

The `Tip` of the chain says what the next head has to say.
"""

import bisect
import contextlib
import hashlib
import time
from collections.abc import Callable
from collections.abc import Iterator
from typing import Any
from typing import NamedTuple

from ZODB.utils import z64

from . import bodies
from . import content
from . import head as heads
from .bodies import ListedBlob
from .head import Damaged
from .head import Head
from .layout import Database
from .layout import Timeline
from .store import Entry
from .store import Exists
from .store import Missing
from .store import Store
from .store import is_there

#: Kinds of what is in a log.
IN_LOG = heads.SEGMENT, heads.PACK, heads.END

_FIELDS: dict[str, type | tuple[type, ...]] = {
    'sequence': int, 'parent': int, 'created': (int, float), 'why': str}
_OF_HEARTBEAT: dict[str, type | tuple[type, ...]] = {
    'sequence': int, 'position': int, 'time': (int, float)}
_OF_DRILL: dict[str, type | tuple[type, ...]] = {'time': (int, float)}
#: In the place of a parent's number.
_NO_PARENT = 0


class Gap(Damaged):
    """An object of the log is missing."""


class Tip(NamedTuple):
    """The end of a chain: what is behind its last head."""

    #: Of the next object of the log.
    sequence: int
    #: In the Data.fs: where the next segment begins.
    position: int
    #: The sum of the head.
    sum: bytes
    #: The last tid, and the largest oid, of all segments up to here.
    tid: bytes
    oid: bytes
    #: How many packs are before it.
    generation: int = 0

    def behind(self, head: Head, key: str) -> 'Tip':
        """The tip behind this head, which must be the next one."""
        if head.before != self.sum:
            raise Damaged(f'{key}: it does not continue the object before it')
        if head.kind == heads.END:
            return self._replace(sequence=self.sequence + 1, sum=head.sum)
        goes_on = (
            (head.generation, head.tid) == (self.generation + 1, self.tid)
            if head.kind == heads.PACK else head.generation == self.generation
            and head.start == self.position and head.tid > self.tid)
        if not goes_on or head.oid < self.oid:
            raise Damaged(f'{key}: it does not begin where the object before'
                          ' it ends')
        return tip_behind(head, self.sequence)


def tip_behind(head: Head, sequence: int) -> Tip:
    """The tip behind a segment, or a pack, of this number, which is believed.
    """
    return Tip(sequence + 1, head.end, head.sum, head.tid, head.oid,
               head.generation)


START = Tip(0, 0, heads.NO_SUM, z64, z64)


class Begin(NamedTuple):
    """What the `begin` of a timeline says."""

    names: Timeline
    #: The number of its first object; those before are the parent's.
    sequence: int
    parent: int
    created: float
    why: str


def begin(store: Store, database: Database, number: int, why: str,
          sequence: int = 0, parent: int = _NO_PARENT) -> None:
    """Put the `begin` of a timeline; Exists."""
    body = bodies.document({
        'created': time.time(), 'why': why, 'parent': parent,
        'sequence': sequence})
    store.create(database.timeline(number).begin,
                 head_of(heads.BEGIN, body).pack() + body)


def head_of(kind: bytes, body: bytes, before: bytes = heads.NO_SUM) -> Head:
    """The head of a document."""
    return Head(kind, heads.WHOLE, 0, len(body),
                hashlib.sha256(body).digest(), before=before)


def read_begin(store: Store, database: Database, number: int) -> Begin:
    names = database.timeline(number)
    _, pieces = content.get(store, names.begin, (heads.BEGIN,))
    try:
        found = Begin(names, **bodies.read_document(
            b''.join(pieces), _FIELDS))
        if (not _NO_PARENT <= found.parent < number
                or not 0 <= found.sequence < heads.LIMIT
                or found.parent == _NO_PARENT and found.sequence):
            raise Damaged('it begins nowhere')
    except Damaged as error:
        raise Damaged(f'{names.begin}: {error}') from None
    return found


def newest(store: Store, database: Database) -> int:
    """The number of the newest timeline; 0: there is none."""
    number = 0
    while is_there(store, database.timeline(number + 1).begin):
        number += 1
    return number


def put_note(store: Store, key: str, kind: bytes, **values: float) -> None:
    """An object that is overwritten by the next of its kind."""
    body = bodies.document(values)
    store.overwrite(key, head_of(kind, body).pack() + body)


def read_heartbeat(store: Store, names: Timeline) -> dict[str, Any] | None:
    """What the heartbeat says; None: there is none."""
    return _read_note(store, names.heartbeat, heads.HEARTBEAT, _OF_HEARTBEAT)


def read_drill(store: Store, names: Timeline) -> float | None:
    """When the last drill has ended that found all to be sound."""
    found = _read_note(store, names.drill, heads.DRILL, _OF_DRILL)
    return found['time'] if found else None


def _read_note(store: Store, key: str, kind: bytes,
               fields: dict[str, type | tuple[type, ...]]
               ) -> dict[str, Any] | None:
    """None: there is none.  It may be old, and nothing is lost if it is
    damaged."""
    with contextlib.suppress(Damaged):
        _, pieces = content.get(store, key, (kind,))
        return bodies.read_document(b''.join(pieces), fields)
    return None


class History:
    """A timeline, with what it has of its parents."""

    def __init__(self, store: Store, database: Database, number: int) -> None:
        self.store = store
        self.database = database
        #: From the oldest parent on.
        self.begins: list[Begin] = []
        while number != _NO_PARENT:
            self.begins.insert(0, read_begin(store, database, number))
            number = self.begins[0].parent

    @property
    def names(self) -> Timeline:
        return self.begins[-1].names

    def entries(self, first: int = 0,
                tell: Callable[[Damaged], object] | None = None
                ) -> Iterator[tuple[int, Entry]]:
        """All objects of the log from a number on, with their numbers.

        What is missing, or is no object of a log, is an error; with `tell`,
        that is called, and the others follow."""
        tell = tell or _raised
        for begin, stop in self.stretches():
            expected = max(begin.sequence, first)
            if stop is not None and expected >= stop:
                continue
            for entry in self.store.list(
                    begin.names.log, begin.names.segment(expected - 1)
                    if expected else ''):
                try:
                    sequence = begin.names.sequence(entry.key)
                except Damaged as error:
                    tell(error)
                    continue
                if stop is not None and sequence >= stop:
                    break
                if sequence != expected:
                    tell(_gap(begin.names, expected, sequence))
                yield sequence, entry
                expected = sequence + 1
            if stop not in (None, expected):
                tell(_gap(begin.names, expected, stop))

    def stretches(self) -> Iterator[tuple[Begin, int | None]]:
        """Each timeline, with the number from which on its child goes on."""
        for begin, child in zip(self.begins, [*self.begins[1:], None]):
            yield begin, None if child is None else child.sequence

    def last(self, tell: Callable[[Damaged], object] | None = None
             ) -> tuple[int, Entry] | None:
        """The last object of the log; the others are not read."""
        last = None
        for last in self.entries(self.start(), tell):
            pass
        return last

    def reached(self, tell: Callable[[Damaged], object] | None = None
                ) -> tuple[Tip, Head | None]:
        """The tip behind the last object, which is believed, and its head."""
        found = self.last(tell)
        if found is None:
            return START, None
        head = self.head(found[0])
        return tip_behind(head, found[0]), head

    def end(self) -> None:
        """Put the end behind the last object, whatever is missing before it:
        whoever writes stops."""
        body = bodies.document({})
        while True:
            tip, last = self.reached(tell=lambda error: None)
            if last is not None and last.kind == heads.END:
                return
            # Exists: it was not the last one.
            with contextlib.suppress(Exists):
                self.store.create(
                    self.names.segment(tip.sequence),
                    head_of(heads.END, body, tip.sum).pack() + body)

    # Generations

    def bases(self) -> dict[int, Entry]:
        """Those that are there, by the numbers of their packs."""
        return {
            sequence: entry for begin in self.begins
            for entry in self.store.list(begin.names.bases)
            if self.names_of(sequence := begin.names.sequence(entry.key))
            is begin.names}

    def first(self) -> int:
        """The number of the object with which reading may begin: 0; or, if
        what is before it was removed, that of a pack with a base, or of the
        end."""
        there = self.first_there()
        if not there:
            return 0
        # (A prune that goes on has left some objects before the base.)
        for base in self.bases():
            if base >= there:
                return base
        return there if self.head(there).kind == heads.END else 0

    def first_there(self) -> int:
        """The number of the first object of the log that is there."""
        first, _ = next(self.entries(tell=lambda error: None), (0, None))
        return first

    def start(self, target: bytes | None = None) -> int:
        """The number of the object with which reading up to this tid begins:
        of a pack with a base, if there is one before."""
        for sequence in reversed(self.bases()):
            if target is None or self.head(sequence).tid < target:
                return sequence
        return self.first()

    def pack(self, generation: int, numbers: range) -> tuple[int, Head]:
        """The pack that has begun this generation, and its number: one of
        these, of which the last is of that generation, too."""
        found = numbers[bisect.bisect_left(
            numbers, generation, key=lambda each: self.head(each).generation)]
        return found, self.head(found)

    def packs(self) -> list[tuple[int, Head]]:
        """All that have begun a generation of which something is there."""
        first, last = self.first(), self.last()
        if last is None:
            return []
        before = last[0] + (self.head(last[0]).kind != heads.END)
        generations = (self.head(each).generation
                       for each in (first, before - 1))
        return [self.pack(each, range(first, before)) for each in range(
            max(next(generations), 1), next(generations) + 1)]

    def head(self, sequence: int) -> Head:
        """Of an object of the log."""
        key = self.names_of(sequence).segment(sequence)
        try:
            return heads.unpack(self.store.front(key, heads.SIZE), IN_LOG)
        except (Damaged, Missing) as error:
            raise Damaged(f'{key}: {error}') from None

    def base(self, sequence: int, pack: Head
             ) -> tuple[Head, Iterator[bytes]]:
        """The base of a pack."""
        key = self.names_of(sequence).base(sequence)
        head, pieces = content.get(self.store, key, (heads.BASE,))
        refuse_another_base(head, pack, key)
        return head, pieces

    # Blobs

    def blob_list(self, sequence: int, segment: Head) -> list[ListedBlob]:
        """The blobs that a segment names."""
        key = self.names_of(sequence).blob_list(sequence, segment.blobs)
        head, pieces = content.get(self.store, key, (heads.LIST,))
        try:
            if head.plain != segment.blobs:
                raise Damaged('it is another list than its segment says')
            return bodies.read_blob_list(b''.join(pieces))
        except Damaged as error:
            raise Damaged(f'{key}: {error}') from None

    def blob(self, blob: ListedBlob) -> Iterator[bytes]:
        """The content of a blob, in pieces."""
        key = self.database.blob(blob.oid, blob.tid, blob.sum)
        head, pieces = content.get(self.store, key, (heads.BLOB,))
        if (head.plain, head.length) != (blob.sum, blob.size):
            raise Damaged(f'{key}: it is another blob than its list says')
        return pieces

    def names_of(self, sequence: int) -> Timeline:
        """The names of the timeline that has the object of this number."""
        return next(begin.names for begin in reversed(self.begins)
                    if begin.sequence <= sequence)


def refuse_another_base(base: Head, pack: Head, key: str) -> None:
    if (base.before, base.plain) != (pack.sum, pack.plain):
        raise Damaged(f'{key}: it is another base than its pack says')


def _raised(error: Damaged) -> None:
    raise error


def _gap(names: Timeline, first: int, behind: int) -> Gap:
    last = behind - 1
    return Gap(f'{names.segment(first)} is missing' if first == last else
               f'{names.segment(first)} is missing, and all up to'
               f' {names.segment(last)}')


class Chain:
    """Follows the heads of a log, from the first one on, or from a pack that
    has a base; Damaged where one does not continue it."""

    def __init__(self, first: int = 0, tip: Tip = START) -> None:
        """`tip`: that before the first object, which is believed."""
        self._first = first
        self.tip = tip
        self._has_ended = False

    def add(self, head: Head, sequence: int, key: str) -> None:
        if sequence == self._first and head.kind == heads.PACK:
            self.tip = tip_behind(head, sequence)
            return
        if self._has_ended:
            raise Damaged(f'{key}: it is behind the end of its timeline')
        if sequence != self.tip.sequence:
            raise Gap(f'{key} is not the next object')
        self.tip = self.tip.behind(head, key)
        self._has_ended = head.kind == heads.END

    def go_on_behind(self, head: Head, sequence: int) -> None:
        """After damage: take this one as it is."""
        self.tip = tip_behind(head, sequence)
