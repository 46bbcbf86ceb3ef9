"""The line in which peers take turns: who is in, and in which order."""

import unittest

from hypothesis import strategies

from fsyncstorage.server.fairline import FairLine

from ..generated import given
from ..generated import settings
from ..often import often


class FairLineTests(unittest.TestCase):

    @settings(max_examples=often(40, 400))
    @given(strategies.lists(strategies.one_of(
        strategies.integers(1, 15),          # one of that weight comes
        strategies.integers(-20, -1))))      # one of those that came leaves
    def test_weights(self, steps):
        """Of one peer they go in as they came, as far as there is room."""
        line, weights, inside, came = FairLine(10), {}, [], []
        for step in steps:
            if step > 0:
                thing = len(weights)
                weights[thing] = step
                came.append(thing)
                if line.come(thing, 'peer', step):
                    inside.append(thing)
            elif came:
                thing = came.pop(step % len(came))
                admitted = line.leave(thing)
                if thing in inside:
                    inside.remove(thing)
                inside += admitted
            self.assertEqual(inside, sorted(inside))
            self.assertEqual(inside, sorted(came)[:len(inside)])
            if len(inside) > 1:
                self.assertLessEqual(
                    sum(map(weights.__getitem__, inside)), 10)
            outside = sorted(came)[len(inside):]
            for each in outside:
                self.assertIn(each, line.waiting)
            if outside:  # there is no room for the next one
                self.assertTrue(inside)
                self.assertGreater(weights[outside[0]] + sum(
                    map(weights.__getitem__, inside)), 10)

    @settings(max_examples=often(40, 400))
    @given(strategies.lists(strategies.tuples(
        strategies.sampled_from('abcz'), strategies.booleans())))
    def test_turns(self, steps):
        """Nobody is passed by a peer more than once, and nothing is lost."""
        line, waiting, passed, inside = FairLine(0), [], {}, None
        for number, (peer, comes) in enumerate(steps):
            if comes:
                thing = f'{peer}{number}'
                if line.come(thing, peer):
                    self.assertIsNone(inside)
                    inside = thing
                else:
                    waiting.append(thing)
                    passed[thing] = 0
            elif waiting:
                inside, = line.leave(inside)
                first_of_its_peer = next(
                    each for each in waiting if each[0] == inside[0])
                self.assertEqual(inside, first_of_its_peer)
                waiting.remove(inside)
                heads = {}
                for each in waiting:
                    heads.setdefault(each[0], each)
                # The next one of the same peer has only now become a head.
                heads.pop(inside[0], None)
                for each in heads.values():
                    passed[each] += 1
                    # Each other peer is served once at most before it.
                    self.assertLess(passed[each], 4)
        while waiting:
            inside, = line.leave(inside)
            waiting.remove(inside)
        self.assertEqual(line.leave(inside), [])

    def test_ahead(self):
        """In front of all peers; what leaves while it waits is passed."""
        line = FairLine(1)
        self.assertTrue(line.come('a1', 'a'))
        for thing in 'a2', 'b1', 'c1':
            self.assertFalse(line.come(thing, thing[0]))
        self.assertFalse(line.come('c2', 'c', ahead=True))
        self.assertEqual(line.leave('b1'), [])
        self.assertEqual(
            [line.leave(thing) for thing in ('a1', 'c2', 'a2', 'c1')],
            [['c2'], ['a2'], ['c1'], []])
