"""The same histories as FileStorage has, to the byte: see
tests/storage/histories.
"""

import unittest

from .histories.compare import Difference
from .histories.compare import compare
from .histories.compare import pair


class Histories(unittest.TestCase):

    level = 2

    def check(self, seeds):
        with pair() as players:
            for seed in seeds:
                with self.subTest(seed):
                    self.assertGreater(compare(seed, *players), 100)

    def test_some(self):
        self.check(range(30))

    def test_a_difference_is_found(self):
        class Player:

            def __init__(self, *transcript):
                self.begin = lambda seed: None
                self.transcript = lambda: list(transcript)

        for ours, others, shown in (
            (('a', 'c'), ('a', 'b'), 'history 7.*-b.*[+]c'),
            (('a',), ('a', 'b'), '-b.*[+]None'),
            (('a', 'b'), ('a',), '-None.*[+]b'),
        ):
            with self.assertRaisesRegex(Difference, f'(?s){shown}'):
                compare(7, Player(*ours), Player(*others))

    def test_a_history_that_comes_to_no_end(self):
        class Player:

            def begin(self, seed):
                pass

            def transcript(self):
                return None

        with self.assertRaisesRegex(Difference, 'no end'):
            compare(7, Player(), Player())


class ManyHistories(unittest.TestCase):

    level = 3
    check = Histories.check

    def test_many(self):
        self.check(range(30, 1000))
