"""The power of a server is cut under clients that live on.

Nothing is committed that mixes what was lost with what is there, and no
reference leads to an object of somebody else.
"""

import unittest
from unittest import mock

from ..often import often
from .harness import spanning


class Cuts(unittest.TestCase):

    level = 2
    cuts = often(3, 200)

    def test_no_problem(self):
        for policy in often(('none',), ('none', 'interval')):
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
