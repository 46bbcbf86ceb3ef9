"""How far a pack, or a forecast of one, is; and how it is cancelled.

Each part of a pack that takes long calls `PackWatch.tell` every few MB.  Other
threads read `PackWatch.progress`, or call `cancel`.  After a cancel, the next
call of `tell` raises an exception, and the pack leaves all as it was.  A pack
can be cancelled until it replaces the file.

A pack that waits for another process gives the watch a function that ends that
process (`ended_by`), so that it does not wait for ever.  A pack that waits for
a transaction that is alone looks now and then whether it must end.
"""

import contextlib
import logging
import threading
import time
import typing
from collections.abc import Callable
from collections.abc import Iterator

from ZODB.FileStorage.FileStorage import FileStorageError

from ..format import scan
from ..format.window import Window

logger = logging.getLogger(__name__)

#: Bytes of the file between two calls of `tell`.
STEP = 1 << 22

# The phases of a pack, in their order.
CHECK = 'check'             # read all of the file, and check it
REFERENCES = 'references'   # read what refers to what
MARK = 'mark'               # find what is reachable
COPY = 'copy'               # write the new file
SWAP = 'swap'               # copy the rest, and swap the files
# In a forecast, in the place of the last two.  Also in a pack that has little
# room on the disk.
COUNT = 'count'             # add up what is kept, and what is not

PACK, FORECAST = 'pack', 'forecast'
# The part of the whole time that each phase takes, roughly.
_SHARES: dict[str, dict[str, float]] = {
    PACK: {CHECK: .25, REFERENCES: .25, MARK: .1, COUNT: 0, COPY: .35,
           SWAP: .05},
    FORECAST: {CHECK: .3, REFERENCES: .3, MARK: .15, COUNT: .25}}

# How a pack has ended.
PACKED, NOTHING, CANCELLED, FAILED = 'packed', 'nothing', 'cancelled', 'failed'

#: Called with a phase, what is done of it, and all of it (bytes or objects).
Tell = Callable[[str, int, int], object]


def transactions(window: Window, begin: int, end: int, phase: str,
                 tell: Tell) -> Iterator[scan.Transaction]:
    """Read every transaction from `begin` to `end`, and tell how far it is.

    scan.Damage if anything is wrong.
    """
    due, found = begin, None
    while begin < end:
        if begin >= due:
            tell(phase, begin, window.end)
            due = begin + STEP
        found = scan.read_transaction(window, begin, found)
        yield found
        begin = found.end


class Cancelled(FileStorageError):
    """The pack was cancelled, and nothing was changed."""


class Untimely(FileStorageError):
    """What was asked for does not fit what is under way: a second pack or
    forecast, or nothing is there that could be cancelled."""


class Progress(typing.NamedTuple):
    phase: str
    done: int
    total: int


class PackWatch:
    """Watches one pack, or one forecast.

    `refuse()` raises an exception if the pack must end because of its storage,
    for example when the storage was closed.
    """

    def __init__(self, path: str, refuse: Callable[[], object],
                 size: int = 0, kind: str = PACK) -> None:
        self.progress = Progress('', 0, 0)
        self.outcome = FAILED
        #: The size of the file, before and after the pack.
        self.before = self.after = size
        self._kind = kind
        self._path = path
        self._refuse = refuse
        self._end: Callable[[], object] = lambda: None
        #: Held while `_end` is called or replaced.  (A signal handler may
        #: cancel in the thread that holds it.)
        self._ending = threading.RLock()
        self._cancelled = False
        self._began = self._phase_began = time.monotonic()
        #: When it has ended, however it did.
        self.ended: float | None = None

    @property
    def seconds(self) -> float:
        """How long the pack has been under way, or was."""
        return (self.ended or time.monotonic()) - self._began

    @property
    def ended_ago(self) -> float:
        return time.monotonic() - (self.ended or self._began)

    @property
    def share(self) -> float:
        """Roughly how much of the pack is done, from 0 to 1."""
        phase, done, total = self.progress
        before = 0.0
        for each, share in _SHARES[self._kind].items():
            if each == phase:
                return before + share * min(1.0, done / max(total, 1))
            before += share
        return 0.0

    def figures(self) -> dict[str, str | int | float]:
        """The progress, as plain data."""
        phase, done, total = self.progress
        return {'phase': phase, 'done': done, 'total': total,
                'share': self.share, 'seconds': self.seconds}

    def cancel(self) -> None:
        self._cancelled = True
        self.wake()

    def wake(self) -> None:
        """Let the pack check whether it must end, whatever it waits for."""
        with self._ending:
            self._end()

    @contextlib.contextmanager
    def ended_by(self, end: Callable[[], object]) -> Iterator[None]:
        """A context in which the pack waits for something that `end()` ends.

        Another thread calls `end()`.  After the wait, the pack must call
        `go_on`.
        """
        with self._ending:
            self._end = end
        try:
            self.go_on()
            yield
        finally:
            with self._ending:  # it is not being called any more
                self._end = lambda: None

    def go_on(self) -> None:
        """Raise if the pack must end."""
        if self._cancelled:
            self.outcome = CANCELLED
            raise Cancelled(
                f'{self._path}: the {self._kind} was cancelled, and nothing'
                ' was changed')
        self._refuse()

    def tell(self, phase: str, done: int, total: int) -> None:
        self.go_on()
        if phase != self.progress.phase:
            self._end_phase()
        self.progress = Progress(phase, done, total)

    def over(self, after: int) -> None:
        """The pack has succeeded, and the file has its new size."""
        self._end_phase()
        self.outcome, self.after = PACKED, after
        logger.info(
            '%s: packed from %s to %s bytes in %.1f s', self._path,
            f'{self.before:,}', f'{after:,}', self.seconds)

    def _end_phase(self) -> None:
        now = time.monotonic()
        if self.progress.phase:
            logger.info('%s: the phase "%s" of the %s took %.1f s',
                        self._path, self.progress.phase, self._kind,
                        now - self._phase_began)
        self._phase_began = now
