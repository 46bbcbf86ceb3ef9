"""No transaction is voted or on its way: for a storage that is to be handed to
another node.

Votes wait, and do not fail.  Those that were voted go on to their ends; when
none is left, what was appended is drained.
"""

import threading
from typing import Any


class Stillness:

    def __init__(self, storage: Any) -> None:
        self._storage = storage

    def begin(self, seconds: float) -> bool:
        """Wait until all is still; false: it took longer, and all goes on."""
        turns = self._storage._turns
        served = threading.Event()
        if not turns.ask_alone(self):
            if turns.call_when_served(self, served.set):
                served.wait(seconds)
            if not turns.ask_alone(self):
                self.end()
                return False
        self._storage._sequencer.drain()
        return True

    def end(self) -> None:
        """Votes go on."""
        self._storage._turns.let_go(self)
