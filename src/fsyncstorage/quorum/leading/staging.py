"""Puts the blobs of a vote into the log, before a batch names them (I11); and
removes those that no record names.

A blob is staged in chunks, in the thread of its vote, which holds none of the
storage's locks, nor its turn.  While the log does not answer, or has no room
(loglimit), the vote waits; it fails when the storage is closed, when nothing
more of this writer gets into the log, or when the engine is full.

What was staged for a transaction (`Staged`) is handed to its commit, from
which the record is made.  A list of the objects is written as well (newblobs).

A thread removes what is not needed, and does related work:

- What was staged for aborted transactions (`drop`) is removed at once.  After
  some megabytes of it, the engine is told to free what was removed.
- What the log had before this writer led is read, in slices, in half of the
  thread's time (held).  When that is known, and then once an hour, all
  staged blobs that no record names, and no vote has under way, are removed.
- If the engine is full, it is told to make room (`may_be_full`).  A primary
  cannot keep its lease then, so nobody else is there to do it.

To remove what is needed would lose it for good.  So the needed ids are
collected after the existing ones: an id is known as under way before it has a
chunk, and as named before it stops being under way.  Blobs of later epochs
stay: they belong to a writer of which this one need not know yet.

Any number of votes may stage in parallel.  What they share is under `_lock`, a
leaf.
"""

import collections
import contextlib
import itertools
import logging
import os
import threading
import time
import typing
from collections.abc import Callable
from collections.abc import Generator
from collections.abc import Iterable

from ZODB.POSException import StorageError

from ... import datafile
from ...commit.blobs import Stored
from ...commit.replica import NotReplicated
from ...commit.wakeable import WakeableThread
from ...errors import LeaderChanged
from ..files import newblobs
from ..history.fold import State
from ..history.record import Blob
from ..history.staged import chunks_of
from ..history.staged import epoch_of
from ..history.staged import new_id
from ..history.staged import new_sum
from ..log.interface import Full
from ..log.interface import Log
from ..log.interface import Missing
from ..log.interface import Unanswered
from ..log.outage import Outage
from ..log.outage import Patience
from .loglimit import LogLimit
from .writer import Writer

logger = logging.getLogger(__name__)

#: Seconds from one try to remove to the next, and from one sweep to the next.
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
SWEPT_EVERY = 3600.0
#: How many blobs one call removes.
AT_ONCE = 1000


class _Blob(typing.NamedTuple):

    id: bytes
    oid: bytes
    #: None stands for the tid of the transaction.
    serial: bytes | None
    size: int
    checksum: bytes


class Staged:
    """What was staged for one transaction."""

    def __init__(self, staging: 'Staging') -> None:
        self._staging = staging
        #: By the path of the file.
        self.blobs: dict[str, _Blob] = {}
        #: The path of the list of its objects.
        self.list: str | None = None

    def named(self, tid: bytes) -> list[Blob]:
        """These blobs, as a record names them."""
        return [
            Blob(each.id, each.oid, each.serial or tid, each.size,
                 each.checksum)
            for each in self.blobs.values()]

    def drop(self) -> None:
        """The transaction was aborted, and its files are removed."""
        self._staging.drop([each.id for each in self.blobs.values()])
        if self.list is not None:
            datafile.remove_if_there(self.list)


class Staging:

    def __init__(self, log: Log, writer: Writer, limit: LogLimit,
                 refuse: Callable[[], object]) -> None:
        """`refuse` raises NotReplicated if nothing more is to be offered."""
        self._log = log
        self._refuse = refuse
        self._writer = writer
        self._limit = limit
        self._path = ''
        self._closing = threading.Event()
        # (Always `with self._lock`: a Condition's `with` is written in Python,
        # and an interrupt may come after it has locked, before the block.)
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        #: An Outage for each vote that is under way.
        self._votes: list[Outage] = []
        #: Ids that no record names yet, with the size of each.
        self._open: dict[bytes, int] = {}
        self._lists = newblobs.Lists()
        #: Ids to be removed, with the bytes that they have taken of the limit.
        self._dropped: collections.deque[tuple[bytes, int]] = (
            collections.deque())
        #: Bytes that were removed, but not yet freed by the engine.
        self._garbage = 0
        #: The epoch of the writer, and when all staged blobs were checked.
        self._epoch = 0
        self._swept: float | None = None
        #: The engine may be full; and when it may be told to make room.
        self._is_full = False
        self._room_at = 0.0
        #: Whether the trouble of `earlier` was logged.
        self._is_said = False
        self._pause = FIRST_PAUSE
        self._again: float | None = None
        self._thread = WakeableThread(
            'removal of staged blobs', self._work, self._seconds)

    def begin(self, path: str, state: State) -> None:
        """The writer leads, and `state` is the state after the record of its
        epoch."""
        self._path, self._epoch = path, state.epoch
        self._thread.start()
        self._thread.wake()

    # A vote

    def stage(self, blobs: Stored) -> None:
        """Stage what is not staged yet; `blobs.in_log` becomes a `Staged`.

        A vote waits for room for what it stages first.  What is added later
        takes its room without waiting: the vote may have its turn, and others
        that have room may wait for that turn.
        """
        files = blobs.files()
        staged = blobs.in_log
        if is_first := staged is None:
            staged = Staged(self)
        assert isinstance(staged, Staged)
        for path in [*staged.blobs.keys() - files.keys()]:
            self.drop([staged.blobs.pop(path).id])  # another is in its place
        new = [path for path in files if path not in staged.blobs]
        if not new:
            return
        sizes = {path: os.path.getsize(path) for path in new}
        if is_first:
            self._refuse_to_go_on()
            self._limit.take(
                sum(sizes.values()), self._refuse_to_go_on, self._closing.wait)
        else:
            self._limit.take_anyway(sum(sizes.values()))
        try:
            with self._vote() as patience:
                for path in new:
                    staged.blobs[path] = self._staged(
                        path, *files[path], sizes.pop(path), patience)
        finally:
            blobs.in_log = staged
            self._limit.gives_back(sum(sizes.values()))  # of files not begun
        before, staged.list = staged.list, newblobs.write(
            self._path, {oid for oid, _ in files.values()})
        if before is not None:
            datafile.remove_if_there(before)

    @contextlib.contextmanager
    def _vote(self) -> Generator[Patience, None, None]:
        outage = Outage('a vote with blobs waits', self._path)
        with self._lock:
            self._votes.append(outage)
        try:
            yield Patience(outage, self._closing)
        finally:
            with self._lock:
                self._votes.remove(outage)
                self._changed.notify_all()

    def _staged(self, path: str, oid: bytes, serial: bytes | None,
                expected: int, patience: Patience) -> _Blob:
        id, size, checksum = new_id(self._writer.state.epoch), 0, new_sum()
        try:
            with self._lock:  # before its first chunk is put
                self._open[id] = expected
            with open(path, 'rb') as file:
                for number, chunk in enumerate(chunks_of(file)):
                    patience.answer(self._put, id, number, chunk)
                    size += len(chunk)
                    checksum.update(chunk)
        except BaseException as error:
            self.drop([id])
            if isinstance(error, Unanswered):
                self._refuse_to_go_on()
            raise
        return _Blob(id, oid, serial, size, checksum.digest())

    def _put(self, id: bytes, number: int, chunk: bytes) -> None:
        self._refuse_to_go_on()
        try:
            self._log.stage(id, number, chunk)
        except Full as error:
            self.may_be_full()
            raise StorageError(
                f'{self._path}: its log has no room for the blobs of this'
                f' transaction ({error}). Nothing of it was stored'
                ) from error

    def _refuse_to_go_on(self) -> None:
        why: object = self._writer.fenced
        try:
            self._refuse()
        except NotReplicated as error:
            why = error
        if self._closing.is_set():
            why = 'it is being closed'
        if why is not None:
            raise LeaderChanged(
                f'{self._path}: the blobs of this transaction do not come into'
                f' its log any more ({why}). Nothing of it was stored')

    def drop(self, ids: Iterable[bytes]) -> None:
        """No record will name these ids."""
        with self._lock:
            self._dropped.extend([(id, self._open.pop(id, 0)) for id in ids])
        self._thread.wake()

    # A batch

    def is_in_the_log(self, transactions: Iterable[Staged],
                      sequence: int) -> None:
        """The batch of these transactions is in the log, and its last record
        has this number."""
        for staged in transactions:
            if staged.list is not None:
                self._lists.until(sequence, staged.list)
            with self._lock:
                sizes = [self._open.pop(each.id, 0)  # 0: already reported
                         for each in staged.blobs.values()]
            self._limit.gives_back(sum(sizes))

    def kept(self, sequence: int) -> None:
        """A state after this record is kept."""
        with self._lock:
            self._lists.kept(sequence)

    # The thread

    def may_be_full(self) -> None:
        """The engine may be full: tell it to make room."""
        self._is_full = True
        self._thread.wake()

    def _seconds(self) -> float | None:
        due = [each for each in (
            self._again,
            self._room_at if self._is_full else None,
            None if self._swept is None else self._swept + SWEPT_EVERY,
            ) if each is not None]
        return max(0.0, min(due) - time.monotonic()) if due else None

    def _work(self) -> None:
        self._again = None
        try:
            self._remove_dropped()
            self._make_room()
            self._read_earlier()
            self._sweep()
        except (Missing, Unanswered) as error:
            logger.debug('%s: not tidied: %s', self._path, error)
            self._come_again(self._pause)
            self._pause = min(2 * self._pause, LONGEST_PAUSE)
            self._say_trouble()
        else:
            self._pause = FIRST_PAUSE

    def _say_trouble(self) -> None:
        trouble = self._limit.earlier.trouble
        if trouble is not None and not self._is_said:
            self._is_said = True
            logger.error('%s: its log is trimmed no further: %s', self._path,
                         trouble)

    def _come_again(self, seconds: float) -> None:
        self._again = time.monotonic() + seconds

    def _remove_dropped(self) -> None:
        while self._dropped:
            some = list(itertools.islice(self._dropped, AT_ONCE))
            self._log.unstage([id for id, _ in some])
            for _, size in some:
                self._dropped.popleft()
                self._limit.gives_back(size)
                self._garbage += size
            if self._garbage >= self._limit.garbage:
                self._let_go()

    def _let_go(self) -> None:
        self._log.trim(1)  # removes no record, but compacts
        self._garbage = 0

    def _make_room(self) -> None:
        """At most once a minute, because it holds up members of the engine."""
        now = time.monotonic()
        if not self._is_full or now < self._room_at:
            return
        self._room_at = now + LONGEST_PAUSE
        try:
            made = self._log.make_room()
        except Full as error:
            logger.error('%s: its log is full, and this node could not make'
                         ' room: %s', self._path, error)
            return
        self._is_full = False
        if made:
            logger.warning('%s: its log was full, and this node has made room',
                           self._path)

    def _read_earlier(self) -> None:
        begin = time.monotonic()
        self._limit.earlier.go_on()
        if not self._limit.earlier.is_read:
            self._come_again(time.monotonic() - begin)

    def _sweep(self) -> None:
        now = time.monotonic()
        if not self._limit.earlier.is_read or (
                self._swept is not None and now < self._swept + SWEPT_EVERY):
            return
        there = {id for id in self._log.all_staged()
                 if epoch_of(id) <= self._epoch}
        left = there and there - self._needed()  # after `there`
        if left:
            self._log.unstage(left)
            self._let_go()
            logger.info(
                '%s: removed from its log %d blobs that earlier writers, or'
                ' answers that were lost, have left there, and no transaction'
                ' has', self._path, len(left))
        self._swept = now

    def _needed(self) -> set[bytes]:
        """The ids of what is under way, and of what records name.

        It looks in this order, as the former becomes the latter.
        """
        with self._lock:
            under_way = set(self._open)
        return under_way | self._limit.named_before()

    # The end

    @property
    def trouble(self) -> str | None:
        with self._lock:
            return next(filter(None, (
                outage.trouble for outage in self._votes)), None)

    def closing(self) -> None:
        """Votes that wait fail soon."""
        self._closing.set()

    def close(self) -> None:
        """Return when no vote uses the log, which was stopped before."""
        self.closing()
        with self._lock:
            self._changed.wait_for(lambda: not self._votes)
        self._thread.close()
