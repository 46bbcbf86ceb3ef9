"""What tells the background reader of a stream that something comes.  Goes
with `client/watch.py`.
"""

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
