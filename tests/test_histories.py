"""The same histories as FileStorage has, to the byte: see tests/histories."""

import unittest

from .histories.compare import Difference
from .histories.compare import compare
from .histories.compare import pair


class Histories(unittest.TestCase):

    def check(self, seeds):
        with pair() as players:
            for seed in seeds:
                with self.subTest(seed):
                    self.assertGreater(compare(seed, *players), 100)

    def test_some(self):
        self.check(range(30))

    def test_many(self):
        self.check(range(30, 1000))

    test_many.level = 2

    def test_a_difference_is_found(self):
        class Player:

            def __init__(self, *transcript):
                self.play = lambda seed: list(transcript)

        with self.assertRaisesRegex(Difference, '(?s)history 7.*-b.*[+]c'):
            compare(7, Player('a', 'c'), Player('a', 'b'))
