"""The power of a server is cut under clients that live on.

Nothing is committed that mixes what was lost with what is there, and no
reference leads to an object of somebody else.
"""

import unittest
from unittest import mock

from fsyncstorage.client import doom

from ..often import often
from .harness import spanning


class Cuts(unittest.TestCase):

    level = 2
    cuts = often(4, 50)

    def test_no_problem(self):
        for policy in 'none', 'interval':
            with self.subTest(policy):
                trial = spanning.Trial(policy).run(self.cuts)
                print(f'  {policy}: {spanning.words(trial.counts)}')
                self.assertEqual(trial.problems, [])
                self.assertGreater(trial.counts['commits judged'], self.cuts)
                self.assertGreater(trial.counts['commits lost'], 0)
                self.assertGreater(trial.counts['doomed'], 0)

    def test_nobody_is_doomed_where_nothing_is_lost(self):
        """They are back soon: the server knows what they have seen."""
        with mock.patch.object(spanning, 'POLLS', (0.01,)):
            trial = spanning.Trial('group-commit').run(self.cuts)
        print(f'  group-commit: {spanning.words(trial.counts)}')
        self.assertEqual(trial.problems, [])
        self.assertGreater(trial.counts['commits judged'], self.cuts)
        self.assertEqual(trial.counts['doomed'], 0)


class ManyCuts(unittest.TestCase):

    level = 3
    seconds = 60

    def test_no_problem(self):
        for policy in 'none', 'interval':
            with self.subTest(policy):
                counts, problems = spanning.run_for(policy, self.seconds)
                print(f'  {policy}: {spanning.words(counts)}')
                self.assertEqual(problems, [])


class Harness(unittest.TestCase):
    """What a few cuts do not show, some more do."""

    level = 3

    def check_noticed(self, patch):
        with patch:
            problems = next(filter(None, (
                spanning.Trial('none', seed).run(10).problems
                for seed in range(20))), [])
        self.assertNotEqual(problems, [])

    def test_transactions_that_are_not_doomed(self):
        self.check_noticed(spanning.without_doom())

    def test_doomed_transactions_that_commit(self):
        self.check_noticed(mock.patch.object(doom, 'WRITES', ()))

    def test_loads_that_were_under_way(self):
        self.check_noticed(mock.patch.object(
            doom.Doom, 'refuses', lambda self, tid: False))
