"""The place behind the end of the file, for a transaction that is alone.

Such a transaction is written there by its vote, and appended by its finish.
Nobody else can append in between, because no other transaction is voted then.
Only a pack could replace the file.  So a pack that is about to do so closes
the place off: it waits until no transaction has it, and none gets it until the
pack is over.

`_changed` guards all of it.  Nothing is done under it but to look, to note and
to wait.
"""

import contextlib
import threading
from collections.abc import Callable
from collections.abc import Iterator

from ..errors import Occupied

# Seconds between two looks of a pack whether it must end.
EACH = .1


class Place:

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._owner: object = None
        self._is_closed_off = False

    def take(self, owner: object, wait: bool) -> None:
        """Without `wait`, raise Occupied if a pack has closed it off."""
        with self._changed:
            while self._is_closed_off:
                if not wait:
                    raise Occupied
                self._changed.wait()
            self._owner = owner

    def is_of(self, owner: object) -> bool:
        return self._owner is owner

    def leave(self, owner: object) -> None:
        """May be repeated."""
        with self._changed:
            if self._owner is owner:
                self._owner = None
                self._changed.notify_all()

    @contextlib.contextmanager
    def closed_off(self, go_on: Callable[[], object]) -> Iterator[None]:
        """A context for one pack at a time.  `go_on` is called again and again
        while it waits; an error ends the wait."""
        try:
            with self._changed:
                self._is_closed_off = True
                while self._owner is not None:
                    go_on()
                    self._changed.wait(EACH)
            yield
        finally:
            with self._changed:
                self._is_closed_off = False
                self._changed.notify_all()
