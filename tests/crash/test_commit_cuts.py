"""Connections of clients that commit are cut, at every byte of the exchange.

What each client is told of a commit is the truth: what is committed is there,
what is refused is not, then or later, and no loop of attempts has committed
twice.
"""

import unittest

from ..often import LEVEL
from ..often import often
from .cuts import trial


class Cuts(unittest.TestCase):

    level = 2
    cuts = often(60, 10_000)

    def test_no_problem(self):
        trials = trial.Trials().run(self.cuts)
        print(trials)
        self.assertEqual(trials.problems, [])
        self.check_that_all_was_met(trials)

    def check_that_all_was_met(self, trials):
        """Each kind of message was cut, in each way; each answer was given."""
        kinds = {kind for kind, _, _ in trials.made}
        self.assertEqual(kinds, trials.kinds)
        hows = {how for _, _, how in trials.made}
        self.assertEqual(hows, {*trial.HOWS, *trial.STRUCK})
        places = {(kind, place) for kind, place, _ in trials.made}
        rare = ['done', 'question', 'outcome'] if LEVEL == 3 else []
        for kind in 'trip', 'finish', *rare:
            for place in 'before', 'inside', 'behind':
                self.assertIn((kind, place), places)
        rare = ['not known'] if LEVEL == 3 else []
        for answer in 'committed', 'not committed', *rare:
            self.assertGreater(trials.answers[answer], 0, answer)
        for word in 'committed', 'refused', 'unknown':
            self.assertGreater(trials.outcomes[word], 0, word)
