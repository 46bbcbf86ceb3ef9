"""A thread for work that no other thread does.

It works when it is woken, and when `seconds()` have passed.  Waking it takes
no lock: so a finaliser or an interrupt may wake it, at any line.
"""

import logging
import threading
from collections.abc import Callable

logger = logging.getLogger(__name__)


def taken_lock() -> threading.Lock:
    """A lock for one thread to wait for, until another releases it."""
    lock = threading.Lock()
    lock.acquire()
    return lock


def let_go(lock: threading.Lock) -> None:
    """Wake the thread that waits for this lock.

    Harmless if it was woken before."""
    try:
        lock.release()
    except RuntimeError:
        pass


class WakeableThread:

    def __init__(self, name: str, work: Callable[[], object],
                 seconds: Callable[[], float | None] = lambda: None) -> None:
        self._work = work
        self._seconds = seconds  # None: until it is woken
        self._wake = taken_lock()  # released to wake the thread
        self._closing = False
        self._thread = threading.Thread(
            target=self._run, daemon=True, name=name)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        while not self._closing:
            seconds = self._seconds()
            self._wake.acquire(timeout=-1 if seconds is None else seconds)
            try:
                self._work()
            except BaseException:  # there is no caller to raise it to: go on
                logger.exception('an error in the %s', self._thread.name)

    def wake(self) -> None:
        let_go(self._wake)

    def close(self, within: float | None = None) -> None:
        """End the thread, and wait for that, at most `within` seconds."""
        self._closing = True
        self.wake()
        if self._thread.ident not in (None, threading.get_ident()):
            self._thread.join(within)
