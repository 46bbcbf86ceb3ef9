"""A lock for callers that must not wait.

Such a caller cannot first check that the lock is free, and then take it with a
wait: another thread may take the lock between the two, and keep it until that
very caller has done its work.  (An event loop that publishes would wait for a
pack that waits for the publishing.)
"""

import threading
from collections.abc import Callable

from ..errors import Occupied


class _Taken(dict[bool, bool]):

    def __missing__(self, taken: bool) -> bool:
        raise Occupied


_taken = _Taken({True: True})


class Tried:
    """`with Tried(lock)` is like `with lock`, but raises Occupied if it would
    have to wait.

    No interrupt can come between taking the lock and the block, or between the
    block and freeing the lock, as with the lock itself: each of the two is one
    call of a function that is not written in Python.  (The interpreter looks
    up both functions before it calls the first one.)
    """

    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock

    @property
    def __enter__(self) -> Callable[[], bool]:
        outcomes = map(self._lock.acquire, (False,))
        return map(_taken.__getitem__, outcomes).__next__

    @property
    def __exit__(self) -> Callable[..., None]:  # noqa: PLE0302  # no method
        return self._lock.__exit__
