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

from fsyncstorage.client import failover
from fsyncstorage.client.storage import MAY_BE_SILENT
from fsyncstorage.client.storage import WAIT_TIMEOUT
from fsyncstorage.errors import OutcomeUnknown
from fsyncstorage.server import incoming

from ..support import Thread
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

    readers = 1

    def setUp(self):
        super().setUp()
        self.client = self.connect(server_timeout=None)

    def sockets_of_client(self):
        """Of its stream, and of a reader."""
        self.client._cache.begin_anew(self.client.lastTransaction())
        self.load(self.client, 1)
        return (self.client._failover.stream._socket,
                self.client._reads._readers._free[0]._connection)

    def test_how_long_it_may_take(self):
        """A frame waits for room, and its client gives nobody up for that."""
        for each in map(user_timeout, self.sockets_of_client()):
            self.assertEqual(each, failover.MACHINE_GONE)
        self.assertLess(incoming.ROOM_SECONDS, MAY_BE_SILENT)
        self.assertLess(MAY_BE_SILENT, failover.MACHINE_GONE)
        self.assertLessEqual(failover.MACHINE_GONE + WAIT_TIMEOUT, 120)

    def pulled(self):
        """Now the client waits for a second, not for a minute."""
        for each in self.sockets_of_client():
            each.setsockopt(
                socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000)
        self.pulled_from = self.client._failover.stream
        self.in_loop(lambda: [
            pull(each.transport.get_extra_info('socket'))
            for each in self.server.connections])

    def is_connected_again(self):
        return self.client._failover.stream not in (None, self.pulled_from)

    def ends(self, function, *args):
        """It hangs without a bound."""
        with self.assertRaises((ClientDisconnected, OutcomeUnknown)):
            Thread(function, *args).result()
        self.goes_on()

    def goes_on(self):
        until(self.is_connected_again, 'connected again')
        commit(self.client, {2: b'two'})
        self.assertEqual(self.load(self.client, 2)[0], b'two')

    def test_a_vote_that_does_not_leave(self):
        self.pulled()
        self.ends(vote, self.client, {3: MUCH})

    def test_a_finish(self):
        transaction = vote(self.client, {3: b'x'})
        self.pulled()
        self.ends(self.client.tpc_finish, transaction)

    def test_a_load(self):
        """The next stream answers it."""
        self.pulled()
        self.client._cache.begin_anew(self.client.lastTransaction())
        self.assertEqual(Thread(self.load, self.client, 1).result()[0], b'one')
        self.goes_on()
