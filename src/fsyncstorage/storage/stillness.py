"""Waits until no transaction is voted or on its way to the disk, so that
another node can take over.

New votes wait, and do not fail.  Voted transactions go on to their ends.  When
none is left, this also waits until what was appended is settled.  The limit is
for both waits together.
"""

import threading
import time
from typing import Any

#: Seconds between two checks of what is on its way.
A_MOMENT = 0.01


class Stillness:

    def __init__(self, storage: Any) -> None:
        self._storage = storage

    def begin(self, seconds: float) -> bool:
        """Wait until all is still.

        False: it took more than `seconds`, and everything goes on."""
        turns, deadline = self._storage._turns, time.monotonic() + seconds
        served = threading.Event()
        if not turns.ask_alone(self):
            if turns.call_when_served(self, served.set):
                served.wait(seconds)
            if not turns.ask_alone(self):
                self.end()
                return False
        # (The threads that wait for these commits settle them; this one must
        # not.)
        while self._storage._sequencer.pipeline.queue:
            if time.monotonic() > deadline:
                self.end()
                return False
            time.sleep(A_MOMENT)
        return True

    def end(self) -> None:
        """Votes go on."""
        self._storage._turns.let_go(self)
