"""Removes from the log what nobody needs, and has its room freed: the one
thread of the node that writes which does this.

- What was staged for aborted transactions (`Staging.drop`) is removed at once.
  After some megabytes of it, the engine is told to free what was removed.
- What the log had before this writer led is read, in slices, in half of the
  thread's time (held).  When that is known, and then once an hour, all staged
  blobs that no record names, and no vote has under way, are removed.
- What all nodes have kept is trimmed (trimming).

To remove what is needed would lose it for good.  So the needed ids are
collected after the existing ones: an id is known as under way before it has a
chunk, and as named before it stops being under way.  Blobs of later epochs
stay: they belong to a writer of which this one need not know yet.
"""

import logging
import time

from ...commit.replica import NotReplicated
from ...commit.wakeable import WakeableThread
from ..history.fold import State
from ..history.staged import epoch_of
from ..log.interface import Log
from ..log.interface import Missing
from ..log.interface import Trimmed
from ..log.interface import Unanswered
from .loglimit import LogLimit
from .staging import Staging
from .trimming import Trimming
from .writer import Fenced

logger = logging.getLogger(__name__)

#: Seconds from one look to the next, and from one sweep to the next.
LOOK_EVERY = 0.5
SWEPT_EVERY = 3600.0
#: How many blobs one call removes.
AT_ONCE = 1000


class Tidying:

    def __init__(self, log: Log, limit: LogLimit, staging: Staging) -> None:
        self._log = log
        self._limit = limit
        self._staging = staging
        self._trimming: Trimming | None = None
        self._path = ''
        #: Bytes that were removed, but not yet freed by the engine.
        self._garbage = 0
        #: The epoch of the writer, and when all staged blobs were checked.
        self._epoch = 0
        self._swept: float | None = None
        #: Whether the trouble of `earlier` was logged.
        self._is_said = False
        self._pause = LOOK_EVERY
        self._thread = WakeableThread(
            'removal from the log', self._work, lambda: self._pause)
        self.wake = self._thread.wake

    def begin(self, path: str, state: State,
              trimming: Trimming | None) -> None:
        """The writer leads, and `state` is the state after the record of its
        epoch."""
        self._path, self._epoch, self._trimming = path, state.epoch, trimming
        self._thread.start()
        self._thread.wake()

    def close(self) -> None:
        self._thread.close()

    # In the thread

    def _work(self) -> None:
        self._pause = LOOK_EVERY
        for step in (self._remove_dropped, self._read_earlier, self._sweep,
                     self._trim):
            try:
                step()
            except (Missing, Trimmed, Unanswered) as error:
                logger.debug('%s: not tidied: %s', self._path, error)
        trouble = self._limit.earlier.trouble
        if trouble is not None and not self._is_said:
            self._is_said = True
            logger.error('%s: its log is trimmed no further: %s', self._path,
                         trouble)

    def _remove_dropped(self) -> None:
        while some := self._staging.dropped(AT_ONCE):
            self._log.unstage([id for id, _ in some])
            self._garbage += self._staging.removed(some)
            if self._garbage >= self._limit.garbage:
                self._let_go()

    def _let_go(self) -> None:
        self._log.trim(1)  # removes no record, but compacts
        self._garbage = 0

    def _read_earlier(self) -> None:
        begin = time.monotonic()
        self._limit.earlier.go_on()
        if not self._limit.earlier.is_read:
            self._pause = time.monotonic() - begin

    def _sweep(self) -> None:
        now = time.monotonic()
        if not self._limit.earlier.is_read or (
                self._swept is not None and now < self._swept + SWEPT_EVERY):
            return
        there = {id for id in self._log.all_staged()
                 if epoch_of(id) <= self._epoch}
        # (In this order: the needed ones after `there`, and first those that
        # become the others.)
        left = there and there - self._staging.under_way
        left = left and left - self._limit.named_before()
        if left:
            self._log.unstage(left)
            self._let_go()
            logger.info(
                '%s: removed from its log %d blobs that earlier writers, or'
                ' answers that were lost, have left there, and no transaction'
                ' has', self._path, len(left))
        self._swept = now

    def _trim(self) -> None:
        try:
            if self._trimming is not None:
                self._trimming.round_if_due()
        except (Fenced, NotReplicated):
            self._trimming = None  # others report it
