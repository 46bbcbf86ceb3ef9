"""Is all of a timeline in the store, and is it what was shipped?

All heads are read, and the chain is followed from its begin, or, where that
was removed, from the oldest base; the sizes of objects and parts are compared
with what names them.  A *deep* verification reads every byte, and compares it
with its sum.

What is wrong is noted, and the rest is verified all the same.
"""

from collections.abc import Callable
from collections.abc import Iterator
from dataclasses import dataclass
from dataclasses import field

from . import bodies
from . import content
from . import head as heads
from . import timeline
from .ahead import read_ahead
from .bodies import ListedBlob
from .head import Damaged
from .head import Head
from .layout import part_of
from .store import Entry
from .timeline import Chain
from .timeline import History


@dataclass
class Found:
    """What a verification has found."""

    segments: int = 0
    size: int = 0
    blobs: int = 0
    size_of_blobs: int = 0
    #: Blobs that were missing already when they should be shipped.
    missing: int = 0
    packs: int = 0
    #: Those with a base.
    bases: int = 0
    #: Of the first segment or base, and of the last one.
    first: bytes | None = None
    last: bytes | None = None
    has_ended: bool = False
    #: One line each.
    problems: list[str] = field(default_factory=list)
    #: The number of the first object of the log that is not all there; None:
    #: no such problem was found.
    first_wrong: int | None = None


def verify(history: History, is_deep: bool = False,
           tell: Callable[[int], object] = lambda position: None,
           first: int | None = None) -> Found:
    """`tell` is called with the position that is reached; `first` is the
    number of the object to begin with."""
    if first is None:
        first = history.first()
        if history.first_there() != first:  # something is lost, then
            first = 0
    made = _Verification(history, is_deep, first)
    for position in made.run():
        tell(position)
    return made.found


class _Verification:

    def __init__(self, history: History, is_deep: bool, first: int) -> None:
        self._history = history
        self._first = first
        self._is_deep = is_deep
        self.found = Found()
        store, database = history.store, history.database
        #: Key -> size.
        self._sizes = {
            entry.key: entry.size for directory in (
                () if is_deep else (database.blobs, database.parts))
            for entry in store.list(directory)}

    def run(self) -> Iterator[int]:
        """Verify all; yield positions that are reached."""
        history, first = self._history, self._first
        bases = history.bases()
        chain = Chain(first)
        for (sequence, entry), head in read_ahead(
                history.entries(first, self._note), self._size, self._head):
            if isinstance(head, Damaged):
                self._note(head, sequence)
                continue
            try:
                chain.add(head, sequence, entry.key)
            except timeline.Gap:  # it was noted
                self._is_wrong(chain.tip.sequence)
                chain.go_on_behind(head, sequence)
            except Damaged as error:
                self._note(error, sequence)
                chain.go_on_behind(head, sequence)
            if head.kind == heads.END:
                self.found.has_ended = True
                continue
            if head.kind == heads.PACK:
                self.found.packs += 1
                if sequence in bases:
                    self._verify_base(sequence, head, bases[sequence])
                continue
            self._add(head)
            if head.has_blobs:
                self._verify_blobs(sequence, head)
            yield head.end

    def _note(self, error: Damaged, sequence: int | None = None) -> None:
        self.found.problems.append(str(error))
        if sequence is not None:
            self._is_wrong(sequence)

    def _is_wrong(self, sequence: int) -> None:
        if self.found.first_wrong is None:
            self.found.first_wrong = sequence

    def _size(self, item: tuple[int, Entry]) -> int:
        return item[1].size if self._is_deep else heads.SIZE

    def _add(self, head: Head) -> None:
        found = self.found
        found.segments += 1
        found.size += head.length
        found.first = found.first or head.tid
        found.last = head.tid

    def _verify_base(self, sequence: int, pack: Head, entry: Entry) -> None:
        try:
            base = self._verified(entry.key, entry.size, (heads.BASE,))
            timeline.refuse_another_base(base, pack, entry.key)
        except Damaged as error:
            self._note(error, sequence)
            return
        self.found.bases += 1
        self.found.first = self.found.first or pack.tid
        self.found.last = pack.tid
        if base.has_blobs:
            self._verify_blobs(sequence, base)

    # In threads

    def _head(self, item: tuple[int, Entry]) -> Head | Damaged:
        """Of an object of the log, or what is wrong with it."""
        try:
            return self._verified(item[1].key, item[1].size, timeline.IN_LOG)
        except Damaged as error:
            return error

    def _blob(self, blob: ListedBlob) -> Damaged | None:
        """What is wrong with a blob."""
        key = self._history.database.blob(blob.oid, blob.tid, blob.sum)
        try:
            if self._is_deep:
                for _ in self._history.blob(blob):
                    pass
            else:
                self._verified(key, self._size_of(key), (heads.BLOB,))
        except Damaged as error:
            return error
        return None

    def _verified(self, key: str, size: int, kinds: tuple[bytes, ...]) -> Head:
        """The head of an object, when all behind it is verified."""
        store = self._history.store
        if self._is_deep:
            head, pieces = content.get(store, key, kinds)
            for _ in pieces:
                pass
            return head
        try:
            head = heads.unpack(
                store.front(key, heads.SIZE) if size else b'', kinds)
            if head.form == heads.MANIFEST:
                self._verify_parts(key, head)
            elif size != heads.SIZE + head.body:
                raise Damaged(f'it has {size:,} bytes, and its head says'
                              f' {heads.SIZE + head.body:,}')
        except Damaged as error:
            raise Damaged(f'{key}: {error}') from None
        return head

    def _verify_parts(self, key: str, head: Head) -> None:
        for part in bodies.read_manifest(
                content.got(self._history.store, key)[heads.SIZE:],
                head.length, content.PART):
            name = part_of(key, part.sum)
            if (found := self._size_of(name)) != part.length:
                raise Damaged(f'its part {name} has {found:,} bytes in the'
                              f' place of {part.length:,}')

    def _size_of(self, key: str) -> int:
        if key not in self._sizes:  # it may have come meanwhile
            self._sizes |= {entry.key: entry.size for entry in (
                self._history.store.list(key.rpartition('/')[0]))}
        if key not in self._sizes:
            raise Damaged(f'{key} is missing')
        return self._sizes[key]

    # Blobs

    def _verify_blobs(self, sequence: int, head: Head) -> None:
        try:
            blobs = self._history.blob_list(sequence, head)
        except Damaged as error:
            self._note(error, sequence)
            return
        there = [blob for blob in blobs if blob.size is not None]
        self.found.missing += len(blobs) - len(there)
        for blob, wrong in read_ahead(
                there, lambda blob: min(blob.size or 0, content.PART),
                self._blob):
            if wrong is not None:
                self._note(wrong, sequence)
            self.found.blobs += 1
            self.found.size_of_blobs += blob.size or 0
