"""Ships the durable prefix of a Data.fs, one segment after the other.

There is no queue and no state but the store: a start goes on behind the last
object of the log.  Who may write is settled by bytes: where an object is there
already, it must be what this uploader would have put, as far as its own file
says; else it stops for good (`Stopped`).

`ship` and `beat` are called by one thread; blobs are read and put in others.
docs/internals/backup.rst says in which order things are put, and why.
"""

import contextlib
import logging
import time
from collections.abc import Callable
from collections.abc import Iterator

from ..format import scan
from ..format.window import Window
from . import base
from . import content
from . import head as heads
from . import points
from . import timeline
from .ahead import read_ahead
from .blobs import Blobs
from .blobs import note_missing
from .head import Damaged
from .head import Head
from .layout import Database
from .prefix import DurablePrefix
from .prefix import File
from .prefix import HandedFile
from .prefix import Unreachable
from .segment import Packed
from .segment import Segment
from .segment import next_segment
from .segment import packed
from .store import Exists
from .store import Store
from .store import StoreError
from .store import is_there
from .timeline import History
from .verification import verify

logger = logging.getLogger(__name__)


class Stopped(Exception):
    """This uploader must not go on; the message says what to do."""


class Uploader:

    def __init__(self, store: Store, database: Database,
                 prefix: DurablePrefix,
                 new_timeline: str | None = None) -> None:
        """`new_timeline`: why to begin one in the place of going on."""
        self._store = store
        self._database = database
        self._prefix = prefix
        self._new_timeline = new_timeline
        #: The file that has what was shipped; None: that has to be compared.
        self._file: HandedFile | None = None
        #: Puts the base of this generation, step by step.
        self._base: Iterator[object] = iter(())
        self._base_of = 0
        self.tip = timeline.START
        #: When the last drill has ended that found all to be sound.
        self.drilled: float | None = None
        #: Called behind each segment: a round may take hours.
        self.meanwhile: Callable[[], object] = lambda: None

    @property
    def path(self) -> str:
        return self._prefix.path

    @property
    def behind(self) -> int | None:
        """Durable bytes that are not in the store; None: it is not known."""
        return (None if self._file is None
                else max(0, self._file.end - self.tip.position))

    # The begin

    def __str__(self) -> str:
        return f'{self._prefix.path} to {self._store.name}'

    def start(self) -> None:
        """Go on with the newest timeline, or begin one."""
        self._prefix.refresh()
        number = timeline.newest(self._store, self._database)
        if not number or self._new_timeline is not None:
            fork = self._fork(number) if number else (0, 0)
            number += 1
            # Exists: another uploader begins it, too.  Bytes will settle it.
            with contextlib.suppress(Exists):
                timeline.begin(self._store, self._database, number,
                               self._new_timeline or 'the first', *fork)
            self._new_timeline = None
        self._history = History(self._store, self._database, number)
        self._names = self._history.names
        self._probe()
        self._resume()
        self._go_on(self._agree)

    def _probe(self) -> None:
        """Refuse a store that overwrites: nothing would keep two writers
        apart."""
        data = content.got(self._store, self._names.begin)
        try:
            self._store.create(self._names.begin, data)
        except Exists:
            return
        raise Stopped(f'{self._store.name} has no create-only puts, so nothing'
                      ' would keep a second writer out')

    def _fork(self, number: int) -> tuple[int, int]:
        """How many objects of a timeline the file has, from its begin on, and
        whose that is.  What is not all there, and what is behind that, is
        shipped anew."""
        history = History(self._store, self._database, number)
        fork, parent, is_equal = 0, 0, True
        with contextlib.suppress(Damaged):
            wrong = verify(history, first=history.start()).first_wrong
            for (sequence, _), head in read_ahead(
                    history.entries(history.first(), lambda error: None),
                    lambda item: heads.SIZE,
                    lambda item: history.head(item[0])):
                if wrong is not None and sequence >= wrong:
                    break
                # What is equal behind a difference is not the file's own
                # history; but a pack is all of it.
                is_equal = ((is_equal or head.kind == heads.PACK)
                            and _has(self._prefix.file, head))
                if is_equal:
                    fork = sequence + 1
                    parent = history.names_of(sequence).number
        return fork, parent

    # The fence

    def _resume(self) -> None:
        """Go on behind the last object of the log, or stop."""
        self._file = None  # it has to be compared again
        try:
            tip, last = self._history.reached()
        except Damaged as error:
            raise Stopped(f'{error}. To ship anew what is behind that: run'
                          ' --new-timeline') from None
        if last is not None and last.kind == heads.END:
            raise Stopped(f'{self._names.log} has ended: another site has'
                          ' taken over')
        self.tip, self._last = tip, last

    def _go_on(self, act: Callable[[], object]) -> None:
        """Do it; where the next object is there already, behind that."""
        while True:
            try:
                act()
                return
            except Exists as there:
                before, file = self.tip, self._file
                self._resume()
                if self.tip == before:
                    raise StoreError(f'{there}, and the store does not list it'
                                     ' yet') from None
                if file is not None and self._has_last(file):
                    self._file = file  # a pack may have replaced it

    def _agree(self) -> None:
        """Go on with the file that is handed over, behind all of those that
        packs have replaced by it; Stopped, if it is another one."""
        self._prefix.refresh()
        file, before = self._prefix.file, self._file
        if before is file:
            return
        # (After an error, a later generation may have begun already.)
        if before is not None and not before.is_same(file) and (
                self._has_last(before)):
            with contextlib.suppress(Unreachable):  # its blobs may be gone
                self._ship_from(before)
        if self._last is not None:
            self._go_over_packs(file, self._last.instance)
        self._file = file

    def _go_over_packs(self, file: HandedFile, instance: bytes) -> None:
        """`instance`: of the storage that had open what was shipped last.  It
        stands in what is put here, too: so if the store fails in the middle,
        the next try knows the same."""
        is_surely = instance == file.instance
        kept = file.kept(instance)
        if kept is not None and self._has_last(kept) and (
                not self._has_last(file) or self._is_made_of(file, kept)):
            self._ship_from(kept)
        if self._has_last(file):
            return
        if kept is not None and self._is_between(kept):
            self._begin_generation(kept, False)
            self._ship_from(kept)
        self._begin_generation(file, is_surely)

    def _has_last(self, file: File) -> bool:
        return self._last is None or _has(file, self._last)

    def _is_made_of(self, file: File, kept: File) -> bool:
        """Has it the last transaction of the old file?  One that was restored
        to an earlier point has not."""
        last = scan.transaction_before(Window(kept.read, kept.end), kept.end)
        return last is not None and packed(
            Window(file.read, file.end), self.tip._replace(tid=last.tid), False
            ) is not None

    def _is_between(self, kept: File) -> bool:
        """Of two packs, has the first one made it, with all that was shipped,
        and is more in it?"""
        found = self._packed(kept, False)
        return (found is not None and found.time <= self.tip.tid
                and found.end < kept.end)

    def _packed(self, file: File, is_surely: bool) -> Packed | None:
        return packed(Window(file.read, file.end), self.tip, is_surely)

    # Segments

    def ship(self) -> bool:
        """Ship what is durable now; was there anything?"""
        before = self.tip
        self._go_on(self._ship)
        return self.tip != before

    def _ship(self) -> None:
        self._agree()
        self._prefix.make_durable()
        self._ship_from(self._prefix.file)

    def _ship_from(self, file: File) -> None:
        """All that the file has."""
        end = file.end
        while segment := next_segment(Window(file.read, end), self.tip):
            self._ship_segment(file, segment)
            self.meanwhile()

    def _ship_segment(self, file: File, segment: Segment) -> None:
        sequence = self.tip.sequence
        key = self._names.segment(sequence)

        def read(length: int, at: int) -> bytes:
            return file.read(length, segment.start + at)

        head = Head(
            heads.SEGMENT, heads.WHOLE, segment.start, segment.end,
            content.sum_of(read, segment.end - segment.start),
            self.tip.generation, segment.tid, segment.oid,
            before=self.tip.sum, instance=file.instance)
        if segment.blobs or segment.perhaps:
            blobs = Blobs(self._store, self._names, file)
            listed = [*blobs.summed(segment.blobs, segment.perhaps)]
            note_missing(self._prefix.path, file, listed)
            if listed:
                head = head._replace(blobs=blobs.put_list(sequence, listed))
                for _ in blobs.put(listed):
                    pass
        self._is_put(content.put(self._store, key, head, read), key)

    def _is_put(self, head: Head, key: str) -> None:
        self._last, self.tip = head, self.tip.behind(head, key)

    # Generations

    def _begin_generation(self, file: File, is_surely: bool) -> None:
        """The file was packed: say what that has made of all up to the tip."""
        found = self._packed(file, is_surely)
        if found is None:
            raise Stopped(
                f'{self._prefix.path} is not the file that was shipped up to'
                f' its position {self.tip.position:,}: it was cut back or'
                ' restored, or one of the two is a copy. If this is the file'
                ' to go on with: run --new-timeline')
        tip = self.tip
        key = self._names.segment(tip.sequence)
        head = Head(
            heads.PACK, heads.ELSEWHERE, 0, found.end,
            content.sum_of(file.read, found.end),
            tip.generation + 1, tip.tid, tip.oid, before=tip.sum,
            time=found.time, instance=file.instance)
        self._store.create(key, head.pack())
        self._is_put(head, key)
        if found.time > tip.tid:
            logger.warning(
                '%s: it was packed up to %s, and before that it was shipped up'
                ' to %s: what was between is lost', self._prefix.path,
                points.named(found.time), points.named(tip.tid))

    def put_more_of_base(self, until: float = 0.0) -> bool:
        """Steps of the base of this generation, up to that time of the
        monotonic clock, but at least one; is there more?"""
        try:
            if self._base_of != self.tip.generation:
                self._base = base.put(
                    self._history, self._prefix.path, self._prefix.file,
                    self.tip)
                self._base_of = self.tip.generation
            for _ in self._base:
                if time.monotonic() >= until:
                    return True
            return False
        except Exists:  # another uploader has put it
            return True
        except BaseException:
            self._base_of = 0  # it begins anew
            raise

    # The heartbeat

    def beat(self) -> None:
        """Say that this uploader is there, and the server, too; Stopped, if
        another uploader is ahead."""
        self._prefix.check()
        self._go_on(self._agree)
        if is_there(self._store, self._names.segment(self.tip.sequence)):
            self._resume()
            self._go_on(self._agree)
        self.drilled = timeline.read_drill(self._store, self._names)
        self.note()

    def note(self) -> None:
        """The heartbeat alone."""
        self._refuse_a_later_one()
        timeline.put_note(
            self._store, self._names.heartbeat, heads.HEARTBEAT,
            sequence=self.tip.sequence, position=self.tip.position,
            time=time.time())

    def _refuse_a_later_one(self) -> None:
        found = timeline.read_heartbeat(self._store, self._names)
        if found and found['sequence'] > self.tip.sequence:
            raise Stopped(
                f'{self._names.heartbeat} tells of {found["sequence"]:,}'
                f' objects in the log, and {self.tip.sequence:,} are there:'
                ' the store has lost some')


def _has(file: File, head: Head) -> bool:
    return content.is_in(head, file.read, file.end)
