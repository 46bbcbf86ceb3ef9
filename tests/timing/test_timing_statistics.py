"""What `fsync-time` says of noisy samples: is it right, and how often?

Synthetic systems, seeded: what is judged is a matter of arithmetic, not of the
machine that the tests run on.
"""

import functools
import math
import random
import unittest
from unittest import mock

from fsyncstorage.timing.results import estimates

ROUNDS = 7
NOISE = 0.10
RUNS = 1000


class StatisticsTests(unittest.TestCase):

    level = 2

    def test_percentile_is_one_of_the_values(self):
        values = list(range(100, 0, -1))
        for percent, expected in [
                (0, 1), (1, 1), (50, 50), (99, 99), (99.5, 100), (100, 100)]:
            self.assertEqual(
                estimates.percentile(values, percent), expected, percent)
        self.assertEqual(estimates.percentile([7], 50), 7)

    def test_spread(self):
        self.assertEqual(
            estimates.spread([3, 1, 100]),
            {'median': 3, 'min': 1, 'max': 100})

    def test_ratio_of_medians_and_of_rounds(self):
        self.assertEqual(
            estimates.ratio({1: 20, 2: 30, 3: 90}, {1: 10, 2: 20, 3: 15}),
            {'of_medians': 2, 'min': 1.5, 'max': 6, 'interval': mock.ANY})

    def test_ratio_of_an_interrupted_run(self):
        # The baseline was not measured in round 2 yet.
        self.assertEqual(
            estimates.ratio({1: 20, 2: 30}, {1: 10}),
            {'of_medians': 2.5, 'min': 2, 'max': 2, 'interval': None})
        self.assertIsNone(estimates.ratio({1: 20}, {}))
        self.assertIsNone(estimates.ratio({}, {1: 20}))

    def test_quantiles_are_those_of_the_books(self):
        # The 98th percentile; in any table of Student's t.
        for freedom, expected in [
                (1, 15.895), (2, 4.849), (6, 2.612), (10, 2.359), (11, 2.328),
                (12, 2.303), (20, 2.197), (30, 2.147), (100, 2.081)]:
            self.assertAlmostEqual(
                estimates._quantile(freedom), expected, 3)

    def test_interval(self):
        ratio = estimates.ratio(
            {1: 2, 2: 2 * math.e}, {1: 1, 2: math.e ** 2})
        # Of the logarithms the mean is 0.193, the standard error 0.5.
        reach = estimates._quantile(1) / 2
        for found, sign in zip(ratio['interval'], (-1, 1)):
            self.assertAlmostEqual(
                math.log(found), math.log(2) - 0.5 + sign * reach, 6)

    def test_a_single_round_carries_nothing(self):
        self.assertFalse(
            estimates.carried(estimates.ratio({1: 1000}, {1: 1})))

    def test_neither_does_a_figure_that_is_zero(self):
        self.assertFalse(estimates.carried(
            estimates.ratio({1: 0, 2: 0}, {1: 1, 2: 1})))

    def test_the_medians_must_say_the_same(self):
        for interval, of_medians, expected in [
                ([1.1, 1.3], 1.2, True), ([1.1, 1.3], 0.9, False),
                ([0.7, 0.9], 0.8, True), ([0.7, 0.9], 1.1, False),
                ([0.9, 1.1], 1.05, False)]:
            self.assertEqual(
                estimates.carried(
                    {'of_medians': of_medians, 'interval': interval}),
                expected)


class NamedDifferenceTests(unittest.TestCase):
    """A real difference is named, and noise is not called one."""

    level = 2

    def setUp(self):
        # It is called again and again for the same, which takes long.
        patch = mock.patch.object(
            estimates, '_quantile', functools.cache(estimates._quantile))
        patch.start()
        self.addCleanup(patch.stop)

    def named(self, ratio, own, common=0.0):
        """The share of runs in which a difference of `ratio` is named.

        The noise of `own` is that of each sample, the noise of `common` hits
        all samples of a round.
        """
        chance = random.Random(20261120)

        def rounds(true, drifts):
            return {
                number: true * math.exp(drift + chance.gauss(0, own))
                for number, drift in enumerate(drifts)}

        named = 0
        for _ in range(RUNS):
            drifts = [chance.gauss(0, common) for _ in range(ROUNDS)]
            named += estimates.carried(estimates.ratio(
                rounds(1000 * ratio, drifts), rounds(1000, drifts)))
        return named / RUNS

    def test_when_rounds_differ_more_than_the_samples_of_one(self):
        noise = {'own': 0.04, 'common': math.sqrt(NOISE ** 2 - 0.04 ** 2)}
        self.assertGreaterEqual(self.named(1.1, **noise), 0.8)
        self.assertGreaterEqual(self.named(0.9, **noise), 0.8)
        self.assertLessEqual(self.named(1, **noise), 0.05)

    def test_when_each_sample_differs_by_itself(self):
        self.assertLessEqual(self.named(1, own=NOISE), 0.05)
        # No test can do much better, see docs/timing.rst.
        self.assertLess(self.named(1.1, own=NOISE), 0.45)
