"""Clients that are voted at the same time, over the network (I12)."""

import base64
import random
import threading
import time
from unittest import mock

from ZEO.StorageServer import never_resolve_conflict
from ZODB.blob import BlobStorage
from ZODB.MappingStorage import MappingStorage
from ZODB.POSException import POSKeyError
from ZODB.utils import z64

from fsyncstorage.errors import SyncFailed
from fsyncstorage.server import ballot
from fsyncstorage.server import committer

from ..often import often
from ..support import Thread
from ..support import commit
from ..support import oid
from ..support import until
from .serving import ErrorReply
from .serving import Served
from .serving import ServedFromControlledDisk
from .serving import counter
from .serving import record
from .serving import state_of


class SideBySide(ServedFromControlledDisk):

    level = 2

    def voted(self, number):
        peer = self.connect(self.server)
        peer.vote({number: b'x'})
        return peer

    def waiting(self, number, others=0):
        """A client that waits for an object, and its vote."""
        peer = self.connect(self.server)
        asked = peer.ask_vote({number: b'y'})
        until(lambda: self.committer.waiting == others + 1, 'it waits')
        return peer, asked

    def test_an_abort_that_comes_too_late(self):
        """The client hears of its own commit as of one of others."""
        peer = self.voted(1)
        self.disk.hold_syncs()
        finish = peer.ask_finish()
        self.disk.wait_for_sync()
        peer.abort()
        self.disk.release_syncs()
        peer.wait_for_invalidations(1)
        (tid, oids), = peer.invalidations
        self.assertEqual(oids, [oid(1)])
        self.assertEqual(peer.load(1), (b'x', tid))
        self.assertNotIn(finish, peer.replies)
        peer.vote({2: b'x'})
        peer.finish()

    def test_a_client_that_never_finishes(self):
        """All others go on; those that want its objects wait in order."""
        server = self.serve(self.open('other.fs'), transaction_timeout=2)
        slow, first, second, other = (
            self.connect(server) for _ in range(4))
        slow.vote({1: b'never'})
        votes = []
        for peer in first, second:
            votes.append(peer.ask_vote({1: b'x'}))
            peer.ping()
        with self.assertLogs('ZEO.StorageServer', 'CRITICAL') as logs:
            other.commit({2: b'x'})
            first.answer(votes[0])
        self.assertIn('Transaction timeout', logs.output[0])
        first.abort()
        second.answer(votes[1])
        second.finish()

    def test_an_abort_beside_a_blob_in_a_blob_storage(self):
        """A BlobStorage takes any abort for that of its one transaction."""
        storage = BlobStorage(self.path('blobs'), MappingStorage())
        server = self.serve(storage)
        voted, begun, outside = (self.connect(server) for _ in range(3))
        voted.begin()
        voted.send_blob(1, b'blob')
        voted.call('vote', voted.id)
        begun.begin()
        begun.store(2, b'x')
        begun.abort()
        outside.ask_vote({3: b'x'})
        outside.abort()
        # In the thread that aborts, the finish is behind the aborts.
        tid = voted.finish()
        with open(storage.loadBlob(oid(1), tid), 'rb') as file:
            self.assertEqual(file.read(), b'blob')


class PutAside(ServedFromControlledDisk):
    """Conflicts with a transaction that is appended, and not published (I6).

    It is on its way to the disk: a client that retried now would meet it
    again.  So such a vote is put aside, and repeated when that transaction is
    published.
    """

    level = 2

    def setUp(self):
        super().setUp()
        self.first, self.second, self.third = (
            self.connect(self.server) for _ in range(3))
        self.serial = self.first.commit(
            {1: counter(0), 2: b'old', 3: b'x'})
        for peer in self.second, self.third:
            peer.wait_for_invalidations(1)

        # No process has to be started to find out.
        self.storage.tryToResolveConflict = never_resolve_conflict

    def append(self, records):
        """Have the first client's commit wait for the disk."""
        self.first.vote(records, self.serial)
        self.disk.hold_syncs()
        self.finish = self.first.ask_finish()
        self.disk.wait_for_sync()

    def test_its_sync_fails_in_another_thread(self):
        """Which tells the committer nothing."""
        self.disk.hold_syncs()
        direct = Thread(
            commit, self.storage, {2: b'direct'}, {2: self.serial})
        self.disk.wait_for_sync()
        vote = self.second.ask_vote({2: b'second'}, self.serial)
        until(lambda: self.committer.waiting == 1, 'put aside')
        with self.assertLogs('fsyncstorage', 'ERROR'):
            self.disk.fail_sync(OSError(5, 'Input/output error'))
            self.disk.release_syncs()
            with self.assertRaises(SyncFailed):
                direct.result()
            with self.assertRaisesRegex(ErrorReply, 'WritingStopped'):
                self.second.answer(vote)

    def publish(self):
        self.disk.release_syncs()
        return self.first.answer(self.finish)

    def check_put_aside(self):
        """Return when the second client's vote was tried, to no result; the
        third client commits meanwhile."""
        until(lambda: self.committer.waiting == 1, 'put aside')
        self.third.vote({4: b'third'})
        self.assertEqual(self.committer.waiting, 1)
        self.second.ping()
        self.assertEqual(self.second.replies, {})
        self.thirds_finish = self.third.ask_finish()

    def check_conflict(self, vote, name='ConflictError'):
        """Who is refused was told before what it conflicts with."""
        self.check_put_aside()
        told = len(self.second.invalidations)
        tid = self.publish()
        with self.assertRaises(ErrorReply) as caught:
            self.second.answer(vote)
        self.assertEqual(caught.exception.name, name)
        self.assertIn(tid, [each for each, _ in
                            self.second.invalidations[told:]])
        self.assertGreater(self.third.answer(self.thirds_finish), tid)
        # The retry is no conflict.
        self.second.commit({2: b'again'}, self.second.load(2)[1])

    def test_a_check_of_a_serial(self):
        self.append({2: b'new'})
        self.second.begin()
        self.second.post('checkCurrentSerialInTransaction',
                         oid(2), self.serial, self.second.id)
        self.check_conflict(self.second.ask('vote', self.second.id),
                            'ReadConflictError')

    def test_an_undo(self):
        self.serial = undone = self.first.commit(
            {2: record('to undo')}, self.serial)
        self.append({2: b'new'})
        self.second.begin()
        self.second.post('undoa', base64.encodebytes(undone).rstrip(),
                         self.second.id)
        self.check_conflict(
            self.second.ask('vote', self.second.id), 'MultipleUndoErrors')

    def test_a_deletion(self):
        self.append({2: b'new'})
        self.second.begin()
        self.second.post(
            'deleteObject', oid(2), self.serial, self.second.id)
        self.check_conflict(self.second.ask('vote', self.second.id))

    def test_what_can_be_resolved_need_not_wait(self):
        """It is resolved with the appended data."""
        del self.storage.tryToResolveConflict
        self.append({1: counter(5)})
        self.assertEqual(
            self.second.vote({1: counter(20)}, self.serial), [oid(1)])
        finish = self.second.ask_finish()
        tid = self.publish()
        self.assertGreater(self.second.answer(finish), tid)
        self.assertEqual(state_of(self.second.load(1)[0]), 25)

    def test_the_sync_fails(self):
        """Nobody waits for ever for what is never published."""
        self.append({2: b'new'})
        vote = self.second.ask_vote({2: b'mine'}, self.serial)
        self.check_put_aside()
        self.disk.fail_sync(OSError(5, 'Input/output error'))
        with self.assertLogs('fsyncstorage', 'ERROR'):
            with self.assertRaises(ErrorReply) as caught:
                self.publish()
            self.assertEqual(caught.exception.name, 'SyncFailed')
            with self.assertRaises(ErrorReply) as caught:
                self.second.answer(vote)
        self.assertEqual(caught.exception.name, 'WritingStopped')


class Room(Served):
    """Where votes run, and how many at a time."""

    def setUp(self):
        super().setUp()
        self.storage = self.open()
        self.patch(committer, ROOM=3000)
        server = self.serve(self.storage)
        self.peers = [self.connect(server) for _ in range(3)]

    def check_one_at_a_time(self, first, second, asked):
        second.ping()
        self.assertNotIn(asked, second.replies)
        first.abort()
        second.answer(asked)
        second.finish()

    def test_giants_go_in_one_at_a_time_beside_the_others(self):
        first, second, other = self.peers
        first.vote(dict.fromkeys(range(9), b'x'))
        asked = second.ask_vote(dict.fromkeys(range(10, 19), b'x'))
        other.commit({20: b'x'})
        self.check_one_at_a_time(first, second, asked)

    def test_an_undo_is_a_giant(self):
        """It may take more memory than anybody knows."""
        for number in 1, 2:
            commit(self.storage, {number: record()})
        first, second, _ = self.peers
        asked = []
        for peer, log in zip(self.peers, self.storage.undoLog(0, 2)):
            peer.begin()
            peer.post('undoa', log['id'], peer.id)
            asked.append(peer.ask('vote', peer.id))
            peer.ping()  # it is in before the next one comes
        first.answer(asked[0])
        self.check_one_at_a_time(first, second, asked[1])

    def test_no_code_of_users_in_the_loop(self):
        """Nor if another thread appends after the loop has looked."""
        resolve, threads = self.storage.tryToResolveConflict, []

        def note(*args, **options):
            threads.append(threading.current_thread().name)
            return resolve(*args, **options)

        self.patch(self.storage, tryToResolveConflict=note)
        first, second, _ = self.peers
        serial = first.commit({1: counter(0)})
        first.commit({1: counter(1)}, serial)
        second.vote({1: counter(10)}, serial)
        second.abort()
        with mock.patch.object(
                self.storage, 'vote_is_plain', return_value=True):
            second.commit({1: counter(10)}, serial)
        self.assertEqual(state_of(self.storage.load(oid(1))[0]), 11)
        self.assertEqual(
            [name.startswith('voter of') for name in threads],
            [True] * len(threads))
        self.assertGreaterEqual(len(threads), 2)

    def test_behind_a_disk_that_was_slow(self):
        """Threads do the next steps, for a while."""
        write, vote = self.storage._append_shared, self.storage.tpc_vote
        now, in_threads = [time.monotonic()], []

        def slowly(*arguments):
            now[0] += committer.LONG + 1
            threading.Event().wait(0.001)  # the system counts it
            return write(*arguments)

        def noted(*arguments):
            name = threading.current_thread().name
            in_threads.append(name.startswith('voter of'))
            return vote(*arguments)

        clock = mock.Mock(monotonic=lambda: now[0], time=time.time)
        self.patch(self.storage, tpc_vote=noted)
        self.patch(committer, time=clock)
        peer, _, _ = self.peers
        with mock.patch.object(self.storage, '_append_shared', slowly):
            peer.commit({1: b'x'})
        peer.commit({2: b'x'})
        now[0] += committer.RETREAT
        peer.commit({3: b'x'})
        self.assertEqual(in_threads, [False, True, False])


class Incrementing:
    """A client that increments numbers, and takes one step at a time."""

    def __init__(self, history):
        self._history = history
        self.reconnect()

    def reconnect(self):
        self.peer = self._history.connect(self._history.server)
        self.state = 'idle'

    def begin(self, numbers):
        self.numbers = numbers
        self.peer.begin()
        for number in numbers:
            value, serial = self._history.read(number)
            make = counter if number % 2 else record
            self.peer.store(number, make(value + 1), serial)
        self.asked = self.peer.ask('vote', self.peer.id)
        self.state = 'voting'

    def look(self):
        """Take the answer, if it has come."""
        self.peer.ping()
        if self.asked not in self.peer.replies:
            return
        try:
            self.peer.answer(self.asked)
        except ErrorReply as error:
            assert error.name == 'ConflictError', error
            self.abort()
        else:
            if self.state == 'finishing':
                self.state = 'idle'
            else:
                self.state = 'voted'

    def finish(self):
        self.asked = self.peer.ask_finish()
        self.peer.ping()  # it was read: nothing keeps it from being committed
        self.state = 'finishing'
        self._history.finished(self.numbers)

    def abort(self):
        self.peer.abort()
        self.state = 'idle'

    def vanish(self):
        self.peer.close()
        self.reconnect()


class AnyOrder(Served):
    """Votes, finishes, aborts and lost connections in any order: an update
    that is lost, or committed twice or not at all, shows in the sum."""

    level = 2

    def test_random_histories(self):
        for seed in range(often(6, 500)):
            with self.subTest(seed), mock.patch.object(
                    ballot, 'SMALL', seed % 2 and ballot.SMALL):
                self.check(random.Random(seed), f'{seed}.fs')

    def check(self, choice, name):
        self.storage = self.open(name, durability='none')
        self.server = self.serve(self.storage)
        #: number -> how often it was incremented.
        self.sums = dict.fromkeys(range(4), 0)
        clients = [Incrementing(self) for _ in range(4)]
        for _ in range(150):
            self.step(choice, choice.choice(clients))
        until(lambda: self.all_are_idle(clients), 'nobody waits for ever')
        for number, expected in self.sums.items():
            self.assertEqual(self.read(number)[0], expected)
        service = self.server.services['1']
        until(lambda: not service.stats.active_txns, 'nothing is left')
        self.assertEqual(service.committer.ballots(), set())
        self.assertEqual(self.storage._begun, {})
        for client in clients:
            client.peer.close()
        self.server.close()

    def step(self, choice, client):
        if client.state == 'idle':
            client.begin(choice.sample(range(4), choice.randrange(1, 4)))
        elif choice.random() < 0.1:
            client.vanish()
        elif client.state == 'voted':
            (client.finish if choice.random() < 0.7 else client.abort)()
        elif client.state == 'voting' and choice.random() < 0.1:
            client.abort()
        else:
            client.look()

    def all_are_idle(self, clients):
        for client in clients:
            if client.state == 'voted':
                client.finish()
            elif client.state != 'idle':
                client.look()
        return all(client.state == 'idle' for client in clients)

    def finished(self, numbers):
        for number in numbers:
            self.sums[number] += 1

    def read(self, number):
        try:
            data, serial = self.storage.load(oid(number))
        except POSKeyError:
            return 0, z64
        state = state_of(data)
        return state if number % 2 else state['data']['value'], serial
