"""Removes staged blobs that no record names, in a thread.

Once, when its writer has begun its epoch, what earlier ones have left
(`named.unnamed`); and what this one has staged for transactions that were
aborted (`drop`).  If the log does not answer, it is tried again; what is left
at the close, the next writer finds.
"""

import collections
import logging
import time
from collections.abc import Iterable

from ...commit.wakeable import WakeableThread
from ..history.fold import State
from ..log.interface import Log
from ..log.interface import Unanswered
from .named import AT_ONCE
from .named import unnamed

logger = logging.getLogger(__name__)

#: Seconds from one try to the next.
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0


class Tidying:

    def __init__(self, log: Log, path: str, state: State) -> None:
        """`state`: behind the record of the epoch of the writer."""
        self._log = log
        self._path = path
        self._state = state
        self._is_swept = False
        self._dropped: collections.deque[bytes] = collections.deque()
        self._pause = FIRST_PAUSE
        self._again: float | None = None
        self._thread = WakeableThread(
            f'tidying of {path}', self._work, self._seconds)

    def start(self) -> None:
        self._thread.start()
        self._thread.wake()

    def drop(self, ids: Iterable[bytes]) -> None:
        """No record will name these."""
        self._dropped.extend(ids)
        self._thread.wake()

    def close(self) -> None:
        """The log was stopped."""
        self._thread.close()

    # In the thread

    def _seconds(self) -> float | None:
        return None if self._again is None else max(
            0.0, self._again - time.monotonic())

    def _work(self) -> None:
        self._again = None
        try:
            self._sweep()
            while self._dropped:
                ids = list(self._dropped)[:AT_ONCE]
                self._log.unstage(ids)
                for _ in ids:
                    self._dropped.popleft()
        except Unanswered:
            self._again = time.monotonic() + self._pause
            self._pause = min(2 * self._pause, LONGEST_PAUSE)
        else:
            self._pause = FIRST_PAUSE

    def _sweep(self) -> None:
        if self._is_swept:
            return
        left = unnamed(self._log, self._state.epoch, self._state.place)
        if left:
            self._log.unstage(left)
            logger.info(
                '%s: removed from its log %d blobs that earlier writers have'
                ' left there, and no transaction has', self._path, len(left))
        self._is_swept = True
