"""Medians, percentiles and ratios of a few samples.

Plain numbers in, plain numbers out.  A ratio of two contestants comes twice:
of their medians, which is the answer, and round by round, which shows how far
the answer can be trusted: a drift of the machine hits both sides of a round.
"""

from math import ceil
from statistics import median

__all__ = ['median', 'percentile', 'ratio', 'spread']


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
    }
