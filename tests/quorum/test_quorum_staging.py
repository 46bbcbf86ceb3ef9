"""The blobs of a vote are in the log before a batch names them (I11); its vote
waits for that, and nobody else does.  Goes with
`quorum/leading/staging.py`.
"""

import os
import threading

from ZODB.POSException import ConflictError
from ZODB.POSException import StorageError

from fsyncstorage.errors import ConflictsLeft
from fsyncstorage.errors import LeaderChanged
from fsyncstorage.errors import OutcomeUnknown
from fsyncstorage.quorum.history.record import MOST
from fsyncstorage.quorum.history.staged import new_id
from fsyncstorage.quorum.history.staged import new_sum
from fsyncstorage.quorum.leading import held as counted
from fsyncstorage.quorum.leading import loglimit
from fsyncstorage.quorum.leading import tidying
from fsyncstorage.quorum.log import outage
from fsyncstorage.quorum.log.interface import Unanswered
from fsyncstorage.server import ballot
from fsyncstorage.server import committer
from fsyncstorage.storage.told import ForAClient

from ..server.serving import Served
from ..server.serving import record
from ..support import PATIENCE
from ..support import Thread
from ..support import begin
from ..support import commit
from ..support import oid
from ..support import owners
from ..support import until
from .blobnodes import BlobNodeTest
from .fakelog import MEMBERS
from .fakelog import FakeLog
from .fakelog import Fault
from .nodes import NodeTest
from .nodes import led
from .nodes import state_behind


class StagingTest(BlobNodeTest):

    def chunks(self, id):
        return [data for (each, _), data in sorted(self.engine.blobs.items())
                if each == id]

    def nothing_is_left(self):
        until(lambda: not self.engine.blobs, 'all chunks are removed')
        self.assertEqual(self.blob_files('a'), {})
        self.assertEqual(self.lists('a'), [])


class InTheLog(StagingTest):

    def test_what_a_record_names(self):
        storage = self.lead()
        content = os.urandom(2 * MOST + 7)
        tid = self.commit_blobs(storage, {1: content, 2: b'', 3: b'small'})
        one, empty, small = self.blobs_in_the_log()
        self.assertEqual((one.oid, one.tid, one.size),
                         (oid(1), tid, len(content)))
        self.assertEqual([*map(len, self.chunks(one.staged))],
                         [MOST, MOST, 7])
        self.assertEqual(b''.join(self.chunks(one.staged)), content)
        checksum = new_sum()
        checksum.update(content)
        self.assertEqual(one.checksum, checksum.digest())
        self.assertEqual((empty.size, self.chunks(empty.staged)), (0, []))
        self.assertEqual(self.chunks(small.staged), [b'small'])
        with open(storage.loadBlob(oid(1), tid), 'rb') as file:
            self.assertEqual(file.read(), content)
        self.has_what_the_log_has()


class NobodyWaits(StagingTest):
    """For a vote that stages: it has no lock, and no turn."""

    def test_for_any_object(self):
        storage = self.lead()
        first = commit(storage, {1: b'x'})
        begun, go_on = threading.Event(), threading.Event()
        storage.line.before_stage = lambda: (
            begun.set(), go_on.wait(PATIENCE))
        large = self.begin_blobs(storage, {2: b'blob'})
        storage.store(oid(1), first, b'y', '', large)
        vote = Thread(storage.tpc_vote, large)
        assert begun.wait(PATIENCE)
        commit(storage, {3: b'x'})                   # another object
        commit(storage, {1: b'z'}, {1: first})       # one of its objects
        undo = begin(storage)                        # one that is alone
        storage.undo(storage.undoLog(0, 1)[0]['id'], undo)
        storage.tpc_vote(undo)
        storage.tpc_finish(undo)
        self.assertTrue(vote.is_alive())
        go_on.set()
        with self.assertRaises(ConflictError):
            vote.result()
        storage.tpc_abort(large)
        self.nothing_is_left()
        self.has_what_the_log_has()


class NoMajority(StagingTest):

    def setUp(self):
        super().setUp()
        self.patch(outage, TROUBLE_AFTER=0.0)

    def waiting(self, storage):
        transaction = self.begin_blobs(storage, {1: b'blob'})
        storage.line.is_away = True
        vote = Thread(storage.tpc_vote, transaction)
        until(lambda: storage.replica.trouble, 'it waits, and says so')
        self.assertIn('a vote with blobs waits', storage.replica.trouble)
        return transaction, vote

    def test_it_waits_and_goes_on(self):
        storage = self.lead()
        with self.assertLogs('fsyncstorage', 'WARNING') as logs:
            transaction, vote = self.waiting(storage)
            until(lambda: logs.output, 'said')
            storage.line.is_away = False
            vote.result()
        self.assertIsNone(storage.replica.trouble)
        self.assertIn('its log answers again', logs.output[-1])
        storage.tpc_finish(transaction)
        self.assertEqual(len(self.blobs_in_the_log()), 1)

    def test_a_close(self):
        """I10."""
        storage = self.lead()
        _, vote = self.waiting(storage)
        storage.close()
        with self.assertRaisesRegex(LeaderChanged, 'is being closed'):
            vote.result()

    def test_the_fence(self):
        storage = self.lead()
        transaction = self.begin_blobs(storage, {1: b'blob'})
        entered = threading.Event()

        def unanswered():
            entered.set()
            raise Unanswered('no majority')

        storage.line.before_stage = unanswered
        vote = Thread(storage.tpc_vote, transaction)
        assert entered.wait(PATIENCE)
        led(FakeLog(self.engine), state_behind(self.engine), 'other')
        with self.assertLogs('fsyncstorage', 'WARNING'):
            with self.assertRaises(OutcomeUnknown):
                commit(storage, {2: b'x'})
            with self.assertRaisesRegex(LeaderChanged, 'come into its log'):
                vote.result()


class RoomTest(StagingTest):
    """A log that has room for so many bytes."""

    LIMIT = 1000

    def setUp(self):
        super().setUp()
        self.patch(loglimit, PAUSE=0.01, TROUBLE_AFTER=0.05)
        self.patch(counted, GRAIN=1)
        self.storage = self.lead()
        self.limit = self.storage.replica._limit
        self.limit.limit = self.limit.named + self.LIMIT

    @property
    def staged(self):
        return self.limit.size - self.limit.named


class NoRoomInTheLog(RoomTest):
    """What votes have staged counts for log-limit."""

    def waiting(self, contents):
        """A vote that waits for room, in a thread."""
        transaction = self.begin_blobs(self.storage, contents)
        before = len(self.limit._line)
        voting = Thread(self.storage.tpc_vote, transaction)
        until(lambda: len(self.limit._line) > before, 'it waits')
        return transaction, voting

    def test_two_that_do_not_fit_together(self):
        """The second one has staged nothing yet, and says why it waits."""
        first = self.vote_blobs(self.storage, {1: bytes(600)})
        with self.assertLogs(loglimit.__name__, 'WARNING') as said:
            second, voting = self.waiting({2: bytes(300), 3: bytes(300)})
            until(lambda: said.output, 'said')
            self.assertIn('votes with blobs wait until others end',
                          self.storage.replica.trouble)
            self.assertIn('600 of blobs', self.storage.replica.trouble)
            self.assertEqual(len(self.engine.all_staged()), 1)
            self.assertEqual(owners(self.storage._turns), 1)
            self.storage.tpc_abort(first)
            voting.result()
            self.assertEqual(self.staged, 600)
            until(lambda: len(said.output) > 1, 'that it goes on')
            self.assertIn('has room again', said.output[1])
        self.storage.tpc_finish(second)
        self.assertIsNone(self.storage.replica.trouble)
        self.assertEqual(self.staged, 0)

    def test_first_come_first_served(self):
        """One that is small passes no large one."""
        first = self.vote_blobs(self.storage, {1: bytes(600)})
        large, voting_large = self.waiting({2: bytes(900)})
        small, voting_small = self.waiting({3: bytes(100)})
        self.storage.tpc_abort(first)
        voting_large.result()
        until(lambda: self.staged == 1000, 'and the small one fits')
        voting_small.result()
        for each in large, small:
            self.storage.tpc_abort(each)
        until(lambda: self.staged == 0, 'all is given back')

    def test_an_abort_by_another_thread(self):
        """Its vote ends when it is decided about the room, and keeps nothing.
        """
        first = self.vote_blobs(self.storage, {1: bytes(600)})
        second, voting = self.waiting({2: bytes(600)})
        self.storage.tpc_abort(second)
        self.storage.tpc_abort(first)
        with self.assertRaises((StorageError, FileNotFoundError)):
            voting.result()
        self.assertEqual(len(self.limit._line), 0)
        until(lambda: self.staged == 0, 'all is given back')
        self.nothing_is_left()


class Again(RoomTest):

    LIMIT = 5000

    def test_a_vote_that_is_made_again_leaves_the_log_until_then(self):
        """A client that resolves a conflict may take its time."""
        storage = self.storage
        storage.distrust_records(resolve=False)
        serial = commit(storage, {5: b'x'})
        transaction = self.begin_blobs(storage, {2: bytes(600)})
        storage.store(oid(5), serial, b'y', '', transaction)

        def change():
            storage.line.before_stage = lambda: None
            commit(storage, {5: b'z'}, {5: serial})

        storage.line.before_stage = change
        with self.assertRaises(ConflictsLeft):
            storage.tpc_vote(transaction, True, ForAClient(True, True))
        until(lambda: self.staged == 0, 'it has left the log')
        storage.store(oid(5), storage.getTid(oid(5)), b'y', '', transaction)
        storage.tpc_vote(transaction, True, ForAClient(True, True))
        self.assertEqual(self.staged, 600)
        storage.tpc_finish(transaction)
        until(lambda: self.staged == 0, 'it has left the log')


class Failing(StagingTest):

    def test_no_room(self):
        storage = self.lead()
        content = {1: bytes(3 * MOST)}
        transaction = self.begin_blobs(storage, content)

        def full_at_the_second():
            self.engine.is_full = bool(self.engine.blobs)

        storage.line.before_stage = full_at_the_second
        with self.assertRaisesRegex(
                StorageError, 'no room for the blobs.*Nothing of it'):
            storage.tpc_vote(transaction)
        storage.tpc_abort(transaction)
        self.nothing_is_left()
        storage.line.before_stage = lambda: None
        self.engine.is_full = False
        self.commit_blobs(storage, content)
        self.has_what_the_log_has()

    def test_an_abort(self):
        storage = self.lead()
        for way in 'voted', 'not answered':
            with self.subTest(way):
                transaction = self.vote_blobs(
                    storage, {1: b'x', 2: bytes(MOST + 1)})
                self.assertEqual(len(self.engine.blobs), 3)
                if way != 'voted':
                    storage.line.faults.extend([Fault.BEFORE] * 3)
                storage.tpc_abort(transaction)
                self.nothing_is_left()


class Removed(StagingTest):
    """What no record names, and no vote has."""

    def setUp(self):
        super().setUp()
        self.storage = self.lead()
        for number in range(2, 12):  # more than one read has
            commit(self.storage, {number: b'x'})
        self.commit_blobs(self.storage, {1: b'used'})
        self.used = self.engine.all_staged()

    def left(self, epoch=1):
        """A blob that nobody has any more; its id."""
        id = new_id(epoch)
        for number in range(2):
            self.engine.stage(id, number, b'chunk')
        return id

    def test_what_earlier_writers_have_left(self):
        """And nothing of a later one, of which this one need not know."""
        self.storage.close()
        self.left()
        later = self.left(epoch=99)
        with self.assertLogs(tidying.__name__, 'INFO') as logs:
            self.lead()
        self.assertEqual(self.engine.all_staged(), {*self.used, later})
        self.assertIn('1 blobs', logs.output[0])

    def test_not_before_all_is_known(self):
        self.storage.close()
        self.left()
        there, number = self.engine.all_staged(), self.engine.head.sequence
        for member in range(MEMBERS):
            self.engine.damage(member, number, 999)
        with self.assertLogs(tidying.__name__, 'ERROR') as logs:
            NodeTest.lead(self, blob_dir=self.blob_dir('a'))
            until(lambda: logs.output, 'it says so')
        self.assertIn(f'record {number},', logs.output[0])
        self.assertEqual(self.engine.all_staged(), there)

    def test_what_is_staged_and_named_meanwhile(self):
        """An id is under way before it is there, and named before it stops
        being under way."""
        transaction = self.vote_blobs(self.storage, {20: b'x'})
        real, looks, voted = self.engine.all_staged, [], []

        def meanwhile():
            if not looks:
                voted.append(self.vote_blobs(self.storage, {21: b'x'}))
            looks.append(real())
            if len(looks) == 1:
                self.storage.tpc_finish(transaction)
            return looks[-1]

        self.patch(self.engine, all_staged=meanwhile)
        self.patch(tidying, SWEPT_EVERY=0.01)
        until(lambda: len(looks) > 1, 'it has looked')
        self.assertEqual(len(real()), 3)



class WaitingInAServer(RoomTest, Served):

    def test_only_other_blobs_wait(self):
        """However many wait for room in the log, and for however long."""
        self.patch(loglimit, LONGEST_STILL=3600.0)
        first = self.vote_blobs(self.storage, {1: bytes(600)})
        server = self.serve(self.storage)
        for number in range(committer.VOTERS + 1):
            peer = self.connect(server)
            peer.begin()
            peer.send_blob(2 + number, bytes(600))
            peer.ask('vote', peer.id)
        until(lambda: len(self.limit._line) == committer.VOTERS, 'they wait')
        self.patch(ballot, SMALL=0)  # a thread votes the next one
        self.connect(server).commit({50: record()})
        self.storage.tpc_abort(first)
