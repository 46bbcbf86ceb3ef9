"""A thread for work that no other thread does.

It works when it is woken, and when `seconds()` have passed.  Waking it takes
no lock: so a finaliser may wake it, at any line.
"""

import logging
import threading
from collections.abc import Callable

logger = logging.getLogger(__name__)


class WakeableThread:

    def __init__(self, name: str, work: Callable[[], object],
                 seconds: Callable[[], float | None] = lambda: None) -> None:
        self._work = work
        self._seconds = seconds  # None: until it is woken
        self._asleep = threading.Lock()  # released to wake the thread
        self._asleep.acquire()
        self._closing = False
        self._thread = threading.Thread(
            target=self._run, daemon=True, name=name)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        closing = False
        while not closing:
            seconds = self._seconds()
            self._asleep.acquire(timeout=-1 if seconds is None else seconds)
            # What it was woken for before it is closed is done, too.
            closing = self._closing
            try:
                self._work()
            except BaseException:  # there is no caller to raise it to: go on
                logger.exception('an error in the %s', self._thread.name)

    def wake(self) -> None:
        try:
            self._asleep.release()
        except RuntimeError:  # it was woken before
            pass

    def close(self, within: float | None = None) -> None:
        """End the thread, and wait for that, at most `within` seconds."""
        self._closing = True
        self.wake()
        if self._thread.ident not in (None, threading.get_ident()):
            self._thread.join(within)
