"""The append lock, and many threads that come to it again at once.

Under a policy without promises, a thread that has appended is back with its
next commit a few microseconds later.  If another thread waits for the lock,
the system gives it to that one, which does not run yet: it needs the
interpreter's lock, too, and the first thread has it, until it comes to the
append lock and has to wait itself.  So each commit changes the thread, which
costs as much again as the commit.

Here a thread steps back when it finds one at the lock that has come back at
once.  It sleeps until the lock was free once, and looks: if the thread that
has left is back again, it sleeps until the lock was free many times.
Meanwhile the other one appends again and again.  After three sleeps, each with
a limit, it goes on to the lock: nobody is passed for ever.

Most programs have other things to do between their commits.  Then the one at
the lock has not come back at once, and nobody gains from a sleep.

No promise depends on this.  A wake-up that is lost costs `LONGEST`.
"""

import collections
import threading
from collections.abc import Hashable

# It sleeps until the lock was free that many times.
TIMES = 1, 64, 64
# And at most that long, the first time: it is in the queue behind others.
LONGEST = 0.1
# Later, it looks after each such time whether so many others have left, and at
# most so many times.
LOOK_AFTER = 0.5e-3
LEAST = 5
MOST_LOOKS = 13


class Sleeper:

    #: The thread that has left when it was woken; None: its time was over.
    woken_by: int | None = None

    def __init__(self, times: int) -> None:
        #: It is to be woken when the lock was free this many times more.
        self.times = times
        self._asleep = threading.Lock()
        self._asleep.acquire()

    def sleep(self, seconds: float) -> bool:
        """Was it woken?"""
        return self._asleep.acquire(timeout=seconds)

    def wake(self, thread: int) -> None:
        self.woken_by = thread
        self._asleep.release()


class Contention:

    def __init__(self) -> None:
        #: Those that have the lock, or are about to take it, and their
        #: threads.
        self.inside: dict[Hashable, int] = {}
        #: The first is counted for.
        self._sleepers: collections.deque[Sleeper] = collections.deque()
        #: The thread that left last; and the last one that came back when no
        #: other had left since, or that has slept as often as it may: it is
        #: likely to come again.
        self._last: int | None = None
        self._returner: int | None = None
        #: How often one has left while others slept.
        self._left = 0

    def come(self, owner: Hashable, may_sleep: bool = True) -> None:
        """Call it before taking the lock.  An event loop must not sleep."""
        thread = threading.get_ident()
        slept = (self.inside and may_sleep
                 and self._is_inside(self._returner) and self._step_back())
        if slept or thread == self._last:
            self._returner = thread
        elif thread == self._returner:
            self._returner = None
        self.inside[owner] = thread

    def leave(self, owner: Hashable) -> None:
        """Call it when the lock is free again; or at any other time."""
        thread = self.inside.pop(owner, None)
        if thread is not None:
            self._last = thread
            if self._sleepers:
                self._count_one(thread)

    def _is_inside(self, thread: int | None) -> bool:
        return thread in self.inside.copy().values()

    def _step_back(self) -> bool:
        """Did it sleep as often as it may?"""
        for times in TIMES:
            sleeper = Sleeper(times)
            if times == 1:
                self._sleepers.append(sleeper)
                self._sleep(sleeper, LONGEST, 1)
            else:
                self._sleepers.appendleft(sleeper)
                self._sleep(sleeper, LOOK_AFTER, MOST_LOOKS)
            if not self._may_gain(sleeper):
                return False
        return True

    def _may_gain(self, sleeper: Sleeper) -> bool:
        """Might it gain from one more sleep?"""
        if sleeper.woken_by is None:
            return bool(self.inside)
        return self._is_inside(sleeper.woken_by)

    def _sleep(self, sleeper: Sleeper, seconds: float, looks: int) -> None:
        try:
            if self.inside:  # else there might be nobody to wake it
                for _ in range(looks):
                    left = self._left
                    if sleeper.sleep(seconds) or self._left < left + LEAST:
                        break
        finally:
            self._remove(sleeper)

    def _remove(self, sleeper: Sleeper) -> bool:
        """False: it is not there any more."""
        try:
            self._sleepers.remove(sleeper)
        except ValueError:
            return False
        return True

    def _count_one(self, thread: int) -> None:
        """That thread has left."""
        self._left += 1
        try:
            first = self._sleepers[0]
        except IndexError:
            return  # its time was over
        first.times -= 1
        if first.times <= 0 and self._remove(first):
            first.wake(thread)
