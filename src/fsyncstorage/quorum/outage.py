"""For how long the log takes nothing, what is said, and when to try again.

A pause after a try that was not answered is short at first, as an answer may
just have been lost, and twice as long each time, up to a second: members that
come back must not meet a storm, and nobody should wait long for what works
again.

One thread tries; others may ask for `seconds` and `trouble`.
"""

import logging
import time

logger = logging.getLogger(__name__)

SHORTEST_PAUSE, LONGEST_PAUSE = 0.01, 1.0
#: Seconds without an answer that are worth a word.
TROUBLE_AFTER = 1.0


class Outage:

    #: Whose log it is.
    name = ''

    def __init__(self) -> None:
        #: Those that were worth a word.
        self.number = 0
        self._since: float | None = None
        self._pause, self._reason = SHORTEST_PAUSE, ''
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
                '%s: its log has taken nothing for %.1f s (%s); commits wait'
                ' until it does, readers go on', self.name, self.seconds,
                error)
        return pause

    def is_over(self) -> None:
        """It was answered."""
        if self._is_said:
            logger.warning(
                '%s: its log takes commits again, after %.1f s',
                self.name, self.seconds)
            self._is_said = False
        self._since = None
        self._pause, self._reason = SHORTEST_PAUSE, ''

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
        return (f'the log has taken nothing for {seconds:.0f} s, and commits'
                f' wait until it does{self._reason}')
