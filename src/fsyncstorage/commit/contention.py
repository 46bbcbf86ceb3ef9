"""The append lock, and threads that return to it without a pause.

Under a policy without promises, a thread that commits in a loop waits for
nothing but the append lock.  If another thread waits for that lock, the system
gives it to the other thread, which cannot run yet: it also needs the
interpreter's lock.  The first thread keeps that one until it returns to the
append lock, and must wait itself.  So each commit changes the thread, which
costs as much again as the commit.

Here such threads take *runs*: one thread appends again and again for up to
`RUN` seconds, while the others sleep in a queue.  Then it hands the run on to
the first of them, and sleeps at the end of the queue.

Most programs wait for other things between their commits.  A thread that has
done so since it left neither sleeps nor has a run: it goes on to the lock.

If the thread that has the run must wait for objects that others hold, it hands
the run on at once, because a thread that sleeps here may hold them.  If it
stays away for another reason, its run ends when the first thread in the queue
has slept long enough.  So no thread waits here for ever, and no promise
depends on this: a lost wake-up costs a few runs.
"""

import collections
import threading
from collections.abc import Hashable
from time import perf_counter as clock
from time import thread_time as worked

from .wakeable import Sleeper

# A thread that has waited for less than this since it left returns without a
# pause.
AT_ONCE = 50e-6
# A run ends after this time, if another thread waits for a run.
RUN = 1e-3


class _Left(threading.local):

    #: When this thread left, minus its processor time until then.
    at = 0.0


class Contention:

    #: The thread that has the run, and when that run ends.
    _runner: int | None = None
    _run_ends = 0.0

    def __init__(self) -> None:
        #: Owners that have the lock, or are about to take it.
        self.inside: set[Hashable] = set()
        #: The threads that wait for a run, by their numbers.
        self._sleepers: collections.OrderedDict[int, Sleeper] = (
            collections.OrderedDict())
        self._left = _Left()

    def come(self, owner: Hashable, may_sleep: bool = True) -> None:
        """Call it before taking the lock.  An event loop must not sleep."""
        now = clock()
        if may_sleep and now - worked() < self._left.at + AT_ONCE:
            thread = threading.get_ident()
            if thread != self._runner and not (
                    now < self._run_ends + RUN and self._is_handed_on(thread)):
                self._begin_run(thread)
        self.inside.add(owner)

    def leave(self, owner: Hashable) -> None:
        """Call it when the lock is free again; or at any other time."""
        if owner in self.inside:
            self.inside.discard(owner)
            now = clock()
            self._left.at = now - worked()
            if self._sleepers and now > self._run_ends:
                self.hand_on()

    def hand_on(self) -> None:
        """If this thread has the run, give it to the first sleeping thread."""
        if self._runner == threading.get_ident():
            try:
                thread, sleeper = self._sleepers.popitem(last=False)
            except KeyError:
                return  # no thread sleeps, or the sleeper has just timed out
            self._begin_run(thread)
            sleeper.wake()

    def _is_handed_on(self, thread: int) -> bool:
        """Sleep; return False if this thread was not handed the run."""
        sleeper = self._sleepers[thread] = Sleeper()
        try:
            sleeper.sleep((len(self._sleepers) + 1) * RUN)
        finally:
            is_handed_on = self._sleepers.pop(thread, None) is None
        return is_handed_on

    def _begin_run(self, thread: int) -> None:
        self._runner = thread
        self._run_ends = clock() + RUN
