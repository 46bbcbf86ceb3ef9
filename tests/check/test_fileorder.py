"""Positions in the order of the file, in little memory."""

import random
import tracemalloc
import unittest
from array import array
from unittest import mock

from fsyncstorage.check import fileorder


class OrderTests(unittest.TestCase):

    def test_of_all(self):
        other = random.Random(4)
        for size in 1, 100, 1 << 40:
            positions = [other.randrange(size) for _ in range(1000)]
            for length in 1, 64, 1 << 24:
                with mock.patch.object(fileorder, 'SLICE', max(
                        length, size >> 16)):
                    self.assertEqual(
                        list(fileorder.in_file_order(positions)),
                        sorted(positions))
        self.assertEqual(list(fileorder.in_file_order([])), [])

    def test_memory(self):
        count, distance = 200_000, 100
        positions = array('Q', range(0, count * distance, distance))
        tracemalloc.start()
        self.addCleanup(tracemalloc.stop)
        with mock.patch.object(fileorder, 'SLICE', 1 << 18):
            self.assertEqual(
                sum(1 for _ in fileorder.in_file_order(positions)), count)
        self.assertLess(tracemalloc.get_traced_memory()[1], 10 * count)
