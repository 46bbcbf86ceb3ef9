"""A thread that removes staged blobs that no record names, and does related
work.

- What was staged for aborted transactions (`drop`) is removed at once.  After
  some megabytes of it, the engine is told to free what was removed.
- What the log had before this writer led is read, in slices, in half of the
  thread's time (earlier).  When that is known, and then once an hour, all
  staged blobs that no record names, and no vote has under way, are removed.
- If the engine is full, it is told to make room (`may_be_full`).  A primary
  cannot keep its lease then, so nobody else is there to do it.

To remove what is needed would lose it for good.  So the needed ids are
collected after the existing ones: an id is known as under way before it has a
chunk, and as named before it stops being under way.  Blobs of later epochs
stay: they belong to a writer of which this one need not know yet.
"""

import collections
import itertools
import logging
import time
from collections.abc import Callable
from collections.abc import Iterable

from ...commit.wakeable import WakeableThread
from ..history.staged import epoch_of
from ..log.interface import Full
from ..log.interface import Log
from ..log.interface import Missing
from ..log.interface import Unanswered
from .earlier import Earlier
from .loglimit import LogLimit

logger = logging.getLogger(__name__)

#: Seconds from one try to the next, and from one sweep to the next.
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
SWEPT_EVERY = 3600.0
#: How many blobs one call removes.
AT_ONCE = 1000


class Tidying:

    def __init__(self, log: Log, path: str, epoch: int, earlier: Earlier,
                 needed: Callable[[], set[bytes]], limit: LogLimit) -> None:
        """`epoch`: of the writer.  `needed`: ids that are under way or named.
        """
        self._log = log
        self._path = path
        self._epoch = epoch
        self._earlier = earlier
        self._needed = needed
        self._limit = limit
        #: Ids, with the bytes that they have taken of the limit.
        self._dropped: collections.deque[tuple[bytes, int]] = (
            collections.deque())
        #: Bytes that were removed, but not yet freed by the engine.
        self._garbage = 0
        #: When all staged blobs were checked last.
        self._swept: float | None = None
        #: The engine may be full; and when it may be told to make room.
        self._is_full = False
        self._room_at = 0.0
        #: Whether the trouble of `earlier` was logged.
        self._is_said = False
        self._pause = FIRST_PAUSE
        self._again: float | None = None
        self._thread = WakeableThread(
            f'tidying of {path}', self._work, self._seconds)

    def start(self) -> None:
        self._thread.start()
        self._thread.wake()

    def drop(self, blobs: Iterable[tuple[bytes, int]]) -> None:
        """No record will name these ids, with the bytes of each."""
        self._dropped.extend(blobs)
        self._thread.wake()

    def may_be_full(self) -> None:
        """The engine may be full: tell it to make room."""
        self._is_full = True
        self._thread.wake()

    def close(self) -> None:
        """The log was stopped before."""
        self._thread.close()

    # In the thread

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
        trouble = self._earlier.trouble
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
        self._earlier.go_on()
        if not self._earlier.is_read:
            self._come_again(time.monotonic() - begin)

    def _sweep(self) -> None:
        now = time.monotonic()
        if not self._earlier.is_read or (
                self._swept is not None and now < self._swept + SWEPT_EVERY):
            return
        there = {id for id in self._log.all_staged()
                 if epoch_of(id) <= self._epoch}
        left = there and there - self._needed()  # collected after `there`
        if left:
            self._log.unstage(left)
            self._let_go()
            logger.info(
                '%s: removed from its log %d blobs that earlier writers, or'
                ' answers that were lost, have left there, and no transaction'
                ' has', self._path, len(left))
        self._swept = now
