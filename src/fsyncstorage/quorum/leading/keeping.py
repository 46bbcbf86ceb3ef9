"""Saves what a node keeps, some time after it has changed.

The saved state may be older than what is durable, but never newer: `synced` is
called when the log has a batch and the disk is synced up to its end.  To save
each state at once would cost a commit another sync or two.  So a thread saves
it a second after the first change; and it is saved at a close.

If a state cannot be saved, that is tried again.  Until it succeeds, the next
start only has more to read from the log.

While the file is about to be replaced by a packed one, the saved state says
so, and nothing else is saved: the file that is read may be either of the two.
"""

import logging
import threading
import time

from ...commit.wakeable import WakeableThread
from ...pack.agreed import Becoming
from ..files import state as states
from ..history.fold import State

logger = logging.getLogger(__name__)

#: Seconds from a change until the state is saved.
LATE = 1.0


class Keeper:

    def __init__(self, path: str, state: State, read: states.Read) -> None:
        """Save the state of the node in the file beside `path`; raise OSError
        if that fails."""
        self._path = path
        self._read = read
        self._saving = threading.Lock()
        before = states.load(path)
        assert before is not None
        #: The identity of this node (log.notes); it does not change.
        self.identity = before.node
        states.save(path, state, read, self.identity)
        #: What is on the disk, and what may be saved next.
        self.kept = self.latest = state
        #: The generation of a file that is about to be replaced.
        self._going: int | None = None
        self._due: float | None = None
        self._has_failed = False
        self._thread = WakeableThread(
            f'keeper of {path}', self._work, self._seconds)

    def start(self) -> None:
        self._thread.start()

    def synced(self, state: State) -> None:
        """The log has this state, and the disk is synced up to its end."""
        self.latest = state  # first: see `_work`
        if state is self.kept:
            return
        due, now = self._due, time.monotonic()  # (`_work` may unset it now)
        if due is None:
            self._due = now + LATE
            self._thread.wake()
        elif now >= due:
            self._thread.wake()  # an interrupt may have prevented the first

    def save_becoming(self, state: State, becoming: Becoming) -> None:
        """Save now what will take the place of the file, which is synced up to
        the end of this state.

        Nothing else is saved until the file was replaced (`synced`), or never
        will be (`stays`).  Raise OSError.
        """
        with self._saving:
            self._going = state.generation
            states.save(
                self._path, state, self._read, self.identity, becoming)
            self.kept = self.latest = state

    def stays(self) -> None:
        """The file will not be replaced."""
        self._going = None

    def save(self) -> None:
        """Save the state now, if it has changed."""
        with self._saving:
            self._save()

    def close(self) -> None:
        self._thread.close()

    # In the thread

    def _seconds(self) -> float | None:
        due = self._due
        return None if due is None else max(0.0, due - time.monotonic())

    def _work(self) -> None:
        if self._due is not None and time.monotonic() >= self._due:
            self._due = None  # first: later changes are due anew
            self.save()  # another thread may be saving an earlier state

    def _save(self) -> None:
        state = self.latest
        if state is self.kept or state.generation == self._going:
            return
        try:
            states.save(self._path, state, self._read, self.identity)
        except OSError as error:
            if not self._has_failed:
                logger.warning(
                    '%s%s could not be written (%s); it is tried again, and'
                    ' the next start reads more from the log', self._path,
                    states.SUFFIX, error)
            self._has_failed = True
            self._due = time.monotonic() + LATE
        else:
            self.kept, self._has_failed = state, False
