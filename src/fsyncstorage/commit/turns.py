"""Waiting for objects: the locks of `locks`, behind a mutex.

An owner that asks gets its objects at once, or later.  A thread can wait for
that, and an event loop can have itself called.  The mutex is a leaf: nothing
is waited for, read or written while it is held, and nothing is called but what
wakes a thread or notifies an event loop.

An interrupt (KeyboardInterrupt) may come between any two lines of a change.
Then the locks are made anew from the lists of holders and waiters, and all
waiters look again (I10); the caller that was interrupted lets go once more.
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
        # What wakes or notifies those that wait, and since when they do.  May
        # be called twice.
        self._waiters: dict[Owner, tuple[Callable[[], object], float]] = {}
        #: How long those waited that were served in the end.
        self.waits = Histogram()
        self._ended = False

    @property
    def waiting(self) -> int:
        """How many threads and loops wait for their objects."""
        return len(self._waiters)

    def ask(self, owner: Owner, written: Iterable[bytes],
            read: Iterable[bytes]) -> bool:
        """Does it have all of its objects now?  Else it should `wait`."""
        with self._mutex:
            try:
                return self._locks.ask(owner, written, read)
            except BaseException:
                self._repair()
                raise

    def ask_alone(self, owner: Owner) -> bool:
        """Is it alone now?  Else it should `wait`."""
        with self._mutex:
            try:
                return self._locks.ask_alone(owner)
            except BaseException:
                self._repair()
                raise

    def wait(self, owner: Owner) -> bool:
        """Wait until it is served; false if it never will be.

        Then an abort in another thread has let go of its objects, or the
        storage is closed.
        """
        waiter = taken_lock()
        while self.call_when_served(owner, functools.partial(let_go, waiter)):
            waiter.acquire()
        with self._mutex:
            return not self._ended and self._locks.holds(owner)

    def call_when_served(self, owner: Owner,
                         function: Callable[[], object]) -> bool:
        """Call the function when it is served, or if it never will be.

        Return False if that is so already, and nothing is called.
        """
        with self._mutex:
            if (self._ended or not self._locks.knows(owner)
                    or self._locks.holds(owner)):
                return False
            self._waiters[owner] = function, time.monotonic()
            return True

    def in_the_way(self, owner: Owner) -> Owner | None:
        """One because of which it waits; None: it does not."""
        with self._mutex:
            return self._locks.in_the_way(owner)

    def let_go(self, owner: Owner) -> None:
        """Drop what it holds or waits for, if anything; may be repeated."""
        with self._mutex:
            try:
                served = self._locks.let_go(owner)
                if self._waiters:
                    self._wake(owner)  # if another waits for it
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
