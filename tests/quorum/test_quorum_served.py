"""A server whose storage is a node: clients, whose commits go to the log."""

from unittest import mock

from fsyncstorage.commit.policies import POLICIES
from fsyncstorage.metrics.shown import Shown
from fsyncstorage.quorum.history.record import Commit
from fsyncstorage.quorum.history.record import Data
from fsyncstorage.quorum.leading import replicator
from fsyncstorage.quorum.log import outage

from ..server.serving import Served
from ..server.serving import record
from ..server.test_commitchannel import Channel
from ..support import begin
from ..support import oid
from ..support import until
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

    def test_a_server_that_ends_while_no_majority_answers(self):
        """I10, in bounded time."""
        self.storage.line.is_away = True
        self.zeo.vote({1: record()})
        self.zeo.ask_finish()
        until(lambda: self.storage.stats()['commits'], 'appended')
        with mock.patch.object(replicator, 'LONGEST_WAIT_AT_CLOSE', 0.0), \
                self.assertLogs('fsyncstorage', 'ERROR'):
            self.server.close()
            self.storage.close()


class Asking(NodeTest):

    def test_what_is_less_is_kept_as_all_are(self):
        """And what asks for the same, in silence."""
        storage = self.lead()
        for number, name in enumerate([*POLICIES, 'quorum']):
            with self.subTest(name):
                transaction = begin(storage, extension={'durability': name})
                storage.store(oid(number), bytes(8), b'x', '', transaction)
                storage.tpc_vote(transaction)
                tid = storage.tpc_finish(transaction)
                self.assertEqual(storage.stats()['last_durable'], tid)
                self.has_what_the_log_has()
        for each in storage.iterator():
            self.assertEqual(each.extension_bytes, b'')
