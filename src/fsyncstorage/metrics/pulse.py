"""Does an event loop answer, and how late?

A timer in the loop fires twice a second, and notes by how much it is late:
this is how long something else has blocked the loop.
"""

import asyncio
import time
from typing import Any
from typing import NamedTuple

from ..histogram import Histogram

EVERY = 0.5


class Pulse:

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """May be called in any thread, before the loop runs."""
        self.lag = Histogram()
        self._loop = loop
        self._last = time.monotonic()
        self._is_over = False
        loop.call_soon_threadsafe(self._begin)

    @property
    def age(self) -> float:
        """Seconds since the loop has last answered."""
        return time.monotonic() - self._last

    def end(self) -> None:
        """May be called in any thread; the timer may fire once more."""
        self._is_over = True

    # In the loop

    def _begin(self) -> None:
        self._last = time.monotonic()
        self._next()

    def _next(self) -> None:
        self._loop.call_later(EVERY, self._beat, self._last + EVERY)

    def _beat(self, due: float) -> None:
        if not self._is_over:
            self._last = time.monotonic()
            self.lag.add(max(0.0, self._last - due))
            self._next()


class Serving(NamedTuple):
    """A server, whose storages share one loop."""

    pulse: Pulse
    #: Has the bytes `received` and `sent` on its connections.
    traffic: Any
