"""Puts the blobs of a vote into the log, before a batch names them (I11).

A blob is staged in chunks, in the thread of its vote, which holds none of the
storage's locks, nor its turn.  While the log does not answer, or has no room
(loglimit), the vote waits; it fails when the storage is closed, when nothing
more of this writer gets into the log, or when the engine is full.

What was staged for a transaction (`Staged`) is handed to its commit, from
which the record is made.  A list of the objects is written as well (newblobs).

What was staged for an aborted transaction is removed by another thread
(tidying).

Any number of votes may stage in parallel.  What they share is under `_lock`, a
leaf.
"""

import collections
import contextlib
import itertools
import os
import threading
import typing
from collections.abc import Callable
from collections.abc import Generator
from collections.abc import Iterable
from collections.abc import Sequence

from ZODB.POSException import StorageError

from ... import datafile
from ...commit.blobs import Stored
from ...commit.replica import NotReplicated
from ...errors import LeaderChanged
from ..files import newblobs
from ..history.record import Blob
from ..history.staged import chunks_of
from ..history.staged import new_id
from ..history.staged import new_sum
from ..log.interface import Full
from ..log.interface import Log
from ..log.interface import Unanswered
from ..log.outage import Outage
from ..log.outage import Patience
from .loglimit import LogLimit
from .writer import Writer


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
                 refuse: Callable[[], object],
                 on_drop: Callable[[], object]) -> None:
        """`refuse` raises NotReplicated if nothing more is to be offered;
        `on_drop` wakes the thread that removes."""
        self._log = log
        self._refuse = refuse
        self._on_drop = on_drop
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

    def begin(self, path: str) -> None:
        self._path = path

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
        self._on_drop()

    # A batch

    def is_in_the_log(self, transactions: Iterable[Staged],
                      sequence: int) -> None:
        """The batch of these transactions is in the log, and its last record
        has this number."""
        for staged in transactions:
            with self._lock:
                if staged.list is not None:
                    self._lists.until(sequence, staged.list)
                sizes = [self._open.pop(each.id, 0)  # 0: already reported
                         for each in staged.blobs.values()]
            self._limit.gives_back(sum(sizes))

    def kept(self, sequence: int) -> None:
        """A state after this record is kept."""
        with self._lock:
            self._lists.kept(sequence)

    # What the thread that removes asks (tidying)

    def dropped(self, most: int) -> list[tuple[bytes, int]]:
        """Some ids to be removed, with what each has taken of the limit."""
        with self._lock:
            return list(itertools.islice(self._dropped, most))

    def removed(self, some: Sequence[tuple[bytes, int]]) -> int:
        """Those are removed; return how many bytes that is."""
        for _, size in some:
            self._dropped.popleft()
            self._limit.gives_back(size)
        return sum(size for _, size in some)

    @property
    def under_way(self) -> set[bytes]:
        """Ids that no record names yet."""
        with self._lock:
            return set(self._open)

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
