"""The entrance: who is in, by weight, in the order of coming."""

import unittest

from hypothesis import strategies

from fsyncstorage.server.entrance import Entrance

from ..generated import given


class EntranceTests(unittest.TestCase):

    def test_as_many_as_there_is_room_for(self):
        entrance = Entrance(10)
        self.assertTrue(entrance.ask('a', 5))
        self.assertTrue(entrance.ask('b', 5))
        self.assertFalse(entrance.ask('c', 5))
        self.assertFalse(entrance.ask('d', 5))
        self.assertEqual(entrance.leave('a'), ['c'])
        self.assertEqual(entrance.leave('b'), ['d'])

    def test_a_heavy_one_is_not_passed(self):
        entrance = Entrance(10)
        entrance.ask('a', 5)
        self.assertFalse(entrance.ask('heavy', 10))
        self.assertFalse(entrance.ask('light', 1))
        self.assertEqual(entrance.leave('a'), ['heavy'])
        self.assertEqual(entrance.leave('heavy'), ['light'])

    def test_one_that_is_too_heavy_is_alone(self):
        entrance = Entrance(10)
        self.assertTrue(entrance.ask('giant', 1000))
        self.assertFalse(entrance.ask('light', 1))
        self.assertEqual(entrance.leave('giant'), ['light'])

    def test_without_room_one_at_a_time(self):
        entrance = Entrance(0)
        self.assertTrue(entrance.ask('a', 1))
        self.assertFalse(entrance.ask('b', 1))
        self.assertFalse(entrance.ask('c', 1))
        self.assertEqual(entrance.leave('b'), [])
        self.assertEqual(entrance.leave('a'), ['c'])

    def test_one_that_leaves_the_line_lets_others_in(self):
        entrance = Entrance(10)
        entrance.ask('a', 5)
        entrance.ask('heavy', 10)
        entrance.ask('light', 1)
        self.assertEqual(entrance.leave('heavy'), ['light'])

    def test_peers_take_turns(self):
        entrance = Entrance(1)
        entrance.ask('inside', 1)
        for guest, peer in ('a1', 'a'), ('a2', 'a'), ('a3', 'a'), ('b1', 'b'):
            self.assertFalse(entrance.ask(guest, 1, peer))
        order = ['inside']
        for _ in range(4):
            order += entrance.leave(order[-1])
        self.assertEqual(order, ['inside', 'a1', 'b1', 'a2', 'a3'])

    def test_to_leave_twice_is_harmless(self):
        entrance = Entrance(10)
        entrance.ask('a', 8)
        entrance.leave('a')
        self.assertEqual(entrance.leave('a'), [])
        self.assertTrue(entrance.ask('b', 10))

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
