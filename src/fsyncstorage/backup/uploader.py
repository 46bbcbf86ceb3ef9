"""Ships the durable prefix of a Data.fs, one segment after the other.

There is no queue and no state but the store: a start goes on behind the last
object of the log.  Who may write is settled by bytes: where an object is there
already, it must be what this uploader would have put, as far as its own file
says; else it stops for good (`Stopped`).

`ship` and `beat` are called by one thread; blobs are read and put in others.
docs/internals/backup.rst says in which order things are put, and why.
"""

import contextlib
import hashlib
import logging
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from .. import datafile
from ..format.window import Window
from . import bodies
from . import content
from . import head as heads
from . import timeline
from .ahead import read_ahead
from .bodies import ListedBlob
from .head import BLOB
from .head import END
from .head import HEARTBEAT
from .head import LIST
from .head import SEGMENT
from .head import Damaged
from .head import Head
from .layout import Database
from .prefix import DurablePrefix
from .prefix import Unreachable
from .prefix import read_fully
from .segment import Segment
from .segment import next_segment
from .store import Exists
from .store import Missing
from .store import Store
from .timeline import History

logger = logging.getLogger(__name__)

#: Blobs on their way at a time.
AT_ONCE = 4


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
        #: How many blobs were missing when they should be shipped.
        self.missing = 0

    # The begin

    def __str__(self) -> str:
        return f'{self._prefix.path} to {self._store.name}'

    def start(self) -> None:
        """Go on with the newest timeline, or begin one."""
        self._prefix.refresh()
        number = timeline.newest(self._store, self._database)
        if not number or self._new_timeline is not None:
            fork = self._fork(number) if number else None
            number += 1
            # Exists: another uploader begins it, too.  Bytes will settle it.
            with contextlib.suppress(Exists):
                timeline.begin(self._store, self._database, number,
                               self._new_timeline or 'the first', fork)
            self._new_timeline = None
        self._history = History(self._store, self._database, number)
        self._names = self._history.names
        self._probe()
        self._last = self._read_last()
        self.tip = self._history.begins[-1].tip
        if self._last and self._last[0] >= self.tip.sequence:
            sequence, head = self._last
            self.tip = timeline.tip_behind(head, sequence)
        self._agree()

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

    def _read_last(self) -> tuple[int, Head] | None:
        """The last segment, with its number."""
        found = self._history.last()
        if found is None:
            return None
        sequence, entry = found
        head = self._head(entry.key)
        if head.kind == END:
            raise self._ended(entry.key)
        return sequence, head

    def _fork(self, number: int) -> timeline.Tip | None:
        """Behind the last segment up to which the file has the same bytes.
        None: it has not even those of the first one."""
        history = History(self._store, self._database, number)
        chain, fork = timeline.Chain(history), None
        for (sequence, entry), head in read_ahead(
                history.entries(), lambda item: heads.SIZE,
                lambda item: self._head(item[1].key)):
            chain.add(head, sequence, entry.key)
            if head.kind == END or not self._has(head):
                break
            fork = chain.tip
        return fork

    # The fence

    def _has(self, head: Head) -> bool:
        """Are the bytes of this segment in the file, and durable?"""
        file = self._prefix.file
        return head.end <= file.end and head.plain == content.sum_of(
            lambda at, length: file.read(length, head.start + at), head.length)

    def _agree(self) -> None:
        """Stopped, unless the file has what was shipped last."""
        self._prefix.refresh()
        if self._last and not self._has(self._last[1]):
            raise Stopped(
                f'{self._prefix.path} is not the file that was shipped up to'
                f' its position {self._last[1].end:,}: it was packed, cut back'
                ' or restored, or one of the two is a copy. If this is the'
                ' file to go on with: run --new-timeline')

    def _settle(self) -> None:
        """Where the next object is there already: go on behind it, or stop."""
        sequence = self.tip.sequence
        key = self._names.segment(sequence)
        head = self._head(key)
        if head.kind == END:
            raise self._ended(key)
        try:
            tip = self.tip.behind(head, key)
        except Damaged as error:
            raise Stopped(f'another writer has put {error}') from None
        self._last, self.tip = (sequence, head), tip
        self._agree()

    def _head(self, key: str) -> Head:
        front = self._store.front(key, heads.SIZE)
        try:
            return heads.unpack(front, timeline.IN_LOG)
        except Damaged as error:
            raise Stopped(f'{key}: {error}') from None

    @staticmethod
    def _ended(key: str) -> Stopped:
        return Stopped(f'{key} ends the timeline: another site has taken over')

    # Segments

    def ship(self) -> bool:
        """Ship what is durable now; was there anything?"""
        if self._prefix.refresh():
            self._agree()
        end, before = self._prefix.file.end, self.tip
        while segment := next_segment(
                Window(self._prefix.file.read, end), self.tip):
            self._ship(segment)
        return self.tip != before

    def _ship(self, segment: Segment) -> None:
        file, sequence = self._prefix.file, self.tip.sequence
        key = self._names.segment(sequence)
        blobs = self._sums(segment)

        def read(at: int, length: int) -> bytes:
            return file.read(length, segment.start + at)

        head = Head(
            SEGMENT, heads.WHOLE, segment.start, segment.end,
            content.sum_of(read, segment.end - segment.start), tid=segment.tid,
            oid=segment.oid, before=self.tip.sum)
        if blobs:
            head = head._replace(blobs=self._put_blobs(blobs))
        try:
            head = content.put(
                self._store, self._database, key, head, read)
        except Exists:
            self._settle()
        else:
            self._last = sequence, head
            self.tip = self.tip.behind(head, key)

    # Blobs

    def _sums(self, segment: Segment) -> list[ListedBlob]:
        """Those that the segment names, with their sums."""
        with ThreadPoolExecutor(AT_ONCE) as pool:
            found = [*pool.map(self._summed, segment.blobs)]
            found += [blob for blob in pool.map(self._summed, segment.perhaps)
                      if blob.size is not None]
        missing = [blob for blob in found if blob.size is None]
        if missing and not self._prefix.file.has_its_name:
            raise Unreachable('a pack has replaced the file, and may have'
                              ' removed these blobs')
        if missing:
            self.missing += len(missing)
            logger.warning(
                '%s: %d blobs are missing, and so they are in the backup; the'
                ' first is of oid %s and tid %s', self._prefix.path,
                len(missing), missing[0].oid.hex(), missing[0].tid.hex())
        return found

    def _summed(self, name: tuple[bytes, bytes]) -> ListedBlob:
        try:
            with self._read_blob(*name) as (size, read):
                return ListedBlob(*name, size, content.sum_of(read, size))
        except FileNotFoundError:
            return ListedBlob(*name, None)

    @contextlib.contextmanager
    def _read_blob(self, oid: bytes, tid: bytes) -> Iterator[
            tuple[int, content.Read]]:
        """The size of a blob, and what reads it."""
        path = self._prefix.file.blob(oid, tid)
        if path is None:
            raise FileNotFoundError
        with datafile.open_existing(path, read_only=True) as file:
            number = file.fileno()
            yield file.size(), lambda at, length: read_fully(
                number, length, at)

    def _put_blobs(self, blobs: list[ListedBlob]) -> bytes:
        """First the list, which claims them; return its sum."""
        body = bodies.blob_list(blobs)
        sum = hashlib.sha256(body).digest()
        with contextlib.suppress(Exists):
            content.put(
                self._store, self._database,
                self._names.blob_list(self.tip.sequence, sum),
                Head(LIST, heads.WHOLE, 0, len(body), sum),
                content.of_bytes(body))
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for _ in pool.map(self._put_blob, blobs):
                pass
        return sum

    def _put_blob(self, blob: ListedBlob) -> None:
        if blob.size is None:
            return
        with self._read_blob(blob.oid, blob.tid) as (_, read), \
                contextlib.suppress(Exists):
            content.put(
                self._store, self._database,
                self._database.blob(blob.oid, blob.tid, blob.sum),
                Head(BLOB, heads.WHOLE, 0, blob.size, blob.sum, tid=blob.tid,
                     oid=blob.oid), read)

    # The heartbeat

    def beat(self) -> None:
        """Say that this uploader is there, and the server, too; Stopped, if
        another uploader is ahead."""
        self._prefix.check()
        with contextlib.suppress(Missing):
            while True:
                self._settle()
        self._refuse_a_later_one()
        body = bodies.document({
            'sequence': self.tip.sequence, 'position': self.tip.position,
            'tid': self.tip.tid.hex(), 'time': time.time()})
        self._store.overwrite(
            self._names.heartbeat,
            timeline.head_of(HEARTBEAT, body).pack() + body)

    def _refuse_a_later_one(self) -> None:
        found = timeline.read_heartbeat(self._store, self._names)
        if found and found['sequence'] > self.tip.sequence:
            raise Stopped(
                f'{self._names.heartbeat} tells of {found["sequence"]:,}'
                f' objects in the log, and {self.tip.sequence:,} are there:'
                ' the store has lost some')
