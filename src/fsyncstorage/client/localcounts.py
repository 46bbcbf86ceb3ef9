"""How many loads were answered by the data file itself, and how fast.

Such a load takes a microsecond or two, and to time it a quarter of one.  So
each is counted, and about one in `EACH` is timed.

Any thread may count: `next` of a counter is one step.  Nobody can look at a
counter without taking a number from it; so the looks are counted, too.
"""

import itertools
import threading
import time

from ..histogram import Histogram
from .local import NOT_KNOWN

EACH = 16


class LocalCounts:

    def __init__(self):
        #: How long those took that were timed.
        self.times = Histogram()
        #: Whether the next one is to be timed.
        self.due = True
        self._answers = itertools.count(1)
        self._mutex = threading.Lock()  # of the looks; a leaf
        self._looks = 0

    def timed(self, load, *args):
        begun = time.monotonic()
        found = load(*args)
        if found is not NOT_KNOWN:
            self.due = False
            self.times.add(time.monotonic() - begun)
        return found

    def answered(self):
        """One was; return the number that it takes, as a look does."""
        number = next(self._answers)
        if not number % EACH:
            self.due = True
        return number

    @property
    def loads(self):
        """How many were answered."""
        with self._mutex:
            self._looks += 1
            return self.answered() - self._looks
