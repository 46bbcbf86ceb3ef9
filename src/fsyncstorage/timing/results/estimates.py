"""Medians, percentiles and ratios of a few samples.

The ratio of two contestants is that of their medians.  The rounds show how far
it can be trusted: a drift of the machine affects both contestants of a round,
so a ratio is computed for each round, and Student's t gives an interval for
the logarithms.  A ratio whose interval includes 1 is not `carried`: it may be
due to noise alone.
"""

from collections.abc import Collection
from collections.abc import Iterable
from math import ceil
from math import exp
from math import log
from math import sqrt
from statistics import NormalDist
from statistics import fmean
from statistics import median
from statistics import stdev
from typing import Any

__all__ = ['carried', 'median', 'percentile', 'ratio', 'spread']

#: The share of intervals that hold the true ratio.  At most one of twenty
#: equal pairs may be called different; this leaves a margin.
CONFIDENCE = 0.96

#: Student's t for this, by degrees of freedom: the 98th percentile, as in any
#: table.  Most runs have few rounds.
_FEW = (15.8945, 4.8487, 3.4819, 2.9985, 2.7565, 2.6122, 2.5168, 2.4490,
        2.3984, 2.3593)


def percentile(values: Iterable[float], percent: float) -> float:
    """The smallest value that this percentage of values does not exceed."""
    ordered = sorted(values)
    rank = ceil(len(ordered) * percent / 100)
    return ordered[max(rank, 1) - 1]


def spread(values: Collection[float]) -> dict[str, float]:
    return {
        'median': median(values),
        'min': min(values),
        'max': max(values),
    }


def ratio(values: dict[int, float],
          baseline: dict[int, float]) -> dict[str, Any] | None:
    """How many times the baseline; both arguments map a round to a value.

    None when there is nothing to compare with.
    """
    if not values or not baseline or not median(baseline.values()):
        return None
    pairs = [
        values[number] / baseline[number]
        for number in values
        if baseline.get(number)
    ]
    return {
        'of_medians': median(values.values()) / median(baseline.values()),
        'min': min(pairs, default=None),
        'max': max(pairs, default=None),
        'interval': _interval(pairs),
    }


def carried(ratio: dict[str, Any]) -> bool:
    """Do the rounds show that the difference is more than noise?"""
    if ratio['interval'] is None:
        return False
    low, high = ratio['interval']
    # The ratio of the medians must be on the same side of 1.
    return 1 < low and 1 < ratio['of_medians'] or (
        high < 1 and ratio['of_medians'] < 1)


def _interval(ratios: list[float]) -> list[float] | None:
    """It holds the true ratio; None when there are too few rounds."""
    if len(ratios) < 2 or min(ratios) <= 0:
        return None
    logs = [log(one) for one in ratios]
    reach = _quantile(len(logs) - 1) * stdev(logs) / sqrt(len(logs))
    return [exp(fmean(logs) - reach), exp(fmean(logs) + reach)]


def _quantile(freedom: int) -> float:
    """How many standard errors the interval reaches to each side."""
    if freedom <= len(_FEW):
        return _FEW[freedom - 1]
    # Student's t for many degrees: Abramowitz and Stegun, 26.7.5.
    z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    return (z + (z ** 3 + z) / (4 * freedom)
            + (5 * z ** 5 + 16 * z ** 3 + 3 * z) / (96 * freedom ** 2)
            + (3 * z ** 7 + 19 * z ** 5 + 17 * z ** 3 - 15 * z)
            / (384 * freedom ** 3))
