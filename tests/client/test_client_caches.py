"""The caches of our clients are never corrupted, nor those of stock clients
beside them.

The same as test_server_caches.py: what is read together belongs together.
"""

import unittest

from ..server.test_server_caches import CachesTestCase


class Caches(CachesTestCase):

    kinds = 'ours',

    def test_no_violation(self):
        self.check_no_violation(2_000, 50)


class Weak(CachesTestCase):

    kinds = 'weak',

    def test_without_the_rule_there_are_violations(self):
        self.check_violation()


class Mixed(CachesTestCase):
    """A site that moves over, one client after the other."""

    kinds = 'stock', 'ours'

    def test_no_violation(self):
        self.check_no_violation(2_000, 50)


class Long(Caches):

    level = 2

    def test_no_violation(self):
        self.check_no_violation(100_000, 500)


class LongMixed(Long):

    kinds = Mixed.kinds


def test_suite():
    return unittest.TestSuite(map(
        unittest.defaultTestLoader.loadTestsFromTestCase,
        (Caches, Weak, Mixed, Long, LongMixed)))
