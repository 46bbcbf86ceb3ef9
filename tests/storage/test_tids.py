"""Tids are those that ZODB gives."""

import random
import time
import unittest
from unittest import mock

from ZODB.utils import newTid
from ZODB.utils import z64

from fsyncstorage.storage.tids import Tids

STEPS = 0, 1e-7, 1e-6, 0.001, 0.5, 7.3, 59.999, 60, 61, -3, 31 * 86400


class TidsTests(unittest.TestCase):

    def test_they_are_those_of_zodb(self):
        """Whatever the clock does, to the last bit."""
        choose = random.Random(3)
        tids, last, now = Tids(), z64, 1e9
        with mock.patch.object(time, 'time', lambda: now):
            for _ in range(20_000):
                now += choose.choice(STEPS)
                tid = tids.next(last)
                self.assertEqual(tid, newTid(last))
                last = choose.choice((tid, tid, z64))

    def test_they_rise_while_the_clock_stands_still(self):
        tids, last = Tids(), z64
        with mock.patch.object(time, 'time', lambda: 1e9):
            for _ in range(1000):
                tid = tids.next(last)
                self.assertGreater(tid, last)
                last = tid
