"""A lock for callers that must not wait.

Such a caller cannot look first whether the lock is free, and then wait for it:
another thread may take it between the two, and keep it until that very caller
has done its work.  (An event loop that publishes would wait for a pack that
waits for the publishing.)
"""

import threading
from collections.abc import Callable

from ..errors import Occupied


class _Taken(dict[bool, bool]):

    def __missing__(self, taken: bool) -> bool:
        raise Occupied


_taken = _Taken({True: True})


class Tried:
    """`with Tried(lock)`, as `with lock`; Occupied if it had to wait.

    No interrupt can come between taking the lock and the block, or between the
    block and freeing it, as with the lock itself: both are one call of a
    function that is not written in Python.  (The interpreter gets both
    functions before it calls the first one.)
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
