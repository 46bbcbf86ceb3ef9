"""A server whose storage is a node: clients, whose commits go to the log."""

import os
from unittest import mock

from ZODB.utils import z64

from fsyncstorage.commit.policies import POLICIES
from fsyncstorage.metrics.shown import Shown
from fsyncstorage.quorum.history.record import Commit
from fsyncstorage.quorum.history.record import Data
from fsyncstorage.quorum.leading import held
from fsyncstorage.quorum.log import outage
from fsyncstorage.server import times
from fsyncstorage.server.ballot import VOTED
from fsyncstorage.server.ballot import WAITING
from fsyncstorage.server.committer import VOTERS

from ..server import serving
from ..server.byhand import World
from ..server.serving import Served
from ..server.serving import record
from ..server.test_commitchannel import Channel
from ..support import Thread
from ..support import begin
from ..support import oid
from ..support import until
from .blobnodes import RECORD
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
        patch = mock.patch.object(held, 'GRAIN', 1)
        patch.start()
        self.addCleanup(patch.stop)
        self.storage = self.lead()
        self.limit = self.storage._replica._limit
        self.limit.limit = self.limit.named + self.LIMIT

    def ballot(self, world, name, number, size, records=()):
        ballot = world.begin(name, records)
        path = os.path.join(self.storage.temporaryDirectory(), name)
        with open(path, 'wb') as file:
            file.write(bytes(size))
        ballot.add_blob(oid(number), z64, RECORD, path)
        return ballot

    def test_who_has_the_room_gets_a_thread(self):
        """However many wait for it."""
        world = World(self.storage)
        other = world.vote('other', {9: b'x'})
        first = self.ballot(world, 'first', 1, 300, {9: b'y'})
        waiting = [self.ballot(world, f'waiting {number}', number, 800)
                   for number in range(2, 3 + VOTERS)]
        for ballot in first, *waiting:
            world.ask_vote(ballot)
        Thread(world.settle).result()
        self.assertEqual({each.state for each in (first, *waiting)}, {WAITING})
        self.assertEqual(waiting[0].waits_for, times.LOG)
        other.abort()
        Thread(world.settle).result()
        self.assertEqual(first.state, VOTED)
        self.assertIn(times.LOG, [each.waits_for for each in waiting])
        for before, ballot in zip((first, *waiting), waiting):
            before.abort()
            until(lambda: (world.settle(), ballot.state is VOTED)[1],
                  'the next one is served')
        ballot.abort()
        world.settle()
        world.committer.close()

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
