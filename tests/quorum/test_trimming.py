"""The log is trimmed by what all nodes have kept, and by nothing else; and
what happens at its limit (I16)."""

import random
import threading
from unittest import mock

from ZODB.POSException import StorageTransactionError

from fsyncstorage.quorum.history.record import Blob
from fsyncstorage.quorum.history.record import Place
from fsyncstorage.quorum.history.record import Trim
from fsyncstorage.quorum.history.record import parse
from fsyncstorage.quorum.history.record import place_of
from fsyncstorage.quorum.history.staged import new_id
from fsyncstorage.quorum.leading import held
from fsyncstorage.quorum.leading import loglimit
from fsyncstorage.quorum.leading import trimming
from fsyncstorage.quorum.leading.earlier import Earlier
from fsyncstorage.quorum.leading.loglimit import LogLimit
from fsyncstorage.quorum.leading.loglimit import Trims
from fsyncstorage.quorum.leading.trimming import Trimming
from fsyncstorage.quorum.leading.writer import Fenced
from fsyncstorage.quorum.log.interface import Full
from fsyncstorage.quorum.log.interface import Unanswered
from fsyncstorage.quorum.log.notes import Note

from ..support import TestCase
from ..support import Thread
from ..support import commit
from ..support import until
from ..support import vote
from .blobnodes import BlobNodeTest
from .fakelog import FakeLog
from .fakelog import Fault
from .logged import Logged
from .nodes import NodeTest
from .samples import OTHER
from .samples import SELF
from .samples import data
from .samples import settle

A, B, C = (name.ljust(16, b'\0') for name in (b'a', b'b', b'c'))
TRIMMING = 'fsyncstorage.quorum.leading.trimming'


def in_time(call, *args):
    """It fails, and does not wait for ever, where nothing makes room."""
    return Thread(call, *args).result()


class Writing:
    """The node that writes."""

    def __init__(self, logged):
        self._logged = logged
        self.identity = SELF
        self.kept = logged.state

    def say(self, body):
        writer = self._logged.writer
        writer.say(body)
        settle(writer)
        return writer.state

    def keep(self):
        self.kept = self._logged.state


class RoundsCase(TestCase):

    def setUp(self):
        super().setUp()
        self.logged = Logged().lead()
        self.engine = self.logged.engine
        self.writing = Writing(self.logged)
        self.log = FakeLog(self.engine)
        self.trimming = self.of_a_node()

    def of_a_node(self, limit=0, drops=False, is_read=True):
        own = self.logged.writer.held
        self.earlier = Earlier(FakeLog(self.engine))
        self.earlier.begin(self.place(own.first))
        while is_read and not self.earlier.is_read:
            self.earlier.go_on()
        self.limit = LogLimit(limit, own, self.earlier)
        return Trimming('a test', self.log, self.writing, Trims(
            A, limit, drops), self.limit, self.earlier)

    def write(self, count=1, size=10):
        for _ in range(count):
            self.logged.write(size)
        self.writing.keep()

    def name_blob(self, size):
        """In a record of its own."""
        id = new_id(1)
        self.log.stage(id, 0, b'x')
        state = self.logged.state
        self.logged.add(10)
        content = self.logged.content[state.end:]
        self.writing.say(data(state, content, blobs=(Blob(
            id, bytes(8), bytes(8), size, bytes(32)),)))
        self.writing.keep()
        return id

    @property
    def last(self):
        """What we have kept."""
        return self.writing.kept.place.sequence

    def place(self, sequence):
        return place_of(self.engine.records[sequence - 1])

    def note(self, node, sequence):
        self.engine.note(node, Note(node, self.place(sequence)).packed())

    def trims(self):
        return [record.body.first for record in map(
            parse, self.engine.records) if isinstance(record.body, Trim)]


class Rounds(RoundsCase):

    def test_the_blobs_that_they_name_go_too(self):
        """And before them: otherwise nobody would know of these."""
        first, last = self.name_blob(1), self.name_blob(1)
        other = new_id(1)
        self.log.stage(other, 0, b'x')
        self.assertIn(first, self.engine.all_staged())
        real, seen = self.engine.trim, []
        with mock.patch.object(self.engine, 'trim', lambda first: (
                seen.append(self.engine.all_staged()), real(first))):
            self.trimming.round()
        self.assertEqual(seen, [{last, other}])

    def test_another_node_of_our_name(self):
        """What it needs is not known, so nothing is removed; its note stays,
        until it is forgotten."""
        self.write(9)
        another = Note(OTHER, self.place(3)).packed()
        self.engine.note(A, another)
        with self.assertLogs(TRIMMING, 'WARNING') as said:
            for _ in range(3):
                self.trimming._begun = None
                self.trimming._work()
        self.assertEqual(len(said.output), 1)
        self.assertIn('another node of the name', said.output[0])
        self.assertIn('another node of the name', self.limit.reason)
        self.assertEqual((self.trims(), self.engine.kept), ([], {A: another}))
        self.engine.forget(A)
        self.trimming.round()
        self.assertEqual(self.engine.first, self.last)

    def test_a_removal_that_was_broken_off_needs_no_room(self):
        """The record that permits it is in the log."""
        self.write(9)
        self.note(B, 6)
        with mock.patch.object(
                FakeLog, 'trim', side_effect=Unanswered('no majority')):
            with self.assertRaises(Unanswered):
                self.trimming.round()
        self.assertEqual((self.trims(), self.engine.first), ([6], 1))
        self.write(9)
        self.note(B, 12)
        self.engine.is_full = True
        with self.assertRaises(Full):
            self.trimming.round()
        self.assertEqual((self.trims(), self.engine.first), ([6], 6))

    def test_a_writer_that_is_fenced_removes_nothing(self):
        self.write(9)
        other = Logged(self.engine, 'other').lead()
        with self.assertRaises(Fenced):
            self.trimming.round()
        self.assertEqual(self.engine.first, 1)
        self.assertEqual(other.state.epoch, 2)

    def test_a_node_that_comes_in_between(self):
        """It has noted its place before it could see the record."""
        self.write(9)
        self.engine.landed = lambda raw: self.note(B, 3)
        self.trimming.round()
        self.engine.landed = lambda raw: None
        self.assertEqual(
            (self.trims(), self.engine.first), ([self.last], 1))
        self.trimming.round()
        self.assertEqual(
            (self.trims(), self.engine.first), ([self.last, 3], 3))

    def test_notes_that_are_none(self):
        """Nothing is removed, as the node may need it; it is said once."""
        self.write(9)
        for name in B, b'\xff\n' * 8, b'':
            for raw in b'', b'x', bytes(1024), b'\0' * 24, b'\0' * 39:
                with self.subTest(name=name, raw=raw[:3]):
                    self.engine.note(name, raw)
                    trim = self.of_a_node()
                    with self.assertLogs(TRIMMING, 'WARNING') as said:
                        trim.round()
                        trim.round()
                    self.assertEqual(len(said.output), 1)
                    self.assertTrue(said.output[0].isprintable())
                    self.assertEqual(self.engine.first, 1)
                    self.engine.forget(name)

    def test_a_node_that_was_left_behind_holds_nothing_up(self):
        self.write(9)
        self.trimming.round()
        self.note(B, 3)
        self.write(9)
        with self.assertLogs(TRIMMING, 'WARNING') as said:
            self.trimming.round()
            self.trimming.round()
        self.assertEqual(len(said.output), 1)
        self.assertRegex(
            said.output[0], 'fsync-quorum forget.*bootstrap --from')
        self.assertEqual(self.engine.first, self.last)

    def test_whatever_is_not_answered(self):
        """What a node needs is there; and the next rounds come to the end."""
        chance = random.Random(7)
        for _ in range(60):
            self.write(chance.randint(2, 5))
            needed = chance.randint(
                self.engine.first, self.writing.kept.place.sequence)
            self.note(B, needed)
            self.log.faults.extend(
                chance.choice([Fault.NONE, Fault.BEFORE, Fault.AFTER,
                               Fault.DELAYED]) for _ in range(6))
            for _ in range(8):
                try:
                    self.trimming.round()
                except Unanswered:
                    pass
                self.assertLessEqual(self.engine.first, needed)
                while self.engine.delayed and chance.random() < 0.5:
                    self.engine.deliver()
                    self.note(B, needed)
            self.log.faults.clear()
            while self.engine.delayed:
                self.engine.deliver()
            self.note(B, needed)
            self.writing.keep()
            self.trimming.round()
            self.assertGreaterEqual(self.engine.first, needed - 1)

    def test_it_is_trimmed_as_far_as_it_is_known(self):
        """A round does not wait until all is counted; and nothing goes whose
        blobs are not known."""
        self.write(30)
        self.logged.lead()
        self.writing.keep()
        trim = self.of_a_node(is_read=False)
        trim.round()
        self.assertEqual(self.engine.first, 1)
        while not self.earlier.is_read:
            self.earlier.go_on()
            trim.round()
            if not self.earlier.is_read:
                self.assertLessEqual(self.engine.first, self.earlier.next)
            self.writing.keep()
        self.assertGreater(self.engine.first, 20)
        self.assertEqual(len(self.trims()), len(set(self.trims())))
        self.assertGreater(len(self.trims()), 3)


class AtTheLimit(RoundsCase):

    def setUp(self):
        super().setUp()
        self.patch(held, GRAIN=1)
        self.patch(trimming, STANDS_STILL=0.0)

    def test_the_only_node_keeps_what_it_has_room_for(self):
        """The log is the second copy."""
        trim = self.of_a_node(limit=200_000)
        self.write(9)
        trim.round()
        self.assertEqual(self.engine.first, 1)
        self.note(B, 3)
        trim.round()
        self.assertEqual(self.engine.first, 3)
        self.engine.forget(B)
        self.write(20, size=5000)
        self.assertTrue(self.limit.is_near)
        with self.assertLogs(TRIMMING, 'WARNING') as said:
            trim.round()
            trim.round()
        self.assertEqual(len(said.output), 1)
        self.assertIn('on one disk only', said.output[0])
        self.assertEqual(self.engine.first, self.last)

    def test_the_last_blob_goes_when_somebody_wants_its_room(self):
        """Though nothing has come behind the record that names it but a Trim;
        and not before the other node has it."""
        self.patch(held, GRAIN=1000)
        trim = self.of_a_node(limit=10_000)
        self.write(3)
        blob = self.name_blob(8000)

        def go_on(is_behind):
            for _ in range(6):
                self.note(B, self.last - is_behind)
                trim.round()
                if not is_behind:
                    self.writing.keep()  # also behind a Trim

        go_on(is_behind=False)
        wanted = Thread(
            self.limit.take, 4000, lambda: None, threading.Event().wait)
        until(lambda: self.limit._line, 'it waits')
        go_on(is_behind=True)
        self.assertTrue(wanted.is_alive())
        self.assertEqual(self.engine.all_staged(), {blob})
        go_on(is_behind=False)
        wanted.result()
        self.assertEqual(self.engine.all_staged(), set())


class LeftBehind(RoundsCase):
    """Under `drop`: who does not come on, and nobody else."""

    def setUp(self):
        super().setUp()
        self.clock = mock.Mock()
        self.at(0)
        self.patch(held, GRAIN=1)
        self.patch(trimming, time=self.clock)
        self.trim = self.of_a_node(limit=50_000, drops=True)
        self.write(3)
        self.note(B, self.last)
        self.trim.round()

    def at(self, seconds):
        self.clock.monotonic.return_value = 1000.0 + seconds

    def is_left_behind(self):
        self.trim.round()
        return B not in self.engine.kept

    def test_one_that_is_well_has_some_time(self):
        """It stood still because there was nothing; then there is much."""
        self.at(3600)
        self.trim.round()
        self.write(12, size=3000)
        self.assertTrue(self.limit.lacks_room)
        self.at(3601)
        self.assertFalse(self.is_left_behind())
        self.at(3630)
        self.assertFalse(self.is_left_behind())
        self.at(3631)
        with self.assertLogs(TRIMMING, 'CRITICAL'):
            self.assertTrue(self.is_left_behind())

    def test_one_that_comes_on_is_not(self):
        self.write(12, size=3000)
        self.assertFalse(self.is_left_behind())
        for seconds in 29, 58, 87:
            self.at(seconds)
            self.note(B, self.engine.first + 1)
            for _ in range(2):  # there may be something to trim
                self.assertFalse(self.is_left_behind())
            self.assertTrue(self.limit.lacks_room)


class Served(NodeTest):
    """A storage whose log has a limit."""

    LIMIT = 20_000

    def setUp(self):
        super().setUp()
        self.patch(held, GRAIN=1)
        self.patch(trimming, SOON=0.01, STANDS_STILL=0.05)
        self.patch(loglimit, PAUSE=0.01, TROUBLE_AFTER=0.05)

    def full(self, drops=False):
        """A storage whose log is full, as another node has kept nothing."""
        self.engine.note(B, Note(B, Place(0, self.engine.log)).packed())
        storage = self.lead(trims=Trims(A, self.LIMIT, drops))
        for number in range(4):
            in_time(commit, storage, {number: bytes(5000)})
            in_time(storage.replica.keep)
        return storage

    def test_commits_wait_for_the_node_that_is_behind(self):
        """And say so; and readers do not wait."""
        storage = self.full()
        before = len(self.engine.records)
        committer = Thread(commit, storage, {9: b'x'})
        with self.assertLogs(loglimit.__name__, 'WARNING') as said:
            until(lambda: said.output, 'trouble')
        self.assertIn('the node b', storage.replica.trouble)
        self.assertIn('log-limit', said.output[0])
        self.assertTrue(committer.is_alive())
        self.assertEqual(len(self.engine.records), before)
        self.assertEqual(len(storage.load(bytes(7) + b'\1')[0]), 5000)
        self.assertGreaterEqual(storage.stats()['quorum']['log_size'], 20_000)
        self.engine.note(
            B, Note(B, place_of(self.engine.records[-1])).packed())
        committer.result()
        self.assertIsNone(storage.replica.trouble)
        self.has_what_the_log_has()

    def test_or_they_go_on_without_it(self):
        with self.assertLogs(TRIMMING, 'CRITICAL'):
            storage = self.full(drops=True)
            in_time(commit, storage, {9: b'x'})
        self.assertNotIn(B, self.engine.kept)
        self.has_what_the_log_has()

    def test_a_transaction_that_never_fits_is_refused_by_its_vote(self):
        storage = self.lead(trims=Trims(A, self.LIMIT))
        before = storage.lastTransaction()
        with self.assertRaises(StorageTransactionError) as raised:
            vote(storage, {1: bytes(self.LIMIT)})
        self.assertIn('log-limit', str(raised.exception))
        self.assertEqual(storage.lastTransaction(), before)
        in_time(commit, storage, {1: bytes(self.LIMIT // 2)})
        self.has_what_the_log_has()

    def test_a_log_of_nobody_else_stays_small(self):
        storage = self.lead(trims=Trims(A, self.LIMIT))
        for number in range(30):
            committer = Thread(commit, storage, {number: bytes(3000)})
            # What is kept is kept later than in use.
            until(lambda: (storage.replica.keep(),
                           not committer.is_alive())[1], 'a commit')
            committer.result()
        self.assertGreater(self.engine.first, 10)
        in_time(storage.close)
        again = self.lead(trims=Trims(A, self.LIMIT))
        self.assertEqual(again.load(bytes(7) + b'\1')[0], bytes(3000))


class Blobs(BlobNodeTest):

    def test_more_than_the_limit_is_refused_before_it_is_staged(self):
        """And what would not fit into a log that was trimmed, as less than
        GRAIN stays."""
        storage = self.lead(trims=Trims(A, 20_000))
        self.patch(held, GRAIN=1000)
        for size in 10_001, 9_001:
            with mock.patch.object(self.engine, 'stage') as stage:
                with self.assertRaises(StorageTransactionError) as raised:
                    in_time(self.vote_blobs, storage, {
                        1: bytes(10_000), 2: bytes(size)})
                stage.assert_not_called()
            self.assertIn('log-limit', str(raised.exception))
            self.assertIn('make several', str(raised.exception))
