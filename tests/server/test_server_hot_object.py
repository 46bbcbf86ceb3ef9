"""No vote is passed by more than some later ones on its objects.

An hour of it: ``python -m tests.server.hotobject 3600``.
"""

import unittest
from unittest import mock

from fsyncstorage.commit import locks
from fsyncstorage.commit.locks import MOST_PASSED

from ..support import PATIENCE
from ..support import TestCase
from ..support import oid
from . import hotobject


class HotObject(TestCase):

    def check(self, clients, votes):
        """Let so many clients vote so often."""
        watch = hotobject.Watch(votes)
        outcome = hotobject.run(clients, watch, PATIENCE)
        self.assertEqual(list(outcome.problems()), [])
        self.assertTrue(watch.enough.is_set())


class Short(HotObject):

    level = 2

    def test_some_clients(self):
        self.check(3, 100)


class Long(HotObject):

    level = 3

    def test_many_clients(self):
        self.check(16, 5_000)


class Watches(unittest.TestCase):
    """The watch sees what passes, whatever `Locks` thinks of it."""

    level = 2

    def passed(self, times):
        """One waits for two objects, and later ones want one of them."""
        watch = hotobject.Watch()
        watch.ask('holder', [oid(1)])
        watch.ask('waits', [oid(1), oid(2)])
        for number in range(times):
            watch.ask(number, [oid(2)])
            watch.let_go(number)
        watch.let_go('holder')
        self.assertTrue(watch.holds('waits'))
        return watch.most

    def test_as_many_as_may(self):
        self.assertEqual(self.passed(MOST_PASSED), MOST_PASSED)
        self.assertEqual(self.passed(MOST_PASSED + 3), MOST_PASSED)

    def test_more_than_may(self):
        with mock.patch.object(locks, 'MOST_PASSED', 100):
            self.assertEqual(self.passed(20), 20)
