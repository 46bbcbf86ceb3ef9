"""What tells the background reader of a stream that something comes."""

import os
import select
import socket
import unittest
from unittest import mock

from fsyncstorage.client import watch


@unittest.skipUnless(watch.is_possible, 'this system has no epoll')
class AWatch(unittest.TestCase):

    def setUp(self):
        connection, self.other = socket.socketpair()
        for end in connection, self.other:
            self.addCleanup(end.close)
        self.watch = watch.Watch(connection)

    def tells(self):
        """Would the background reader go on?"""
        return bool(select.select([self.watch._poll], [], [], 0)[0])

    def test_is_armed_for_what_comes(self):
        for arm in self.watch.arm, self.watch.disarm:
            arm()
            self.assertFalse(self.tells())
        self.other.send(b'x')
        self.assertFalse(self.tells())
        self.watch.arm()
        self.assertTrue(self.tells())

    def test_tells_once(self):
        self.watch.wake()
        self.watch.wait()
        self.assertFalse(self.tells())
        self.watch.arm()
        self.assertFalse(self.tells())

    def test_wakes_although_another_thread_arms_it(self):
        """What an interrupted thread has left lies here."""
        self.watch.wake()
        for _ in range(2):
            self.watch.arm()
            self.assertTrue(self.tells())
        self.watch.disarm()  # by one that completes all of it
        self.assertFalse(self.tells())

    def test_wakes_although_another_thread_is_about_to_arm_it(self):
        with mock.patch.object(
                self.watch, '_set', side_effect=self.watch._set) as sets:
            def set_later(events):
                sets.side_effect = set_now
                self.watch.wake()
                set_now(events)

            set_now, sets.side_effect = sets.side_effect, set_later
            self.watch.arm()
        self.assertTrue(self.tells())


@unittest.skipUnless(watch.is_possible, 'this system has no epoll')
class AClosedConnection(unittest.TestCase):

    def setUp(self):
        connection, other = socket.socketpair()
        self.addCleanup(other.close)
        self.watch = watch.Watch(connection)
        self.number = connection.fileno()
        connection.close()

    def check(self):
        self.watch.arm()
        self.watch.wake()
        self.watch.disarm()

    def test_is_no_error_for_the_threads_that_leave_it(self):
        self.check()

    def take_the_number(self, descriptor):
        if descriptor != self.number:
            os.dup2(descriptor, self.number)
            os.close(descriptor)
        self.addCleanup(os.close, self.number)

    def test_is_none_either_when_a_file_has_its_number(self):
        self.take_the_number(os.open(__file__, os.O_RDONLY))
        self.check()

    def test_is_none_either_when_another_socket_has_its_number(self):
        connection, other = socket.socketpair()
        self.addCleanup(other.close)
        self.take_the_number(connection.detach())
        self.check()
