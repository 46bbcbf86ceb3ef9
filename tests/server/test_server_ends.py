"""Wrappers, and ends of all kinds: signals, packs under way, wrong files."""

import gc
from unittest import mock

from ZODB.DemoStorage import DemoStorage
from ZODB.tests.hexstorage import HexStorage
from ZODB.utils import maxtid

from fsyncstorage import FsyncStorage
from fsyncstorage.server import connection
from fsyncstorage.server import server as server_module
from fsyncstorage.server.runzeo import Runner
from fsyncstorage.server.server import Server
from fsyncstorage.server.service import Service

from ..support import PATIENCE
from ..support import Thread
from ..support import oid
from ..support import until
from .serving import ErrorReply
from .serving import Served
from .serving import open_files


class Signals(Served):

    def test_more_signals_than_one(self):
        """The last answers leave, whenever the others come."""
        server = self.serve()
        peer = self.connect(server)
        data = b'x' * (8 << 20)  # more than the system takes at once
        tid = peer.commit({1: data})
        asked = peer.ask('loadBefore', oid(1), maxtid)
        until(lambda: server.accounts.held, 'the answer waits')
        loop = server.acceptor.event_loop
        # Two of them between two callbacks.
        loop.call_soon_threadsafe(lambda: (server.stop(), server.stop()))
        until(lambda: not loop.is_running(), 'it ends')
        server.stop()
        with mock.patch.object(server_module, 'FAREWELL', PATIENCE), \
                mock.patch.object(connection, 'LINGER', PATIENCE):
            closing = Thread(server.close)
            until(lambda: server.said_farewell, 'it closes')
            server.stop()
            self.assertEqual(peer.answer(asked)[:2], (data, tid))
            peer.close()
            closing.result()


class Begins(Served):

    def test_an_address_in_use_leaves_nothing(self):
        first = self.serve()
        storage = self.open(self.path('other'))
        gc.collect()  # what earlier tests have left
        before = open_files()
        for address in first.addr, self.path('no directory/socket'):
            with self.assertRaises(OSError):
                Server(address, {'1': storage})
            gc.collect()
            self.assertEqual(open_files(), before)


class OwnVote(FsyncStorage):

    def tpc_vote(self, transaction):
        return super().tpc_vote(transaction)


class Wrappers(Served):

    def test_one_that_votes_in_its_own_way(self):
        self.check_one_that_may_wait(OwnVote(self.path()))

    def check_one_that_may_wait(self, storage):
        server = self.serve(storage)
        peer = self.connect(server)
        tid = peer.commit({1: b'data'})
        self.assertEqual(peer.load(1), (b'data', tid))
        self.assertFalse(server.services['1'].votes_side_by_side)

    def test_a_wrapper_shows_its_own_records(self):
        """What the wrapped storage has in its cache are others."""
        server = self.serve(HexStorage(self.open()))
        peer = self.connect(server)
        tid = peer.commit({1: b'data'})
        self.assertEqual(peer.load(1), (b'data', tid))

    def test_commits_through_a_wrapper_share_syncs(self):
        disk = self.controlled_disk()
        storage = self.open()
        server = self.serve(HexStorage(storage))
        one, other = self.connect(server), self.connect(server)
        disk.hold_syncs()
        one.vote({1: b'one'})
        first = one.ask_finish()
        disk.wait_for_sync()
        other.vote({2: b'other'})   # the lock is free
        second = other.ask_finish()
        disk.release_syncs()
        self.assertLess(one.answer(first), other.answer(second))

    def test_a_storage_that_checks_what_is_published(self):
        """It must not be told to finish later."""
        disk = self.controlled_disk()
        server = self.serve(DemoStorage(changes=self.open()))
        one, other = self.connect(server), self.connect(server)
        old = one.commit({1: b'old'})
        disk.hold_syncs()
        one.vote({1: b'new'}, old)
        finish = one.ask_finish()
        disk.wait_for_sync()
        other.begin()
        other.post('checkCurrentSerialInTransaction', oid(1), old, other.id)
        other.store(2, b'depends on it')
        vote = other.ask('vote', other.id)
        disk.release_syncs()
        one.answer(finish)
        with self.assertRaisesRegex(ErrorReply, 'ReadConflictError'):
            other.answer(vote)


class Ends(Served):

    def test_a_signal_comes_between_two_callbacks(self):
        """Everybody was told of a commit, or nobody."""
        runner = Runner(mock.Mock(storages=()))
        told = []

        def announce(service, batch):
            runner.handle_sigterm()  # an exception here would tell half
            told.append([news.tid for news in batch])
            return tell(service, batch)

        tell = Service._tell
        with mock.patch.object(Service, '_tell', announce):
            runner.server = server = self.serve()
            peer = self.connect(server)
            tid = peer.commit({1: b'data'})
            self.assertEqual(told, [[tid]])

    def test_it_ends_while_a_pack_waits_for_it(self):
        """A pack that drains waits for a commit to be published."""
        disk = self.controlled_disk()
        storage = self.open()
        server = self.serve(storage)
        peer, voter = self.connect(server), self.connect(server)
        disk.hold_syncs()
        peer.vote({1: b'data'})
        peer.ask_finish()
        disk.wait_for_sync()
        packing = Thread(self.hold_still, storage)
        until(storage._commit_lock.locked, 'the pack has the commit lock')
        voter.ask_vote({2: b'waits for the lock'})
        server.acceptor.event_loop.call_soon_threadsafe(
            server.acceptor.event_loop.stop)
        until(lambda: not server.acceptor.event_loop.is_running(), 'it ends')
        closing = Thread(server.close)
        disk.release_syncs()
        packing.result()
        closing.result()

    @staticmethod
    def hold_still(storage):
        storage.hold_still()
        storage.move_on()
