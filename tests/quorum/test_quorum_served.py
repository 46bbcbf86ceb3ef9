"""A server whose storage is a node: clients, whose commits go to the log."""

from unittest import mock

from fsyncstorage.metrics.shown import Shown
from fsyncstorage.quorum.history.record import Commit
from fsyncstorage.quorum.history.record import Data
from fsyncstorage.quorum.leading import held
from fsyncstorage.quorum.log import outage

from ..server import serving
from ..server.serving import Served
from ..server.serving import record
from ..server.test_commitchannel import Channel
from ..support import Thread
from ..support import until
from .blobnodes import BlobNodeTest
from .nodes import NodeTest
from .nodes import bodies


class Served(NodeTest, Served):

    def setUp(self):
        super().setUp()
        self.storage = self.lead()
        self.server = self.serve(self.storage)
        self.zeo = self.connect(self.server)

    def channel(self):
        channel = Channel(self.server, self.zeo)
        self.addCleanup(channel.close)
        return channel

    def logged_commits(self):
        return [each for body in bodies(self.engine)
                if isinstance(body, Data) for each in body.commits]

    def test_the_ids_by_which_clients_ask(self):
        """As the client makes them; in one trip, and in two."""
        channel, expected = self.channel(), []
        transaction = channel.vote({1: record()})
        channel.next()
        tid = channel.finish(transaction)
        expected.append(Commit(channel.client.commit_id(transaction), tid))
        transaction = channel.trip({2: record()})
        expected.append(Commit(
            channel.client.commit_id(transaction), channel.done().tid))
        self.assertEqual(self.logged_commits(), expected)
        self.has_what_the_log_has()

    def test_those_that_cannot_ask(self):
        self.zeo.commit({1: record()})
        self.assertEqual(self.logged_commits(), [])
        self.has_what_the_log_has()

    def test_no_majority(self):
        """Readers are answered, and a probe says that it is not ready."""
        shown = Shown('1', self.storage)
        self.zeo.commit({1: record(1)})
        self.assertIsNone(shown.trouble())
        self.storage.line.is_away = True
        writer = self.connect(self.server)
        writer.vote({2: record()})
        with mock.patch.object(outage, 'TROUBLE_AFTER', 0.0), \
                self.assertLogs('fsyncstorage', 'WARNING'):
            finish = writer.ask_finish()
            until(lambda: self.storage.stats()['quorum']['outages'], 'said')
            self.assertEqual(self.zeo.load(1)[0], record(1))
            self.assertIn('not answered', shown.trouble())
            self.storage.line.is_away = False
            writer.answer(finish)
        until(lambda: shown.trouble() is None, 'ready')
        self.assertEqual(self.zeo.load(2)[0], record())


class WithoutRoom(BlobNodeTest, serving.Served):
    """Votes that wait for room in the log have no thread of the server."""

    LIMIT = 1000

    def setUp(self):
        super().setUp()
        self.patch(held, GRAIN=1)
        self.storage = self.lead()
        self.limit = self.storage._replica._limit
        self.limit.limit = self.limit.named + self.LIMIT

    def peer(self, server, number, size):
        """A client that has asked for the vote of a blob."""
        peer = self.connect(server)
        peer.begin()
        peer.send_blob(number, bytes(size))
        return peer, peer.ask('vote', peer.id)

    def test_the_end_of_a_server_while_no_majority_answers(self):
        """Of a vote that waits in its thread."""
        server = self.serve(self.storage)
        self.storage.line.is_away = True
        self.peer(server, 1, 600)
        until(lambda: self.storage._replica._staging._votes, 'it waits')
        Thread(server.close).result()
