"""Positions in the order of the file, in little memory."""

import random
import unittest
from unittest import mock

from fsyncstorage.check import verify


class OrderTests(unittest.TestCase):

    def test_of_all(self):
        other = random.Random(4)
        for size in 1, 100, 1 << 40:
            positions = [other.randrange(size) for _ in range(1000)]
            for length in 1, 64, 1 << 24:
                with mock.patch.object(verify, 'SLICE', max(
                        length, size >> 16)):
                    self.assertEqual(
                        list(verify.in_file_order(positions)),
                        sorted(positions))
        self.assertEqual(list(verify.in_file_order([])), [])
