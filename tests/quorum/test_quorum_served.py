"""A server whose storage is a node: clients, whose commits go to the log."""

from unittest import mock

from fsyncstorage.metrics.shown import Shown
from fsyncstorage.quorum.log import outage

from ..server import serving
from ..server.serving import Served
from ..server.serving import record
from ..support import Thread
from ..support import until
from .blobnodes import BlobNodeTest
from .nodes import NodeTest


class Served(NodeTest, Served):

    def setUp(self):
        super().setUp()
        self.storage = self.lead()
        self.server = self.serve(self.storage)
        self.zeo = self.connect(self.server)

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


class WithBlobs(BlobNodeTest, serving.Served):

    def test_the_end_of_a_server_while_no_majority_answers(self):
        """Of a vote that waits in its thread."""
        self.storage = self.lead()
        server = self.serve(self.storage)
        self.storage.line.is_away = True
        peer = self.connect(server)
        peer.begin()
        peer.send_blob(1, bytes(600))
        peer.ask('vote', peer.id)
        until(lambda: self.storage._replica._staging._votes, 'it waits')
        Thread(server.close).result()
