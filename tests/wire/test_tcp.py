"""The options of a connection."""

import socket
import unittest

from fsyncstorage.wire import tcp


class Options(unittest.TestCase):

    def test_over_tcp(self):
        with (socket.create_server(('127.0.0.1', 0)) as listening,
              socket.create_connection(listening.getsockname()) as one):
            tcp.set_options(one, 30)
            for level, option in ((socket.SOL_SOCKET, socket.SO_KEEPALIVE),
                                  (socket.IPPROTO_TCP, socket.TCP_NODELAY)):
                self.assertTrue(one.getsockopt(level, option))

    def test_a_unix_socket_has_none(self):
        with socket.socket(socket.AF_UNIX) as one:
            tcp.set_options(one, 30)

    def test_a_connection_that_has_ended(self):
        with socket.socket() as one:
            pass
        tcp.set_options(one, 30)
