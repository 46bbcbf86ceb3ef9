"""How threads sleep until others wake them, and one for work in between.

Waking takes no lock, and is one step: so a finaliser may do it, at any line,
and an interrupt leaves nothing half done.  (A Condition and an Event are
written in Python: an interrupt may leave their lock taken for good.)
"""

import logging
import threading
from collections.abc import Callable

logger = logging.getLogger(__name__)


class Sleeper:
    """One thread sleeps, and any other may wake it.

    If it is woken before it sleeps, the sleep ends at once.  Each thread looks
    again at what it waits for when it is awake.
    """

    __slots__ = '_asleep',

    def __init__(self) -> None:
        self._asleep = threading.Lock()  # released to wake the thread
        self._asleep.acquire()

    def sleep(self, seconds: float | None = None) -> None:
        """Until it is woken, at most for this time."""
        self._asleep.acquire(timeout=-1 if seconds is None else seconds)

    def wake(self) -> None:
        try:
            self._asleep.release()
        except RuntimeError:  # it was woken before
            pass


class WakeableThread:
    """A thread for work that no other thread does.

    It works when it is woken, and when `seconds()` have passed."""

    def __init__(self, name: str, work: Callable[[], object],
                 seconds: Callable[[], float | None] = lambda: None) -> None:
        self._work = work
        self._seconds = seconds  # None: until it is woken
        self._sleeper = Sleeper()
        #: A finaliser may call it.
        self.wake = self._sleeper.wake
        self._closing = False
        self._thread = threading.Thread(
            target=self._run, daemon=True, name=name)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        closing = False
        while not closing:
            self._sleeper.sleep(self._seconds())
            # What it was woken for before it is closed is done, too.
            closing = self._closing
            try:
                self._work()
            except BaseException:  # there is no caller to raise it to: go on
                logger.exception('an error in the %s', self._thread.name)

    def close(self, within: float | None = None) -> None:
        """End the thread, and wait for that, at most `within` seconds."""
        self._closing = True
        self.wake()
        if self._thread.ident not in (None, threading.get_ident()):
            self._thread.join(within)
