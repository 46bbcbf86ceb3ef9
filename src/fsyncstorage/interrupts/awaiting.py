"""A lock for callers that may have to give up while they wait.

Whoever has the lock may keep it for as long as a client likes.  So the caller
looks now and then whether it must end for another reason.
"""

import itertools
import threading
from collections.abc import Callable

# Seconds between two looks.
EACH = .1


class Awaited:
    """`with Awaited(lock, go_on)`, as `with lock`; but `go_on()` is called
    before it waits, and now and then while it does: what it raises ends that.

    No interrupt can come between taking the lock and the block, or between the
    block and freeing it: as with `trying.Tried`, both are one call of a
    function that is not written in Python.
    """

    def __init__(self, lock: threading.Lock,
                 go_on: Callable[[], object]) -> None:
        self._lock = lock
        self._go_on = go_on

    @property
    def __enter__(self) -> Callable[[], bool]:
        # It calls `_seconds`, and then waits as long: until it has the lock.
        tries = map(self._lock.acquire, itertools.repeat(True),
                    iter(self._seconds, None))
        return filter(None, tries).__next__

    def _seconds(self) -> float:
        self._go_on()
        return EACH

    @property
    def __exit__(self) -> Callable[..., None]:  # noqa: PLE0302  # no method
        return self._lock.__exit__
