"""How far a pack is; and how it is cancelled.

Whatever a pack does for long calls `Watch.tell` every few MB.  Others look at
`Watch.progress`, or ask for an end of the pack with `cancel`: then the next
call of `tell` raises, and the pack leaves all as it was.  It can be cancelled
until it replaces the file.  What waits for another process says how that one
is ended, so that it does not wait for ever.
"""

import contextlib
import logging
import threading
import time
import typing
from collections.abc import Callable
from collections.abc import Iterator

from ZODB.FileStorage.FileStorage import FileStorageError

logger = logging.getLogger(__name__)

#: Bytes of the file between two calls of `tell`.
STEP = 1 << 22

# The phases of a pack, in their order.
CHECK = 'check'             # read all of the file, and check it
REFERENCES = 'references'   # read what refers to what
MARK = 'mark'               # find what is reachable
COPY = 'copy'               # write the new file
SWAP = 'swap'               # copy the rest, and swap the files

#: Called with a phase, what is done of it, and all of it (bytes or objects).
Tell = Callable[[str, int, int], object]


class Cancelled(FileStorageError):
    """The pack was cancelled, and nothing was changed."""


class Progress(typing.NamedTuple):
    phase: str
    done: int
    total: int


class Watch:
    """Of one pack.  `refuse()` raises if the pack must end because of its
    storage, as when that was closed."""

    def __init__(self, path: str, refuse: Callable[[], object]) -> None:
        self.progress = Progress('', 0, 0)
        self._path = path
        self._refuse = refuse
        self._end: Callable[[], object] = lambda: None
        #: Held while `_end` is called or replaced.  (A signal handler may
        #: cancel in the thread that holds it.)
        self._ending = threading.RLock()
        self._cancelled = False
        self._began = self._phase_began = time.monotonic()

    def cancel(self) -> None:
        self._cancelled = True
        self.wake()

    def wake(self) -> None:
        """Let the pack look whether it must end, whatever it waits for."""
        with self._ending:
            self._end()

    @contextlib.contextmanager
    def ended_by(self, end: Callable[[], object]) -> Iterator[None]:
        """A context in which `end()`, called in another thread, ends what the
        pack waits for.  Afterwards it calls `go_on`."""
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
            raise Cancelled(
                f'{self._path}: the pack was cancelled, and nothing was'
                ' changed')
        self._refuse()

    def tell(self, phase: str, done: int, total: int) -> None:
        self.go_on()
        if phase != self.progress.phase:
            self._end_phase()
        self.progress = Progress(phase, done, total)

    def over(self, before: int, after: int) -> None:
        """The pack is over, and the file has its new size."""
        self._end_phase()
        logger.info(
            '%s: packed from %s to %s bytes in %.1f s', self._path,
            f'{before:,}', f'{after:,}', time.monotonic() - self._began)

    def _end_phase(self) -> None:
        now = time.monotonic()
        if self.progress.phase:
            logger.info('%s: the phase "%s" of the pack took %.1f s',
                        self._path, self.progress.phase,
                        now - self._phase_began)
        self._phase_began = now
