"""No transaction is voted or on its way: for a storage that is to be handed to
another node.

Votes wait, and do not fail.  Those that were voted go on to their ends; when
none is left, what was appended is waited for, but no longer than for votes.
"""

import threading
import time
from typing import Any

#: Seconds from one look at what is on its way to the next.
A_MOMENT = 0.01


class Stillness:

    def __init__(self, storage: Any) -> None:
        self._storage = storage

    def begin(self, seconds: float) -> bool:
        """Wait until all is still; false: it took longer, and all goes on."""
        turns, deadline = self._storage._turns, time.monotonic() + seconds
        served = threading.Event()
        if not turns.ask_alone(self):
            if turns.call_when_served(self, served.set):
                served.wait(seconds)
            if not turns.ask_alone(self):
                self.end()
                return False
        # (Whoever waits for these commits settles them: this one must not.)
        while self._storage._sequencer.pipeline.queue:
            if time.monotonic() > deadline:
                self.end()
                return False
            time.sleep(A_MOMENT)
        return True

    def end(self) -> None:
        """Votes go on."""
        self._storage._turns.let_go(self)
