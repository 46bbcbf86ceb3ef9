"""Counting what takes time, in fixed memory."""

import bisect
import itertools


class Histogram:
    """Durations in buckets that grow by a quarter: percentiles within 12 %.

    From a microsecond to about two minutes; longer ones are counted in the
    last bucket.
    """

    BOUNDS = [1e-6 * 1.25 ** n for n in range(84)]

    def __init__(self) -> None:
        self._buckets = [0] * (len(self.BOUNDS) + 1)
        self.count = 0
        self.total = 0.0
        self.max = 0.0

    def add(self, seconds: float) -> None:
        self._buckets[bisect.bisect_left(self.BOUNDS, seconds)] += 1
        self.count += 1
        self.total += seconds
        if seconds > self.max:
            self.max = seconds

    def percentile(self, share: float) -> float:
        """The duration that this share (0 to 1) of all does not exceed."""
        if not self.count:
            return 0.0
        seen = list(itertools.accumulate(self._buckets))
        bucket = bisect.bisect_left(seen, max(share * self.count, 1))
        if bucket == len(self.BOUNDS):
            return self.max
        middle: float = self.BOUNDS[bucket] / 1.25 ** 0.5
        return min(middle, self.max)

    def summary(self) -> dict[str, float]:
        return {
            'count': self.count,
            'mean': self.total / self.count if self.count else 0.0,
            'p50': self.percentile(0.50),
            'p95': self.percentile(0.95),
            'p99': self.percentile(0.99),
            'max': self.max,
        }
