"""The caches of our clients are never corrupted, nor those of stock clients
beside them.

The same as test_server_caches.py: what is read together belongs together.
Our clients commit in one trip, but for those of `two trips`.
"""

import unittest

from ..server.test_server_caches import STAY
from ..server.test_server_caches import TRANSACTIONS
from ..server.test_server_caches import CachesTestCase
from .trips import Trips


class Mixed(CachesTestCase):
    """A site that moves over, one client after the other."""

    level = 2
    kinds = 'stock', 'ours', 'two trips', 'ours'

    def setUp(self):
        super().setUp()
        self.trips = Trips(self)

    def test_no_violation(self):
        self.check_no_violation(TRANSACTIONS, STAY)
        self.check_trips()

    def check_trips(self):
        """Each kind of client has committed as it should."""
        self.assertEqual(self.trips.one > 0, 'ours' in self.kinds)
        self.assertEqual(self.trips.two > 0, 'two trips' in self.kinds)


class LongMixed(Mixed):

    level = 3

    def test_no_violation(self):
        self.check_no_violation(100_000, 500)
        self.check_trips()


class LongOurs(LongMixed):

    kinds = 'ours',


class LongTwoTrips(LongMixed):

    kinds = 'two trips',


def test_suite():
    return unittest.TestSuite(map(
        unittest.defaultTestLoader.loadTestsFromTestCase,
        (Mixed, LongMixed, LongOurs, LongTwoTrips)))
