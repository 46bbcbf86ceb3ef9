"""Counts durations, in fixed memory."""

import bisect
import itertools
import math
import threading

# Bounds within each power of ten, each about a quarter above the one before.
_GROWING = 1.0, 1.25, 1.6, 2.0, 2.5, 3.15, 4.0, 5.0, 6.3, 8.0
_ROUND = 1.0, 2.0, 5.0

# This many durations are collected before they are put into their buckets:
# many at once take less time, and appending to a list needs no lock.
_AT_ONCE = 100


class Histogram:
    """Durations in buckets that grow by a quarter: percentiles within 15 %.

    From a microsecond to 100 seconds; longer ones are counted in the last
    bucket.  Any thread may add, and read.
    """

    #: A bucket counts durations above the bound before, up to its own bound.
    BOUNDS = [float(f'{number}e{power}')
              for power in range(-6, 2) for number in _GROWING] + [100.0]
    #: Some of the bounds, for callers that want few: from 10 us on.
    ROUND_BOUNDS = [float(f'{number}e{power}')
                    for power in range(-5, 2) for number in _ROUND] + [100.0]

    def __init__(self) -> None:
        self._recent: list[float] = []
        self._mutex = threading.Lock()  # guards the rest; a leaf
        self._buckets = [0] * (len(self.BOUNDS) + 1)
        self._total = self._max = 0.0

    def add(self, seconds: float) -> None:
        self._recent.append(seconds)
        if len(self._recent) > _AT_ONCE:
            self._put_into_buckets()

    def _put_into_buckets(self) -> None:
        with self._mutex:
            recent = self._recent.copy()
            del self._recent[:len(recent)]
            for seconds in recent:
                self._buckets[bisect.bisect_left(self.BOUNDS, seconds)] += 1
            self._total += sum(recent)
            self._max = max(self._max, *recent, 0.0)

    def at_most(self) -> tuple[list[int], float]:
        """For each of ROUND_BOUNDS, how many durations are not above it; last,
        how many there are in all.  And the sum of all durations."""
        seen, total = self.seen()
        return [seen[self.BOUNDS.index(bound)]
                for bound in self.ROUND_BOUNDS] + seen[-1:], total

    def seen(self) -> tuple[list[int], float]:
        """For each bound, how many durations are not above it, and last, how
        many there are in all.  And the sum of all durations."""
        self._put_into_buckets()
        with self._mutex:
            return list(itertools.accumulate(self._buckets)), self._total

    @property
    def count(self) -> int:
        seen, _ = self.seen()
        return seen[-1]

    def percentile(self, share: float) -> float:
        """The duration that this share (0 to 1) of all durations does not
        exceed."""
        seen, _ = self.seen()
        return min(self.percentile_of(seen, share), self._max)

    @classmethod
    def percentile_of(cls, seen: list[int], share: float) -> float:
        """The same, of the counts that `seen` has returned; or of the
        difference of two such lists, for the durations that were added in
        between.  0 if there are none; infinite above the last bound."""
        if not seen[-1]:
            return 0.0
        bucket = bisect.bisect_left(seen, max(share * seen[-1], 1))
        if bucket == len(cls.BOUNDS):
            return math.inf
        middle: float = cls.BOUNDS[bucket] / 1.25 ** 0.5
        return middle

    def summary(self) -> dict[str, float]:
        seen, total = self.seen()
        return {
            'count': seen[-1],
            'mean': total / seen[-1] if seen[-1] else 0.0,
            'p50': self.percentile(0.50),
            'p95': self.percentile(0.95),
            'p99': self.percentile(0.99),
            'max': self._max,
        }
