"""A server that says nothing any more, or never did.

Whoever waits goes on by another way, or gets an error; and nothing is left
behind.
"""

import gc
import socket

from ZEO.Exceptions import ClientDisconnected
from ZODB.utils import z64

from fsyncstorage.client import readchannel
from fsyncstorage.client import sockets
from perf.ports import free_address

from ..server.serving import open_files
from ..support import PATIENCE
from ..support import Thread
from ..support import oid
from ..support import until
from .connected import ConnectedTestCase
from .connected import begin
from .connected import commit
from .connected import store
from .connected import vote
from .test_client_failover import Through
from .test_client_failover import outcome
from .test_client_failover import server_of


class Frozen(Through):
    """All that is on its way through the relay stays there."""

    level = 2
    records = {number: b'x' for number in range(1, 4)}

    def setUp(self):
        super().setUp()
        self.blob = self.store_blob(77, b'blob' * 100_000)

    def connect(self, **options):
        client = super().connect(
            self.through, blob_dir=self.path('cache'), **options)
        until(lambda: client._server.stream, 'a channel')
        return client

    def test_whoever_waits(self):
        # A channel that is being opened is not waited for, either.
        self.patch(readchannel, CONNECT_WITHIN=3600)
        client = self.connect(server_timeout=1)
        client.new_addr([self.through, self.server.acceptor.addr])
        self.load(client, 1)  # opens a channel
        voted, begun = vote(client, {61: b'perhaps'}), begin(client)
        store(client, begun, 60, b'never')
        self.freeze()
        loading = [Thread(*call) for call in (
            (self.load, client, 2), (self.load, client, 3),
            (client.loadBlob, oid(77), self.blob))]
        asking = [Thread(*call) for call in (
            (client.tpc_finish, voted), (client.tpc_vote, begun),
            (client.new_oid,), (client.ping,), (client.undoLog, 0, 10),
            (client.history, oid(1)))]
        for each in loading:
            each.result()
        for each in asking:
            # (A call that was cut off is not repeated.)
            self.assertIn(outcome(each), (None, ClientDisconnected))
        self.assertEqual(server_of(client), self.server.acceptor.addr)
        tid = commit(client, {90: b'new'})
        self.assertEqual(self.load(client, 90)[:2], (b'new', tid))

    def test_close_while_others_wait(self):
        """Before the client has noticed; no thread or descriptor is left."""
        self.connect().close()  # what is made once
        until(lambda: not self.sessions(), 'it has gone')
        gc.collect()
        before = open_files()
        client = self.connect(server_timeout=None)
        self.load(client, 1)
        finishing = vote(client, {61: b'perhaps'})
        self.freeze()
        waiting = [Thread(self.load, client, 2), Thread(client.new_oid),
                   Thread(client.tpc_finish, finishing)]
        until(lambda: client._server.client.protocol.futures, 'asked')
        with self.assertNoLogs('ZEO.asyncio', 'ERROR'):
            client.close()
        for each in waiting:
            self.assertIsNotNone(outcome(each))
        client = waiting = each = None
        self.go_on()
        until(lambda: gc.collect() is not None and open_files() <= before,
              'closed')

    def test_close_with_what_cannot_leave(self):
        """The server does not take it, and is not waited for."""
        client = self.connect(server_timeout=None)
        self.freeze()
        with open(self.path('large'), 'wb') as file:
            file.truncate(32 << 20)
        storing = Thread(client.storeBlob, oid(62), z64, b'a blob',
                         self.path('large'), '', begin(client))
        until(lambda: sockets.unsent(
            client._server.stream._socket) > 1 << 20, 'stuck')
        with self.assertNoLogs('ZEO.asyncio', 'ERROR'):
            client.close()
        outcome(storing)


class Mute(ConnectedTestCase):
    """Something that takes connections, and says nothing."""

    records = {1: b'one'}

    def setUp(self):
        super().setUp()
        self.mute = socket.create_server(('127.0.0.1', 0))
        self.addCleanup(self.mute.close)

    def connect_to(self, *addresses):
        return self.connect(
            [self.mute.getsockname(), *addresses], server_timeout=1,
            wait=False)

    def test_beside_a_server(self):
        client = self.connect_to(self.server.acceptor.addr)
        until(client.is_connected, 'connected')
        self.assertEqual(self.load(client, 1)[0], b'one')

    def test_alone(self):
        """It is given up, and tried again."""
        self.connect_to()
        self.mute.settimeout(PATIENCE)
        with self.assertLogs('fsyncstorage.client', 'WARNING') as logged:
            for _ in range(2):
                peer, _ = self.mute.accept()
                with peer:
                    peer.settimeout(PATIENCE)
                    self.assertEqual(peer.recv(1), b'')
        self.assertIn('nothing was heard from the server', logged.output[0])

    def test_behind_its_greeting(self):
        """It keeps others waiting no longer than it may be silent itself."""
        def greet():
            peer, _ = self.mute.accept()
            peer.sendall(b'\0\0\0\2Z5')
            return peer

        self.server.close()
        self.thread.join()
        self.address = free_address()
        greeting = Thread(greet)
        client = self.connect_to(self.address)
        with greeting.result():
            until(client._server.client.register_lock.locked, 'registering')
            self.storage = self.open()
            self.serve()
            until(client.is_connected, 'connected')
            self.assertEqual(self.load(client, 1)[0], b'one')
