"""Medians, percentiles and ratios of a few samples.

Plain numbers in, plain numbers out.  A ratio of two contestants is that of
their medians.  How far it can be trusted is told by their rounds: a drift of
the machine hits both sides of a round, so the ratio of each round is taken,
and Student's t makes an interval of the logarithms.  A ratio whose interval
includes 1 is not carried: the noise alone may have made it.
"""

from math import atan
from math import ceil
from math import cos
from math import exp
from math import log
from math import pi
from math import sin
from math import sqrt
from statistics import fmean
from statistics import median
from statistics import stdev

__all__ = ['carried', 'median', 'percentile', 'ratio', 'spread']

#: How often an interval holds.  At most one of twenty differences that are
#: none may be named; this leaves a margin.
CONFIDENCE = 0.96


def percentile(values, percent):
    """The smallest value that so many percent of the values do not exceed."""
    ordered = sorted(values)
    rank = ceil(len(ordered) * percent / 100)
    return ordered[max(rank, 1) - 1]


def spread(values):
    return {
        'median': median(values),
        'min': min(values),
        'max': max(values),
    }


def ratio(values, baseline):
    """How many times the baseline; both map a round to its value.

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


def carried(ratio):
    """Is a difference more than noise, as far as the rounds can tell?"""
    if ratio['interval'] is None:
        return False
    low, high = ratio['interval']
    # The medians must say the same.
    return 1 < low and 1 < ratio['of_medians'] or (
        high < 1 and ratio['of_medians'] < 1)


def _interval(ratios):
    """Where the true ratio is; None when the rounds are too few to tell."""
    if len(ratios) < 2 or min(ratios) <= 0:
        return None
    logs = [log(one) for one in ratios]
    reach = _quantile(len(logs) - 1) * stdev(logs) / sqrt(len(logs))
    return [exp(fmean(logs) - reach), exp(fmean(logs) + reach)]


def _quantile(freedom):
    """How many standard errors the interval reaches to each side."""
    low, high = 0.0, 100.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        if _within(middle, freedom) < CONFIDENCE:
            low = middle
        else:
            high = middle
    return high


def _within(t, freedom):
    """The probability that Student's t is at most so far from 0.

    For whole degrees of freedom it is a finite sum: Abramowitz and Stegun,
    26.7.3 and 26.7.4.
    """
    angle = atan(t / sqrt(freedom))
    odd = freedom % 2
    term, total = (cos(angle) if odd else 1.0), 0.0
    for number in range(1 + odd, freedom, 2):
        total += term
        term *= cos(angle) ** 2 * number / (number + 1)
    total *= sin(angle)
    return (angle + total) * 2 / pi if odd else total
