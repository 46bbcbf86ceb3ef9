"""A lock for callers that may have to give up while they wait.

Another thread may hold the lock for as long as a client likes.  So the waiting
caller regularly checks whether it must give up for another reason.
"""

import itertools
import threading
from collections.abc import Callable

# Seconds between two checks.
EACH = .1


class Awaited:
    """`with Awaited(lock, go_on)` is like `with lock`, but calls `go_on()`
    before the wait, and regularly during it.  If `go_on` raises an error, that
    ends the wait.

    No interrupt can come between taking the lock and the block, or between the
    block and freeing the lock: as with `trying.Tried`, each of the two is one
    call of a function that is not written in Python.
    """

    def __init__(self, lock: threading.Lock,
                 go_on: Callable[[], object]) -> None:
        self._lock = lock
        self._go_on = go_on

    @property
    def __enter__(self) -> Callable[[], bool]:
        # Call `_seconds`, then wait for so long; repeat until it has the lock.
        tries = map(self._lock.acquire, itertools.repeat(True),
                    iter(self._seconds, None))
        return filter(None, tries).__next__

    def _seconds(self) -> float:
        self._go_on()
        return EACH

    @property
    def __exit__(self) -> Callable[..., None]:  # noqa: PLE0302  # no method
        return self._lock.__exit__
