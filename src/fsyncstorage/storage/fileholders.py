"""Who needs the file to stay the one it is: a transaction *holds the file*
from its vote to its end.

A transaction that is alone is written behind the end by its vote, and appended
by its finish.  An undo points to positions in the file; and what it restores,
a pack must see.  So a pack that begins, or that is about to replace the file,
closes the file off: it waits until no such transaction holds it, and none gets
it until the pack goes on.

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


class FileHolders:

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._holders: set[object] = set()
        self._is_closed_off = False

    def add(self, owner: object, wait: bool) -> None:
        """Without `wait`, raise Occupied if a pack has closed it off."""
        with self._changed:
            while self._is_closed_off:
                if not wait:
                    raise Occupied
                self._changed.wait()
            self._holders.add(owner)

    def has(self, owner: object) -> bool:
        return owner in self._holders

    def leave(self, owner: object) -> None:
        """May be repeated."""
        with self._changed:
            if owner in self._holders:
                self._holders.discard(owner)
                self._changed.notify_all()

    @contextlib.contextmanager
    def closed_off(self, go_on: Callable[[], object]) -> Iterator[None]:
        """A context for one pack at a time.  `go_on` is called again and again
        while it waits; an error ends the wait."""
        try:
            with self._changed:
                self._is_closed_off = True
                while self._holders:
                    go_on()
                    self._changed.wait(EACH)
            yield
        finally:
            with self._changed:
                self._is_closed_off = False
                self._changed.notify_all()
