"""The index of an open file is an fsIndex."""

import random
import unittest

from ZODB.fsIndex import fsIndex

from fsyncstorage.positions import Positions

from .support import oid


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

    def test_many_at_once(self):
        choose = random.Random(5)
        expected, index = fsIndex(), Positions(fsIndex())
        for _ in range(300):
            keys = [oid(choose.choice((0, 1 << 16, 1 << 40))
                        + choose.randrange(40)) for _ in range(9)]
            if choose.random() < 0.5:
                entries = [(key, choose.randrange(1 << 48)) for key in keys]
                index.put(entries)
                for key, position in entries:
                    expected[key] = position
            else:
                self.assertEqual(index.take_out(keys), [
                    (expected[key], key) for key in dict.fromkeys(keys)
                    if key in expected])
                for key in keys:
                    if key in expected:
                        del expected[key]
            self.assertEqual(list(index.items()), list(expected.items()))
            # Nothing is left of an object that is gone.
            self.assertEqual(
                list(index._data.keys()), list(expected._data.keys()))
            self.assertTrue(all(index._data.values()))

    def test_it_takes_over_what_another_one_knows(self):
        found = fsIndex({oid(1): 4, oid(1 << 20): 99})
        index = Positions(found)
        self.assertEqual(list(index.items()), list(found.items()))
        self.assertEqual(index.get(oid(1 << 20)), 99)
