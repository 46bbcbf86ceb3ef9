"""So many bytes a second are read."""

import random
import unittest

from fsyncstorage.processes.rate import CATCH_UP
from fsyncstorage.processes.rate import Rate

MOST = 1000


class Clock:
    """A clock that only a wait and a slow disk move on."""

    def __init__(self):
        self.now = 5.0

    def __call__(self):
        return self.now

    def wait(self, seconds):
        self.now += seconds


class Rates(unittest.TestCase):

    def setUp(self):
        self.clock = Clock()
        self.rate = Rate(MOST, self.clock.wait, self.clock)

    def test_the_average_is_held(self):
        """Also where reading takes some of the time."""
        rng = random.Random(1)
        begin, read = self.clock.now, 0
        for _ in range(1000):
            size = rng.randrange(1, MOST)
            self.clock.now += rng.random() * size / MOST
            read += size
            self.rate.spent(size)
        self.assertAlmostEqual(self.clock.now - begin, read / MOST)

    def test_a_disk_that_is_slower(self):
        begin = self.clock.now
        for _ in range(100):
            self.clock.now += 2.0
            self.rate.spent(MOST)
        self.assertAlmostEqual(self.clock.now - begin, 200.0)

    def test_what_a_disk_that_hung_has_missed_is_not_read_at_once(self):
        self.clock.now += 3600.0
        begin, read = self.clock.now, 0
        while self.clock.now == begin:
            read += 1
            self.rate.spent(1)
        self.assertAlmostEqual(read, CATCH_UP * MOST, delta=2)
