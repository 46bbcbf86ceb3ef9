"""How long the log has not answered, when to retry, and what to report.

The pause after an unanswered try is short at first, as just one answer may
have been lost.  It doubles with each try, up to a second: members that come
back must not be flooded with retries, and nobody should wait long when the log
works again.

One thread retries; other threads may read `seconds` and `trouble`.
"""

import logging
import threading
import time
import typing
from collections.abc import Callable

from .interface import Unanswered

logger = logging.getLogger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 0.01, 1.0
#: An outage is reported after this many seconds without an answer.
TROUBLE_AFTER = 1.0

Answer = typing.TypeVar('Answer')


class Outage:

    def __init__(self, waits: str, name: str = '') -> None:
        """`waits` says what waits for the log, `name` whose log it is."""
        self._waits = waits
        self.name = name
        #: How many outages were reported.
        self.number = 0
        self._since: float | None = None
        self._pause, self._reason = FIRST_PAUSE, ''
        self._is_said = False

    def tries(self) -> None:
        """From now on an answer is waited for."""
        if self._since is None:
            self._since = time.monotonic()

    def pause(self, error: Exception) -> float:
        """A try was not answered: how long to wait before the next one."""
        self._reason = f' ({error})'
        pause, self._pause = self._pause, min(2 * self._pause, LONGEST_PAUSE)
        if self.trouble is not None and not self._is_said:
            self._is_said = True
            self.number += 1
            logger.warning(
                '%s: its log has not answered for %.1f s (%s); %s until it'
                ' does', self.name, self.seconds, error, self._waits)
        return pause

    def answered(self) -> None:
        """The log has answered."""
        if self._is_said:
            logger.warning('%s: its log answers again, after %.1f s',
                           self.name, self.seconds)
            self._is_said = False
        self._since = None
        self._pause, self._reason = FIRST_PAUSE, ''

    @property
    def seconds(self) -> float:
        """How long an answer has been waited for."""
        since = self._since
        return 0.0 if since is None else time.monotonic() - since

    @property
    def trouble(self) -> str | None:
        """The outage in words, if it is longer than usual."""
        seconds = self.seconds
        if not seconds or seconds < TROUBLE_AFTER:
            return None
        return (f'the log has not answered for {seconds:.0f} s, and'
                f' {self._waits} until it does{self._reason}')


class Patience:
    """Retries calls that are not answered, until it is told to stop."""

    def __init__(self, outage: Outage, stopping: threading.Event) -> None:
        self._outage = outage
        self._stopping = stopping

    def answer(self, call: Callable[..., Answer], *args: object) -> Answer:
        """Return what the call returns, once it is answered.

        Raise what the call raises; Unanswered if it must not be retried.
        """
        self._outage.tries()
        while True:
            try:
                answer = call(*args)
            except Unanswered as error:
                if self._stopping.wait(self._outage.pause(error)):
                    raise
            else:
                self._outage.answered()
                return answer
