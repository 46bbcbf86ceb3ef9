"""What tells the background reader of a stream that something comes."""

import os
import socket
import unittest

from fsyncstorage.client import watch


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
