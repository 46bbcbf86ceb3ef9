"""Waiting for objects: the locks of `locks`, behind a mutex.

An owner that asks gets its objects at once, or later.  A thread can wait for
them, and an event loop can be called back.  The mutex is a leaf: a thread that
holds it does not wait, read or write, and calls nothing but functions that
wake a thread or notify an event loop.

An interrupt (KeyboardInterrupt) may come between any two lines of a change.
Then the locks are made anew from the lists of holders and waiters, and all
waiters check again whether they were served (I10); the interrupted caller lets
go once more.
"""

import functools
import threading
import time
from collections.abc import Callable
from collections.abc import Iterable

from ..histogram import Histogram
from .locks import Locks
from .locks import Owner
from .wakeable import let_go
from .wakeable import taken_lock


class Turns:

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._locks = Locks()
        # For each owner, the function that wakes or notifies its waiter, and
        # since when it waits.  The function may be called twice.
        self._waiters: dict[Owner, tuple[Callable[[], object], float]] = {}
        #: How long the owners waited that were served in the end.
        self.waits = Histogram()
        self._ended = False

    @property
    def waiting(self) -> int:
        """How many threads and loops wait for their objects."""
        return len(self._waiters)

    def ask(self, owner: Owner, written: Iterable[bytes],
            read: Iterable[bytes]) -> bool:
        """Does the owner have all of its objects now?  Else it should `wait`.
        """
        with self._mutex:
            try:
                return self._locks.ask(owner, written, read)
            except BaseException:
                self._repair()
                raise

    def ask_alone(self, owner: Owner) -> bool:
        """Is the owner alone now?  Else it should `wait`."""
        with self._mutex:
            try:
                return self._locks.ask_alone(owner)
            except BaseException:
                self._repair()
                raise

    def wait(self, owner: Owner) -> bool:
        """Wait until the owner is served; return false if it never will be.

        It never will be if an abort in another thread has let go of its
        objects, or if the storage is closed.
        """
        waiter = taken_lock()
        while self.call_when_served(owner, functools.partial(let_go, waiter)):
            waiter.acquire()
        with self._mutex:
            return not self._ended and self._locks.holds(owner)

    def call_when_served(self, owner: Owner,
                         function: Callable[[], object]) -> bool:
        """Call the function when the owner is served, or if it never will be.

        If one of these is true already, return False, and call nothing.
        """
        with self._mutex:
            if (self._ended or not self._locks.knows(owner)
                    or self._locks.holds(owner)):
                return False
            self._waiters[owner] = function, time.monotonic()
            return True

    def let_go(self, owner: Owner) -> None:
        """Free what the owner holds, and end its wait.  May be repeated."""
        with self._mutex:
            try:
                served = self._locks.let_go(owner)
                if self._waiters:
                    self._wake(owner)  # another thread may wait for its turn
                    for other in served:
                        self._wake(other)
            except BaseException:
                self._repair()
                raise

    def end(self) -> None:
        """Serve no owner any more."""
        with self._mutex:
            self._ended = True
            self._wake_all()

    def _repair(self) -> None:
        self._locks.repair()
        self._wake_all()

    def _wake_all(self) -> None:
        for owner in list(self._waiters):
            self._wake(owner)

    def _wake(self, owner: Owner) -> None:
        if owner in self._waiters:
            function, since = self._waiters[owner]
            function()
            del self._waiters[owner]
            if self._locks.holds(owner):
                self.waits.add(time.monotonic() - since)
