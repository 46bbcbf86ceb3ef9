"""A server that says nothing any more, or never did.

Whoever waits goes on by another way, or gets an error.
"""

import socket

from ZEO.Exceptions import ClientDisconnected

from ..support import Thread
from ..support import oid
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
        return super().connect(
            [self.through, self.server.addr], blob_dir=self.path('cache'),
            **options)

    def test_whoever_waits(self):
        client = self.connect(server_timeout=1)
        self.load(client, 1)  # opens a reader
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
        self.assertEqual(server_of(client), self.server.addr)
        tid = commit(client, {90: b'new'})
        self.assertEqual(self.load(client, 90)[:2], (b'new', tid))

    def test_close_while_others_wait(self):
        """Before the client has noticed."""
        client = self.connect(server_timeout=None)
        self.load(client, 1)
        finishing = vote(client, {61: b'perhaps'})
        self.freeze()
        waiting = [Thread(self.load, client, 2), Thread(client.new_oid),
                   Thread(client.tpc_finish, finishing)]
        client.close()
        for each in waiting:
            self.assertIsNotNone(outcome(each))
        self.go_on()


class Mute(ConnectedTestCase):
    """Something that takes connections, and says nothing."""

    records = {1: b'one'}

    def test_beside_a_server(self):
        with socket.create_server(('127.0.0.1', 0)) as mute:
            client = self.connect([mute.getsockname(), self.server.addr])
            self.assertEqual(self.load(client, 1)[0], b'one')
            client.close()
