"""How many loads were answered by the data file itself, and how fast.

Such a load takes a microsecond or two, and timing it takes a quarter of one.
So each load is counted, and about one in `EACH` is timed.

Any thread may count: `next` of a counter is one step.  A counter can be read
only by taking a number from it; so the reads are counted, too.
"""

import itertools
import threading
import time

from ..format import UNCERTAIN
from ..histogram import Histogram

EACH = 16


class LocalCounts:

    def __init__(self):
        #: How long the loads took that were timed.
        self.times = Histogram()
        #: Whether the next load is to be timed.
        self.is_due = True
        self._answers = itertools.count(1)
        self._mutex = threading.Lock()  # for `_looks`; a leaf
        self._looks = 0

    def counted(self, load, *args):
        """What the load finds; it is counted, unless that is UNCERTAIN."""
        found = self.timed(load, *args) if self.is_due else load(*args)
        if found is not UNCERTAIN:
            self.answered()
        return found

    def timed(self, load, *args):
        begun = time.monotonic()
        found = load(*args)
        if found is not UNCERTAIN:
            self.is_due = False
            self.times.add(time.monotonic() - begun)
        return found

    def answered(self):
        """A load was answered; return the number taken from the counter."""
        number = next(self._answers)
        if not number % EACH:
            self.is_due = True
        return number

    @property
    def loads(self):
        """How many loads were answered."""
        with self._mutex:
            self._looks += 1
            return self.answered() - self._looks
