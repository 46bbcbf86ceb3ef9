"""The entrance: who is in, by weight, in the order of coming."""

import unittest

from hypothesis import strategies

from fsyncstorage.server.entrance import Entrance

from ..generated import given
from ..generated import settings
from ..often import often


class EntranceTests(unittest.TestCase):

    @settings(max_examples=often(40, 400))
    @given(strategies.lists(strategies.one_of(
        strategies.integers(1, 15),          # one of that weight comes
        strategies.integers(-20, -1))))      # one of those that came leaves
    def test_any_order(self, steps):
        entrance, weights, inside, came = Entrance(10), {}, [], []
        for step in steps:
            if step > 0:
                guest = len(weights)
                weights[guest] = step
                came.append(guest)
                if entrance.ask(guest, step):
                    inside.append(guest)
            elif came:
                guest = came.pop(step % len(came))
                admitted = entrance.leave(guest)
                if guest in inside:
                    inside.remove(guest)
                inside += admitted
            self.assertEqual(inside, sorted(inside))
            self.assertEqual(inside, sorted(came)[:len(inside)])
            if len(inside) > 1:
                self.assertLessEqual(
                    sum(map(weights.__getitem__, inside)), 10)
            outside = sorted(came)[len(inside):]
            if outside:  # there is no room for the next one
                self.assertTrue(inside)
                self.assertGreater(weights[outside[0]] + sum(
                    map(weights.__getitem__, inside)), 10)
