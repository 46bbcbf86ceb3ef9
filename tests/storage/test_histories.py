"""The same histories as FileStorage has, to the byte: see
tests/storage/histories.
"""

import unittest

from ..often import often
from .histories.compare import Difference
from .histories.compare import compare
from .histories.compare import pair


class Histories(unittest.TestCase):

    level = 2

    def test_each(self):
        with pair() as players:
            for seed in range(often(4, 1000)):
                with self.subTest(seed):
                    self.assertGreater(compare(seed, *players), 100)

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
