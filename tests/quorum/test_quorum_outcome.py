"""A client that loses its server in the middle of a commit asks the next one,
which is another node: at every moment of the loss (I3, I16).
"""

import contextlib
import threading
from unittest import mock

from transaction.interfaces import TransientError
from ZEO.Exceptions import ClientDisconnected

from fsyncstorage.client.storage import FsyncClient
from fsyncstorage.quorum.history.record import MOST
from fsyncstorage.quorum.history.record import Data
from fsyncstorage.quorum.history.record import parse
from fsyncstorage.quorum.leading import replicator
from fsyncstorage.server import oursession
from fsyncstorage.server.oursession import OurSession
from fsyncstorage.server.server import Server
from fsyncstorage.wire import frames
from perf.ports import free_address

from ..client.test_client_outcome import InOneTrip
from ..support import PATIENCE
from ..support import Thread
from ..support import oid
from ..support import until
from .logged import bootstrap
from .nodes import NodeTest
from .nodes import state_behind


class OfOneTrip(InOneTrip, NodeTest):
    """At each moment of a commit.  Nodes start as real ones do, each with a
    server of its own; each has followed from the beginning.
    """

    next = 'b'

    def setUp(self):
        super().setUp()
        # Those that are killed do not wait for their log.
        self.patch(replicator, LONGEST_WAIT_AT_CLOSE=0.0)
        self.addresses = {name: free_address() for name in 'abc'}
        self.called = []
        self.lead('a')
        self.client = self.connect()
        self.commit(7)
        bootstrap(self.path_of('b'))
        self.called.clear()

    def lead(self, node):
        """It follows to the end of the log, leads, and opens its port."""
        self.storage = super().lead(node)
        self.server = self._serve(node)

    def _serve(self, node):
        server = Server(self.addresses[node], {'1': self.storage})
        server.storage = self.storage
        thread = Thread(server.loop)
        self.addCleanup(thread.result)
        self.addCleanup(self._close, server)
        return server

    def _close(self, server):
        with contextlib.suppress(AssertionError), \
                self.assertLogs('fsyncstorage', 'WARNING'):
            server.close()

    def connect(self, **options):
        client = FsyncClient(
            list(self.addresses.values()), wait_timeout=PATIENCE, **options)
        self.addCleanup(client.close)
        return client

    # The death of a primary

    def kill(self, server=None):
        """It says nothing more, to anybody.  Called in its loop."""
        server = server or self.server
        server.storage.line.is_away = True
        server.acceptor.stop_listening()
        for connection in list(server.connections):
            connection.abort()

    def kill_soon(self):
        killed = threading.Event()
        self.server.acceptor.event_loop.call_soon_threadsafe(
            lambda: (self.kill(), killed.set()))
        self.assertTrue(killed.wait(PATIENCE))

    def dies_at_request(self, kind):
        """And has done nothing of it."""
        method, server = oursession._METHODS[kind], self.server

        def dies(session, *args):
            if session.server is server:
                self.kill(server)
            else:
                method(session, *args)

        patch = mock.patch.dict(oursession._METHODS, {kind: dies})
        patch.start()
        self.addCleanup(patch.stop)

    def dies_at_answer(self):
        """It has published it."""
        finished, server = OurSession._finished, self.server

        def dies(session, *args):
            if session.server is server:
                self.kill(server)
            else:
                finished(session, *args)

        self.patch(OurSession, _finished=dies)

    # What comes of it

    def ask_the_next(self, committing):
        until(lambda: not self.client.is_connected(), 'lost')
        self.lead(self.next)
        return committing.result()

    def check_kept(self, committing):
        tid = self.ask_the_next(committing)
        self.assertEqual(self.storage.load(oid(1))[1], tid)
        self.assertEqual(self.called, [tid])
        self.assertGreaterEqual(self.client.lastTransaction(), tid)
        self.check_all_is_well()

    def check_not_kept(self, committing):
        """It never will be; so it can be repeated."""
        with self.assertRaises(ClientDisconnected):
            self.ask_the_next(committing)
        self.assertEqual(self.called, [])
        self.assertNotIn(oid(1), [
            record.oid for transaction in self.storage.iterator()
            for record in transaction])
        self.commit()
        self.check_all_is_well()

    def check_all_is_well(self):
        tid = self.commit(8)
        self.assertEqual(self.storage.load(oid(8)), (b'x', tid))

    # The moments

    def test_a_vote_that_meets_it_can_be_tried_again(self):
        """Nothing was promised to anybody."""
        self.dies_at_request(frames.Trip)
        committing = Thread(self.commit_again)
        until(lambda: not self.client.is_connected(), 'lost')
        self.lead(self.next)
        tid = committing.result()
        self.assertEqual(self.called, [tid])
        self.assertEqual(
            [record.tid for transaction in self.storage.iterator()
             for record in transaction if record.oid == oid(1)], [tid])

    def commit_again(self):
        with self.assertRaises(TransientError):
            self.commit()
        return self.commit()  # it waits for the next node

    def test_a_part_of_it_is_in_the_log(self):
        """And is given up."""
        line = self.storage.line

        def landed(raw):
            if isinstance(parse(raw).body, Data):
                line.is_away = True

        self.engine.landed = landed
        committing = Thread(self.commit, 1, bytes(2 * MOST))
        until(lambda: state_behind(self.engine).incomplete, 'a part')
        self.engine.landed = lambda raw: None
        self.kill_soon()
        self.check_not_kept(committing)

    def test_it_is_in_the_log_and_not_answered(self):
        self.storage.line.hold_answers()
        committing = Thread(self.commit)
        self.storage.line.wait_for_question()
        self.kill_soon()
        self.check_kept(committing)

    def commit_and_ask_one_that_dies(self):
        committing = Thread(self.commit)
        until(lambda: not self.client.is_connected(), 'lost')
        self.lead(self.next)
        self.dies_at_request(frames.Ask)
        until(lambda: self.storage.line.is_away, 'asked, and dead')
        self.next = 'c'
        return committing

    def test_the_next_one_dies_too_before_it_answers(self):
        """The one behind it knows of both epochs."""
        self.dies_at_answer()
        committing = self.commit_and_ask_one_that_dies()
        self.check_kept(committing)
