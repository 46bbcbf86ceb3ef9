"""Limits the bytes per second, on average."""

import time
from collections.abc import Callable

# The most seconds of delay that are caught up.  Without this limit, a disk
# that has hung would have to deliver at once all that was missed.
CATCH_UP = 1.0


class Rate:
    """`most` is the limit; None: there is none."""

    def __init__(self, most: int | None,
                 wait: Callable[[float], object] = time.sleep,
                 clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._wait = wait
        self._clock = clock
        #: The time at which the rate allows all bytes that were spent so far.
        self._due = clock()

    def spent(self, size: int) -> None:
        """`size` bytes were read or written: wait until the rate allows it."""
        if self._most is None:
            return
        now = self._clock()
        self._due = max(self._due, now - CATCH_UP) + size / self._most
        if self._due > now:
            self._wait(self._due - now)


NO_LIMIT = Rate(None)
