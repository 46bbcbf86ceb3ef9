"""What stock's server does wrong, and ours does not.

(The lock that it keeps after a timeout is in test_server_ballots.)
"""

import asyncio
import os
import threading
from unittest import mock

import ZEO
import ZEO.asyncio.server
from ZODB.POSException import ConflictError
from ZODB.POSException import ReadConflictError
from ZODB.utils import maxtid
from ZODB.utils import z64

from fsyncstorage.server import quiet

from ..often import often
from ..support import Thread
from ..support import commit
from ..support import oid
from .serving import ErrorReply
from .serving import Served
from .serving import counter
from .serving import record
from .test_server_ends import OwnVote

try:
    import uvloop
except ImportError:
    uvloop = None


class ResolvingClients(Served):

    def setUp(self):
        super().setUp()
        self.storage = self.open(blob_dir=self.path('blobs'))
        self.server = self.serve(
            self.storage, client_conflict_resolution=True)
        self.peer = self.connect(self.server)
        self.first = self.peer.commit({1: counter(0)})
        self.second = self.peer.commit({1: counter(1)}, self.first)

    def ask_vote_with_conflict(self):
        self.peer.begin()
        self.peer.store(1, counter(10), self.first)
        self.peer.send_blob(2, b'a blob')
        return self.peer.call('vote', self.peer.id)

    def test_a_blob_survives_the_second_vote(self):
        self.assertEqual(self.ask_vote_with_conflict(), [dict(
            oid=oid(1), serials=(self.second, self.first), data=counter(10))])
        self.peer.store(1, counter(11), self.second)
        self.assertEqual(self.peer.call('vote', self.peer.id), [])
        tid = self.peer.finish()
        self.assertEqual(self.peer.load(1), (counter(11), tid))
        self.assertEqual(self.peer.load(2), (record(), tid))
        with open(self.storage.loadBlob(oid(2), tid), 'rb') as file:
            self.assertEqual(file.read(), b'a blob')
        self.assertEqual(os.listdir(self.storage.temporaryDirectory()), [])

    def test_others_change_it_after_each_vote(self):
        """A stock client would finish after its ninth vote in any case."""
        other = self.connect(self.server)
        self.peer.begin()
        self.peer.store(1, counter(10), self.first)
        for _ in range(8):
            conflict, = self.peer.call('vote', self.peer.id)
            current, _ = conflict['serials']
            self.peer.store(1, counter(11), current)
            other.commit({1: counter(1)}, current)
        with self.assertRaisesRegex(ErrorReply, 'ConflictError'):
            self.peer.call('vote', self.peer.id)
        self.peer.commit({2: counter(0)})

    def test_a_conflict_that_the_vote_finds(self):
        """Of a storage of others.  It is behind all that was stored, and does
        not say what."""
        storage = OwnVote(self.path('other'))
        self.addCleanup(storage.close)
        peer = self.connect(self.serve(
            storage, client_conflict_resolution=True))
        first = peer.commit({1: counter(0)})
        error = ConflictError(oid=oid(1), serials=(self.second, first))
        with mock.patch.object(storage, 'tpc_vote', side_effect=error):
            self.assertEqual(peer.vote({1: counter(10)}, first), [
                dict(oid=oid(1), serials=(self.second, first),
                     data=counter(10))])

    def test_a_conflict_of_what_is_not_stored(self):
        """It cannot be resolved."""
        error = ReadConflictError(
            oid=oid(2), serials=(self.second, self.first))
        with mock.patch.object(self.storage, 'tpc_vote', side_effect=error):
            with self.assertRaisesRegex(ErrorReply, 'ReadConflictError'):
                self.peer.vote({1: counter(10)}, self.second)


class LostTail(Served):
    """A server that lost the end of its file, and went on without it."""

    def setUp(self):
        super().setUp()
        storage = self.open()
        oldest = commit(storage, {1: record(0)})
        older = commit(storage, {1: record(1)}, {1: oldest})
        size = storage.getSize()
        self.lost = commit(storage, {1: record(2)}, {1: older})
        storage.close()
        os.truncate(self.path(), size)
        os.remove(self.path('Data.fs.index'))
        storage = self.open()
        self.newest = commit(storage, {2: record()})
        storage.close()
        self.kept = self.newest, older, oldest

    def answers(self, **options):
        peer = self.connect(self.serve(**options))
        answers = [peer.call('getInvalidations', tid)
                   for tid in (*self.kept, self.lost)]
        return [each and (each[0], sorted(each[1])) for each in answers]

    def test_the_queue_knows_what_was_lost(self):
        self.assertEqual(self.answers(), [
            (self.newest, []),
            (self.newest, [oid(2)]),
            (self.newest, [oid(1), oid(2)]),
            None])

    def test_so_does_a_look_up_in_the_file(self):
        self.assertEqual(
            self.answers(invalidation_queue_size=1, invalidation_age=1 << 40),
            [(self.newest, []),
             (self.newest, [oid(2)]),
             (self.newest, [oid(1), oid(2)]),
             None])

    def test_too_old_for_a_look_up(self):
        self.assertEqual(
            self.answers(invalidation_queue_size=1),
            [(self.newest, []), None, None, None])


class NobodyWaits(Served):
    """A client calls what answers later, and says that it does not wait."""

    CALLS = [
        ('undoLog', 0, 20), ('undoInfo', 0, 20, None), ('history', oid(1), 2),
        ('loadBefore', oid(3), maxtid), ('loadSerial', oid(1), z64),
        ('getTid', oid(1)), ('new_oids', 3), ('iterator_start', None, None),
        ('record_iternext', None),
        ('sendBlob', oid(1), z64), ('vote', 7),
    ]

    def test_no_thread_is_left(self):
        """Stock leaks one a call of undoLog."""
        server = self.serve()
        peer = self.connect(server)
        peer.commit({1: record()})
        before = threading.active_count()
        for call in self.CALLS:
            with self.subTest(call[0]):
                rude = self.connect(server)
                rude.begin()
                quiet.said.allowances.clear()
                with self.assertLogs('fsyncstorage.server', 'ERROR'):
                    rude.post(*call)
                    rude.wait_for_end()
        peer.commit({2: record()})
        self.assertLessEqual(threading.active_count(), before)


class Overtaking(Served):
    """Tids rise strictly on each connection."""

    level = 2

    CLIENTS = 8
    ROUNDS = often(15, 40)

    def commit_from_many_clients(self, new_event_loop):
        patch = mock.patch.object(
            ZEO.asyncio.server, 'new_event_loop', new_event_loop)
        with patch:
            server = self.serve()
        peers = [self.connect(server) for _ in range(self.CLIENTS)]
        threads = [Thread(self.work, peer, number)
                   for number, peer in enumerate(peers)]
        for thread in threads:
            thread.result()
        for peer in peers:
            peer.ping()
            self.assertEqual(peer.tids, sorted(set(peer.tids)))
            self.assertEqual(len(peer.invalidations),
                             (self.CLIENTS - 1) * self.ROUNDS)

    def work(self, peer, number):
        serial = z64
        for _ in range(self.ROUNDS):
            serial = peer.commit({number: record()}, serial)
            self.assertEqual(peer.load(number), (record(), serial))
            peer.call('getTid', oid(number))

    def test_asyncio(self):
        self.commit_from_many_clients(asyncio.new_event_loop)

    if uvloop is not None:
        def test_uvloop(self):
            self.commit_from_many_clients(uvloop.new_event_loop)
