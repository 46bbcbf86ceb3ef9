"""A cable that is pulled: no packet arrives any more, and no connection ends.

Each socket of the server gets a filter that drops all packets: so its system
acknowledges nothing that the client sends.  New connections work.
"""

import ctypes
import socket
import struct
import sys
import unittest

from ZEO.Exceptions import ClientDisconnected

from fsyncstorage.client import sockets
from fsyncstorage.errors import OutcomeUnknown
from fsyncstorage.server import frames

from ..support import Thread
from ..support import oid
from ..support import until
from .connected import ConnectedTestCase
from .connected import commit
from .connected import vote

SO_ATTACH_FILTER = 26
# One instruction of BPF: return 0, which takes nothing of a packet.
_DROP = ctypes.create_string_buffer(struct.pack('HBBI', 6, 0, 0, 0))
#: A message that does not fit into what the system holds.
MUCH = bytes(16 << 20)


def pull(connection):
    connection.setsockopt(
        socket.SOL_SOCKET, SO_ATTACH_FILTER,
        struct.pack('HP', 1, ctypes.addressof(_DROP)))


def user_timeout(connection):
    return connection.getsockopt(
        socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) / 1000


@unittest.skipUnless(sys.platform == 'linux', 'needs filters of sockets')
class Cable(ConnectedTestCase):
    """With one address, so nothing else looks whether the server is there."""

    records = {1: b'one'}

    def setUp(self):
        super().setUp()
        self.client = self.connect()

    def sockets_of_client(self):
        """Of its ZEO connection, commit channel, and read channel."""
        server = self.client._server
        self.client._cache.clear()
        self.load(self.client, 1)
        return (server.client.protocol._transport.get_extra_info('socket'),
                server._stream._socket,
                server._reader._channels._free[0]._socket)

    def test_how_long_it_may_take(self):
        """A frame waits for room, and others, which are short, do not."""
        beside, *channels = map(user_timeout, self.sockets_of_client())
        self.assertEqual(beside, sockets.SECONDS_OF_LITTLE)
        for each in channels:
            self.assertEqual(each, sockets.SECONDS)
        self.assertLess(frames.ROOM_SECONDS, sockets.SECONDS)
        wait = 30  # of wait-timeout, for the next connection
        self.assertLessEqual(sockets.SECONDS + wait, 2 * frames.ROOM_SECONDS)

    def pulled(self):
        """Now the client waits for a second, not for a minute."""
        for each in self.sockets_of_client():
            sockets.keep_alive(each, 1)
        self.pulled_from = self.client._server.stream
        self.in_loop(lambda: [
            pull(each.transport.get_extra_info('socket'))
            for each in self.server.connections])

    def has_channel(self):
        stream = self.client._server.stream
        return (stream not in (None, self.pulled_from)
                and stream.end_reason is None)

    def ends(self, function, *args):
        """It hangs without a bound."""
        with self.assertRaises((ClientDisconnected, OutcomeUnknown)):
            Thread(function, *args).result()
        self.goes_on()

    def goes_on(self):
        until(self.has_channel, 'connected again')
        commit(self.client, {2: b'two'})
        self.assertEqual(self.load(self.client, 2)[0], b'two')

    def check_a_vote(self, data):
        self.pulled()
        self.ends(vote, self.client, {3: data})

    def test_a_vote(self):
        self.check_a_vote(b'x')

    def test_a_vote_that_does_not_leave(self):
        self.check_a_vote(MUCH)

    def test_a_finish(self):
        transaction = vote(self.client, {3: b'x'})
        self.pulled()
        self.ends(self.client.tpc_finish, transaction)

    def test_a_load(self):
        self.pulled()
        self.client._cache.clear()
        self.ends(self.load, self.client, 1)

    def test_a_call_on_the_zeo_connection(self):
        self.pulled()
        self.ends(self.client.history, oid(1))
