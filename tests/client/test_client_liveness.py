"""When a server that says nothing is asked, and when it is given up."""

import socket
import unittest
from unittest import mock

from fsyncstorage.client import sockets
from fsyncstorage.client.liveness import ASKED_AFTER
from fsyncstorage.client.liveness import DEAD_AFTER
from fsyncstorage.client.liveness import Liveness
from fsyncstorage.client.liveness import Silent

from ..support import until


class FakeLoop:
    """Its time goes on when it is told to."""

    def __init__(self):
        self.now = 0
        self.timers = []  # (when, function)

    def call_later(self, seconds, function):
        timer = Timer(self)
        self.timers.append((self.now + seconds, function, timer))
        return timer

    def go_on(self, until):
        """Up to this time; at once, if the process was frozen."""
        while due := [each for each in self.timers if each[0] <= until]:
            timer = min(due, key=lambda each: each[0])
            self.timers.remove(timer)
            self.now = max(self.now, timer[0])
            timer[1]()
        self.now = until

    def wake_at(self, now):
        """The process was frozen until then."""
        self.now = now
        self.go_on(now)


class Timer:

    def __init__(self, loop):
        self._loop = loop

    def cancel(self):
        self._loop.timers = [
            each for each in self._loop.timers if each[2] is not self]


class FakeConnection:

    def __init__(self, loop):
        self._loop = loop
        self.has_heard = False
        self.asked = []
        self.given_up = []

    def is_silent(self):
        has_heard, self.has_heard = self.has_heard, False
        return not has_heard

    def ask_for_a_sign(self):
        self.asked.append(self._loop.now)

    def give_up(self, reason):
        self.given_up.append((self._loop.now, reason))


class Looks(unittest.TestCase):

    SECONDS = 100

    def setUp(self):
        self.loop = FakeLoop()
        self.connection = FakeConnection(self.loop)

    def watch(self, seconds=SECONDS):
        return Liveness(self.loop, seconds, self.connection, 'the server',
                        clock=lambda: self.loop.now)

    def test_one_that_says_nothing(self):
        """It is asked, and given up within its time; said once, and no timer
        is left."""
        self.watch()
        with self.assertLogs('fsyncstorage.client', 'WARNING') as logged:
            self.loop.go_on(10 * self.SECONDS)
        self.assertEqual(self.connection.asked, [ASKED_AFTER * 10])
        (when, reason), = self.connection.given_up
        self.assertEqual(when, DEAD_AFTER * 10)
        self.assertIsInstance(reason, Silent)
        self.assertIn('from the server for 100 s', str(reason))
        self.assertEqual(len(logged.output), 1)
        self.assertEqual(self.loop.timers, [])

    def test_whenever_it_was_heard_last(self):
        """From nine tenths of the time to all of it, behind that."""
        for heard in 11, 15, 19:
            with self.subTest(heard):
                self.setUp()
                self.watch()
                self.loop.go_on(heard)
                self.connection.has_heard = True
                with self.assertLogs('fsyncstorage.client', 'WARNING'):
                    self.loop.go_on(10 * self.SECONDS)
                (when, _), = self.connection.given_up
                self.assertLessEqual(0.9 * self.SECONDS, when - heard)
                self.assertLessEqual(when - heard, self.SECONDS)

    def test_one_that_answers(self):
        """However slowly, as long as it is within seven tenths."""
        self.watch()
        for _ in range(50):
            asked = len(self.connection.asked)
            while len(self.connection.asked) == asked:
                self.loop.go_on(self.loop.now + 1)
            self.loop.go_on(self.loop.now + 0.69 * self.SECONDS)
            self.connection.has_heard = True
        self.assertEqual(self.connection.given_up, [])

    def test_a_client_that_was_frozen_itself(self):
        """It asks once more, and the server has its time, whenever it was
        frozen, and for however long."""
        for before in range(0, 90, 5):
            for away in 31, 60, 200, 100000:
                with self.subTest(before, away=away):
                    self.check_frozen(before, away)

    def check_frozen(self, before, away):
        self.setUp()
        self.watch()
        self.loop.go_on(before)
        del self.connection.asked[:]
        self.loop.wake_at(before + away)
        self.assertEqual(self.connection.asked, [before + away])
        self.loop.go_on(self.loop.now + 0.69 * self.SECONDS)
        self.assertEqual(self.connection.given_up, [])
        with self.assertLogs('fsyncstorage.client', 'WARNING'):
            self.loop.go_on(self.loop.now + 10)
        self.assertEqual(len(self.connection.given_up), 1)

    def test_what_came_while_it_was_frozen(self):
        self.watch()
        self.loop.go_on(85)
        self.connection.has_heard = True
        self.loop.wake_at(1000)
        self.loop.go_on(1000 + 0.89 * self.SECONDS)
        self.assertEqual(self.connection.given_up, [])

    def test_the_end(self):
        liveness = self.watch()
        self.loop.go_on(20)
        liveness.end()
        liveness.end()
        self.assertEqual(self.loop.timers, [])


class Sockets(unittest.TestCase):

    def pair(self):
        with socket.create_server(('127.0.0.1', 0)) as listener:
            one = socket.create_connection(listener.getsockname())
            other, _ = listener.accept()
        for each in one, other:
            self.addCleanup(each.close)
        return one, other

    def test_what_waits_to_be_read(self):
        one, other = self.pair()
        self.assertEqual(sockets.unread(one), 0)
        other.sendall(b'12345')
        until(lambda: sockets.unread(one) == 5, 'come')
        one.recv(3)
        self.assertEqual(sockets.unread(one), 2)

    def counted(self):
        """What `go_on` returns: is it taken?"""
        transport = mock.Mock()
        counted = sockets.Counted(transport)
        counts = {'unsent': 0}
        patch = mock.patch.object(
            sockets, 'unsent', lambda connection: counts['unsent'])
        patch.start()
        self.addCleanup(patch.stop)

        def go_on(written, waits_here, unsent):
            """So much more is written, in both ways in which the client writes
            (ZEO, and `outgoing`), and so much is left."""
            counted.write(bytes(written // 2))
            counted.writelines((b'', bytes(written - written // 2)))
            transport.get_write_buffer_size.return_value = waits_here
            counts['unsent'] = unsent
            return counted.is_taken()

        return go_on

    def test_much_that_is_taken(self):
        """What is left rises at each look, while it is filled up."""
        go_on = self.counted()
        go_on(500, 100, 400)
        for step in range(20):
            self.assertTrue(go_on(500, 100, 410 + 10 * step))

    def test_the_end_of_much(self):
        """Nothing waits here, but in the system for longer than a look."""
        go_on = self.counted()
        go_on(1000, 0, 1000)
        for left in range(900, 0, -100):
            self.assertTrue(go_on(0, 0, left))

    def test_much_that_is_not_taken(self):
        """However much is written."""
        go_on = self.counted()
        go_on(1000, 300, 500)
        for step in range(20):
            self.assertFalse(go_on(100, 400 + 100 * step, 500))

    def test_little_is_taken_by_the_system(self):
        """At the looks, the last of it is on its way, or has come."""
        go_on = self.counted()
        for step in range(20):
            self.assertFalse(go_on(100, 0, 50 * (step % 2)))
