"""So many bytes a second, on average."""

import time
from collections.abc import Callable

# What was slower than the rate is caught up with for so many seconds: else,
# when a disk answers again, all that it has missed would be read at once.
CATCH_UP = 1.0


class Rate:

    def __init__(self, most: int,
                 wait: Callable[[float], object] = time.sleep,
                 clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._wait = wait
        self._clock = clock
        #: When what was read so far may have been read.
        self._due = clock()

    def spent(self, size: int) -> None:
        """So many bytes were read: wait until they may have been."""
        now = self._clock()
        self._due = max(self._due, now - CATCH_UP) + size / self._most
        if self._due > now:
            self._wait(self._due - now)
