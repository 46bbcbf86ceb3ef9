"""Counting what takes time: nothing is lost, and a percentile is near."""

import threading
import unittest

from fsyncstorage.histogram import Histogram


class Counting(unittest.TestCase):

    def setUp(self):
        self.histogram = Histogram()

    def add(self, *durations):
        for duration in durations:
            self.histogram.add(duration)

    def test_empty(self):
        counts, total = self.histogram.at_most()
        self.assertEqual((set(counts), total), ({0}, 0.0))
        self.assertEqual(set(self.histogram.summary().values()), {0.0})

    def test_a_duration_belongs_to_its_own_bound(self):
        self.add(0.001, 0.0010001, 0.002, 99, 1000)
        counts, total = self.histogram.at_most()
        at_most = dict(zip(Histogram.ROUND_BOUNDS, counts))
        self.assertEqual(
            [at_most[bound] for bound in (5e-4, 1e-3, 2e-3, 50.0, 100.0)],
            [0, 1, 3, 3, 4])
        self.assertEqual(counts[-1], 5)
        self.assertAlmostEqual(total, 0.001 + 0.0010001 + 0.002 + 99 + 1000)

    def test_round_bounds_are_bounds(self):
        self.assertLess(set(Histogram.ROUND_BOUNDS), set(Histogram.BOUNDS))
        self.assertEqual(Histogram.BOUNDS, sorted(set(Histogram.BOUNDS)))

    def test_percentiles(self):
        self.add(*(number / 1000 for number in range(1, 1001)))
        summary = self.histogram.summary()
        self.assertEqual(summary['count'], 1000)
        self.assertEqual(summary['max'], 1.0)
        self.assertAlmostEqual(summary['mean'], 0.5005)
        for share in 0.5, 0.95, 0.99:
            self.assertAlmostEqual(
                self.histogram.percentile(share) / share, 1, delta=0.13)

    def test_the_longest_are_told_by_the_longest(self):
        self.add(1000)
        self.assertEqual(self.histogram.percentile(0.5), 1000)

    def test_what_comes_while_others_are_put_into_buckets(self):
        class Busy(list):
            def copy(self):
                copied = list(self)
                self.append(0.5)  # by another thread
                return copied

        self.histogram._recent = Busy([0.5])
        self.histogram._put_into_buckets()
        self.histogram._recent = list(self.histogram._recent)
        self.assertEqual(self.histogram.summary()['count'], 2)

    def test_threads_lose_nothing(self):
        threads = [threading.Thread(target=self.add, args=(0.5,) * 3333)
                   for _ in range(6)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            self.histogram.at_most()
        for thread in threads:
            thread.join()
        counts, total = self.histogram.at_most()
        self.assertEqual((counts[-1], total), (6 * 3333, 3 * 3333))
