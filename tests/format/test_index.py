"""The index of an open file is an fsIndex."""

import random
import unittest

from ZODB.fsIndex import fsIndex

from fsyncstorage.format.index import Positions

from ..support import oid


class PositionsTests(unittest.TestCase):

    def test_it_says_what_an_fsindex_says(self):
        choose = random.Random(4)
        expected, index = fsIndex(), Positions(fsIndex())
        for _ in range(5000):
            # In some buckets, and at the ends of these.
            key = oid(choose.choice((0, 1, 1 << 16, (1 << 16) - 1, 1 << 40))
                      + choose.randrange(100))
            expected[key] = index[key] = choose.choice(
                (4, 1 << 32, (1 << 48) - 1, choose.randrange(1 << 48)))
            other = oid(choose.randrange(1 << 17))
            for each in key, other:
                self.assertEqual(index.get(each), expected.get(each))
                self.assertEqual(index.get(each, 0), expected.get(each, 0))
                self.assertEqual(each in index, each in expected)
        self.assertEqual(list(index.items()), list(expected.items()))
        self.assertEqual(len(index), len(expected))
        del index[key]
        self.assertIsNone(index.get(key))

    def test_it_takes_over_what_another_one_knows(self):
        found = fsIndex({oid(1): 4, oid(1 << 20): 99})
        index = Positions(found)
        self.assertEqual(list(index.items()), list(found.items()))
        self.assertEqual(index.get(oid(1 << 20)), 99)
