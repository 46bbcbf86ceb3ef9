"""For how long the log does not answer, what is said, and when to try again.

A pause after a try that was not answered is short at first, as an answer may
just have been lost, and twice as long each time, up to a second: members that
come back must not meet a storm, and nobody should wait long for what works
again.

One thread tries; others may ask for `seconds` and `trouble`.
"""

import logging
import threading
import time
import typing
from collections.abc import Callable

from .interface import Unanswered

logger = logging.getLogger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 0.01, 1.0
#: Seconds without an answer that are worth a word.
TROUBLE_AFTER = 1.0

Answer = typing.TypeVar('Answer')


class Outage:

    def __init__(self, waits: str, name: str = '') -> None:
        """What waits until it answers, and whose log it is."""
        self._waits = waits
        self.name = name
        #: Those that were worth a word.
        self.number = 0
        self._since: float | None = None
        self._pause, self._reason = FIRST_PAUSE, ''
        self._is_said = False

    def tries(self) -> None:
        """From now on it waits for an answer."""
        if self._since is None:
            self._since = time.monotonic()

    def pause(self, error: Exception) -> float:
        """Not answered: how long to wait before the next try."""
        self._reason = f' ({error})'
        pause, self._pause = self._pause, min(2 * self._pause, LONGEST_PAUSE)
        if self.trouble is not None and not self._is_said:
            self._is_said = True
            self.number += 1
            logger.warning(
                '%s: its log has not answered for %.1f s (%s); %s until it'
                ' does', self.name, self.seconds, error, self._waits)
        return pause

    def is_over(self) -> None:
        """It was answered."""
        if self._is_said:
            logger.warning('%s: its log answers again, after %.1f s',
                           self.name, self.seconds)
            self._is_said = False
        self._since = None
        self._pause, self._reason = FIRST_PAUSE, ''

    @property
    def seconds(self) -> float:
        """For how long it waits for an answer."""
        since = self._since
        return 0.0 if since is None else time.monotonic() - since

    @property
    def trouble(self) -> str | None:
        """In words, if that is longer than usual."""
        seconds = self.seconds
        if not seconds or seconds < TROUBLE_AFTER:
            return None
        return (f'the log has not answered for {seconds:.0f} s, and'
                f' {self._waits} until it does{self._reason}')


class Patience:
    """Asks again what was not answered, until it is told to stop."""

    def __init__(self, outage: Outage, stopping: threading.Event) -> None:
        self._outage = outage
        self._stopping = stopping

    def answer(self, call: Callable[..., Answer], *args: object) -> Answer:
        """What the call returns, when it is answered.

        Raise what it raises; Unanswered if it is not to be tried again.
        """
        self._outage.tries()
        while True:
            try:
                answer = call(*args)
            except Unanswered as error:
                if self._stopping.wait(self._outage.pause(error)):
                    raise
            else:
                self._outage.is_over()
                return answer
