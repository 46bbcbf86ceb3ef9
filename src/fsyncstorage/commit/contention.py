"""The append lock, and many threads that come to it again at once.

Under a policy without promises, a thread that has appended is back with its
next commit a few microseconds later.  If another thread waits for the lock,
the system gives it to that one, which does not run yet: it needs the
interpreter's lock, too, and the first thread has it, until it comes to the
append lock and has to wait itself.  So each commit changes the thread, which
costs as much again as the commit.

Here a thread that finds another at the lock steps back.  It sleeps until the
lock was free once, looks, and then sleeps until it was free many times.
Meanwhile the other one appends again and again.  After three sleeps, each with
a limit, it goes on to the lock: nobody is passed for ever.

No promise depends on this.  A wake-up that is lost costs `LONGEST`.
"""

import collections
import threading
from collections.abc import Hashable

# It sleeps until the lock was free that many times.
TIMES = 1, 64, 64
# And at most that long: the first time, when it is in the queue behind other
# sleepers; and then, for each time.
LONGEST = 0.1
LONGEST_A_TIME = 100e-6


class Sleeper:

    def __init__(self, times: int) -> None:
        #: It is to be woken when the lock was free this many times more.
        self.times = times
        self._asleep = threading.Lock()
        self._asleep.acquire()

    def sleep(self, seconds: float) -> None:
        self._asleep.acquire(timeout=seconds)

    def wake(self) -> None:
        self._asleep.release()


class Contention:

    def __init__(self) -> None:
        #: Those that have the lock, or are about to take it.
        self.inside: set[Hashable] = set()
        #: The first is counted for.
        self._sleepers: collections.deque[Sleeper] = collections.deque()

    def come(self, owner: Hashable) -> None:
        """Call it before taking the lock."""
        if self.inside:
            self._step_back()
        self.inside.add(owner)

    def leave(self, owner: Hashable) -> None:
        """Call it when the lock is free again; or at any other time."""
        if owner in self.inside:
            self.inside.discard(owner)
            if self._sleepers:
                self._count_one()

    def _step_back(self) -> None:
        for times in TIMES:
            sleeper = Sleeper(times)
            if times == 1:
                self._sleepers.append(sleeper)
                self._sleep(sleeper, LONGEST)
            else:
                self._sleepers.appendleft(sleeper)
                self._sleep(sleeper, times * LONGEST_A_TIME)
            if not self.inside:
                return

    def _sleep(self, sleeper: Sleeper, seconds: float) -> None:
        try:
            if self.inside:  # else there might be nobody to wake it
                sleeper.sleep(seconds)
        finally:
            self._remove(sleeper)

    def _remove(self, sleeper: Sleeper) -> bool:
        """False: it is not there any more."""
        try:
            self._sleepers.remove(sleeper)
        except ValueError:
            return False
        return True

    def _count_one(self) -> None:
        try:
            first = self._sleepers[0]
        except IndexError:
            return  # its time was over
        first.times -= 1
        if first.times <= 0 and self._remove(first):
            first.wake()
