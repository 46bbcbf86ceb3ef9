"""Percentiles and ratios of a few samples.

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
from statistics import fmean
from statistics import median
from statistics import stdev
from typing import Any

#: The share of intervals that hold the true ratio.  At most one of twenty
#: equal pairs may be called different; this leaves a margin.
CONFIDENCE = 0.96

#: Student's t for this, by degrees of freedom: the 98th percentile, as in any
#: table.  For a number between two of them, that of the smaller one is taken,
#: which makes the interval wider.
_STUDENT = {
    1: 15.895, 2: 4.849, 3: 3.482, 4: 2.999, 5: 2.757, 6: 2.612, 7: 2.517,
    8: 2.449, 9: 2.398, 10: 2.359, 12: 2.303, 15: 2.249, 20: 2.197, 30: 2.147,
    100: 2.081}


def percentile(values: Iterable[float], percent: float) -> float:
    """The smallest value that this percentage of values does not exceed."""
    ordered = sorted(values)
    return ordered[max(ceil(len(ordered) * percent / 100), 1) - 1]


def spread(values: Collection[float]) -> dict[str, float]:
    return {'median': median(values), 'min': min(values), 'max': max(values)}


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
    errors = _STUDENT[max(
        freedom for freedom in _STUDENT if freedom < len(ratios))]
    reach = errors * stdev(logs) / sqrt(len(logs))
    return [exp(fmean(logs) - reach), exp(fmean(logs) + reach)]
