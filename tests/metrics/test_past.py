"""The last ten minutes: bounded, and true."""

import types
import unittest

from fsyncstorage.histogram import Histogram
from fsyncstorage.metrics import past
from fsyncstorage.metrics import reading
from fsyncstorage.metrics.past import Past


class Reading(types.SimpleNamespace):
    """What a storage says that has counted so much."""

    def __init__(self, commits=0, loads={}, waiting={}, histograms={}, **more):
        super().__init__(
            counts={'commits': commits, **more}, loads=loads, waiting=waiting,
            conflicts=None, histograms=histograms)

    at = reading.Reading.at


class PastTestCase(unittest.TestCase):

    def setUp(self):
        self.past = Past()

    def column(self, name, now=0.0):
        return self.past.columns(now)[name]


class Rates(PastTestCase):

    def test_what_is_counted_is_shown_per_second(self):
        for now, commits in (100, 7), (105, 17), (107, 17), (117, 18):
            self.past.add(Reading(commits), now)
        self.assertEqual(self.column('commits'), [2.0, 0.0, 0.1])
        self.assertEqual(self.column('ago', 120), [15, 13, 3])

    def test_what_is_so_at_a_moment(self):
        for clients, vote in (1, 0), (2, 3):
            self.past.add(Reading(connections=clients,
                                  waiting={'vote': vote}), clients)
        self.assertEqual(self.column('clients'), [2])
        self.assertEqual(self.column('waiting_for_objects'), [3])
        self.assertEqual(self.column('waiting_for_sync'), [None])

    def test_a_figure_that_comes_goes_or_begins_anew_is_not_known(self):
        for now, loads in enumerate((None, 5, 7, 3, None)):
            self.past.add(Reading(loads={} if loads is None else {
                'memory': loads, 'disk': 0}), now)
        self.assertEqual(
            self.column('loads_from_memory'), [None, 2.0, None, None])

    def test_a_clock_that_stands_still(self):
        for _ in range(2):
            self.past.add(Reading(), 5)
        self.assertEqual(self.column('ago'), [])


class Durations(PastTestCase):

    def add(self, now, *histograms):
        self.past.add(Reading(histograms={'sync_latency': histograms}), now)

    def test_only_those_since_the_sample_before(self):
        histogram = Histogram()
        for now, durations in (0, [9.0]), (5, [0.010] * 99 + [0.5]), (10, []):
            for each in durations:
                histogram.add(each)
            self.add(now, histogram)
        half, none = self.column('sync_p50')
        self.assertAlmostEqual(half, 0.010, delta=0.002)
        self.assertAlmostEqual(self.column('sync_p99')[0], 0.010, delta=0.002)
        self.assertIsNone(none)

    def test_those_of_threads_and_of_clients_together(self):
        of_threads, of_clients = Histogram(), Histogram()
        self.add(0, of_threads, of_clients)
        of_threads.add(0.001)
        of_clients.add(1.0)
        self.add(5, of_threads, of_clients)
        self.assertLess(self.column('sync_p50')[0], 0.01)
        self.assertGreater(self.column('sync_p99')[0], 0.5)

    def test_longer_than_any_bound_is_a_number(self):
        histogram = Histogram()
        self.add(0, histogram)
        histogram.add(1000.0)
        self.add(5, histogram)
        self.assertEqual(self.column('sync_p99'), [100.0])

    def test_one_of_several_that_goes(self):
        """As that of a server; nothing is told of what is below zero."""
        short, long = Histogram(), Histogram()
        short.add(0.001)
        long.add(1.0)
        self.add(0, short, long)
        for _ in range(5):
            long.add(1.0)
        short.add(0.001)
        self.add(5, long)
        self.add(10, short)
        self.assertEqual(self.column('sync_p50'), [None, None])


class Bounds(PastTestCase):

    def test_ten_minutes_fit(self):
        for number in range(2 * past.MOST):
            self.past.add(Reading(), number * past.EVERY)
        ago = self.column('ago', (2 * past.MOST - 1) * past.EVERY)
        self.assertEqual((ago[0], ago[-1]), (past.SPAN - past.EVERY, 0))

    def test_nothing_that_is_older(self):
        """As of a process that was stopped for a while."""
        for now in 0, 5, 10, 5 + past.SPAN, 11 + past.SPAN:
            self.past.add(Reading(), now)
        now = 11 + past.SPAN
        self.assertEqual(self.column('ago', now), [6, 0])
        self.assertEqual(
            {len(column) for column in self.past.columns(now).values()}, {2})
