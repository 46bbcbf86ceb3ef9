"""Waiting for objects, in threads: the locks of `locks`, behind a mutex.

An owner that asks gets its objects at once, or waits until it is woken.  The
mutex is a leaf: nothing is called, waited for, read or written while it is
held.

An interrupt (KeyboardInterrupt) may come between any two lines of a change.
Then the locks are made anew from the lists of holders and waiters, and all
waiters look again (I10); the caller that was interrupted lets go once more.
"""

import threading
from collections.abc import Iterable

from .locks import Locks
from .locks import Owner


class Turns:

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._locks = Locks()
        # Locks to release, one for each thread that waits.
        self._waiters: dict[Owner, threading.Lock] = {}
        self._ended = False

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
        while True:
            with self._mutex:
                if self._ended or not self._locks.knows(owner):
                    return False
                if self._locks.holds(owner):
                    return True
                waiter = threading.Lock()
                waiter.acquire()  # before others can release it
                self._waiters[owner] = waiter
            waiter.acquire()

    def let_go(self, owner: Owner) -> None:
        """Drop what it holds or waits for, if anything; may be repeated."""
        with self._mutex:
            try:
                served = self._locks.let_go(owner)
                if self._waiters:
                    self._wake(owner)  # if another thread waits for it
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
            self._waiters.pop(owner).release()
