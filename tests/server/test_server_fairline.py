"""The line in which peers take turns."""

import unittest

from hypothesis import strategies

from fsyncstorage.server.fairline import FairLine

from ..generated import given
from ..generated import settings
from ..often import often


class FairLineTests(unittest.TestCase):

    def line(self, *things):
        """Of things like 'a1', whose peer is 'a'."""
        line = FairLine()
        for each in things:
            line.add(each, each[0])
        return line

    def rest(self, line):
        return [line.pop() for _ in range(len(line))]

    def test_the_first_one_stays(self):
        line = self.line('a1', 'b1')
        self.assertEqual(line.first(), 'a1')
        line.add('a2', 'a')
        line.add('c1', 'c')
        self.assertEqual(line.first(), 'a1')
        self.assertEqual(line.pop(), 'a1')

    @settings(max_examples=often(40, 400))
    @given(strategies.lists(strategies.tuples(
        strategies.sampled_from('abcz'), strategies.booleans())))
    def test_any_order(self, steps):
        """Nobody is passed by a peer more than once, and nothing is lost."""
        line, waiting, passed = FairLine(), [], {}
        for number, (peer, comes) in enumerate(steps):
            if comes:
                thing = f'{peer}{number}'
                waiting.append(thing)
                passed[thing] = 0
                line.add(thing, peer)
            elif waiting:
                taken = line.pop()
                first_of_its_peer = next(
                    each for each in waiting if each[0] == taken[0])
                self.assertEqual(taken, first_of_its_peer)
                waiting.remove(taken)
                heads = {}
                for each in waiting:
                    heads.setdefault(each[0], each)
                # The next one of the same peer has only now become a head.
                heads.pop(taken[0], None)
                for each in heads.values():
                    passed[each] += 1
                    # Each other peer is served once at most before it.
                    self.assertLess(passed[each], 4)
            self.assertEqual(len(line), len(waiting))
            for each in waiting:
                self.assertIn(each, line)
        self.assertEqual(set(self.rest(line)), set(waiting))
