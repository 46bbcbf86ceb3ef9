"""The lock of who commits, from begin to append (I2)."""

import contextlib
import threading

from .errors import Occupied


class CommitLock:
    """Stock's begin takes it and waits; `at_once` is for who must not wait.

    One thread may begin a transaction and another finish it.
    """

    def __init__(self):
        self._lock = threading.Lock()
        self.release = self._lock.release
        self.locked = self._lock.locked
        self._taken_for = None  # the thread that will find it taken by itself

    @contextlib.contextmanager
    def at_once(self):
        """This thread's `acquire` does not wait; or Occupied is raised."""
        if not self._lock.acquire(blocking=False):
            raise Occupied
        self._taken_for = threading.get_ident()
        try:
            yield
        finally:
            if self._taken_for == threading.get_ident():
                self._taken_for = None  # it did not come to that
                self._lock.release()

    def acquire(self, *args, **kw):
        if self._taken_for == threading.get_ident():
            self._taken_for = None
            return True
        return self._lock.acquire(*args, **kw)

    def __enter__(self):
        self.acquire()

    def __exit__(self, *ignored):
        self.release()
