"""The log is trimmed by what all nodes have kept, and by nothing else; what
was there before this writer led is counted once, and believed only if it is
linked; and what happens at the limit of the log (I16).
"""

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
from fsyncstorage.quorum.leading import tidying
from fsyncstorage.quorum.leading import trimming
from fsyncstorage.quorum.leading.held import Earlier
from fsyncstorage.quorum.leading.loglimit import LogLimit
from fsyncstorage.quorum.leading.loglimit import Trims
from fsyncstorage.quorum.leading.trimming import Trimming
from fsyncstorage.quorum.leading.writer import Fenced
from fsyncstorage.quorum.log.interface import Full
from fsyncstorage.quorum.log.interface import Unanswered
from fsyncstorage.quorum.log.notes import Author
from fsyncstorage.quorum.log.notes import Note
from fsyncstorage.quorum.log.notes import parse_note

from ..support import TestCase
from ..support import Thread
from ..support import commit
from ..support import until
from ..support import vote
from .blobnodes import BlobNodeTest
from .fakelog import FakeLog
from .fakelog import Fault
from .logged import Logged
from .logged import restored
from .nodes import NodeTest
from .samples import OTHER
from .samples import SELF
from .samples import data

A, B = (name.ljust(16, b'\0') for name in (b'a', b'b'))
TRIMMING = 'fsyncstorage.quorum.leading.trimming'


def in_time(call, *args):
    """It fails, and does not wait for ever, where nothing makes room."""
    return Thread(call, *args).result()


class RoundsCase(TestCase):
    """Our node is `a`."""

    def setUp(self):
        super().setUp()
        self.logged = Logged().lead()
        self.engine = self.logged.engine
        self.log = FakeLog(self.engine)
        self.trimming = self.of_a_node()
        self.keep()

    def of_a_node(self, limit=0, drops=False, is_read=True):
        self.earlier = self.known() if is_read else self.known(nothing=True)
        self.limit = LogLimit(limit, self.logged.writer.held, self.earlier)
        return Trimming('a test', self.log, Author(A, SELF), self.logged.say,
                        drops, self.limit)

    def known(self, nothing=False, log=None):
        """What the log had before the writer led; or nothing yet."""
        earlier = Earlier(log or FakeLog(self.engine))
        earlier.begin(self.place(self.logged.writer.held.first))
        for _ in range(0 if nothing else 100):
            try:
                earlier.go_on()
            except Unanswered:
                pass
        return earlier

    def write(self, count=1, size=10):
        for _ in range(count):
            self.logged.write(size)
        self.keep()

    def name_blob(self, size):
        """In a record of its own."""
        id = new_id(1)
        self.log.stage(id, 0, b'x')
        state = self.logged.state
        self.logged.add(10)
        content = self.logged.content[state.end:]
        self.logged.say(data(state, content, blobs=(Blob(
            id, bytes(8), bytes(8), size, bytes(32)),)))
        self.keep()
        return id

    def keep(self):
        """We have kept what the log has."""
        self.note(A, self.logged.state.place.sequence)

    @property
    def last(self):
        """What we have kept."""
        return parse_note(self.engine.kept[A]).place.sequence

    def place(self, sequence):
        return place_of(self.engine.records[sequence - 1])

    def note(self, node, sequence):
        self.engine.note(node, Note(SELF if node == A else node, self.place(
            sequence)).packed())

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
        """What it needs is not known, so nothing is removed; nor while our own
        place is not noted, as another node may write next."""
        self.write(9)
        another = Note(OTHER, self.place(3)).packed()
        self.engine.note(A, another)
        self.patch(trimming, EVERY=0.0)
        with self.assertLogs(TRIMMING, 'WARNING') as said:
            for _ in range(2):
                self.trimming.round_if_due()
        self.assertIn('another node of the name', self.limit.reason)
        self.assertEqual(len(said.output), 1)
        self.assertIn('another node of the name', said.output[0])
        self.engine.forget(A)
        with self.assertRaises(Unanswered):
            self.of_a_node().round()
        self.assertEqual((self.trims(), self.engine.first), ([], 1))
        self.keep()
        self.trimming.round_if_due()
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
            for raw in b'', b'x', bytes(1024):
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

    def test_it_is_trimmed_as_far_as_it_is_known(self):
        """A round does not wait until all is counted; and nothing goes whose
        blobs are not known."""
        self.write(30)
        self.logged.lead()
        self.keep()
        trim = self.of_a_node(is_read=False)
        trim.round()
        self.assertEqual(self.engine.first, 1)
        while not self.earlier.is_read:
            self.earlier.go_on()
            trim.round()
            if not self.earlier.is_read:
                self.assertLessEqual(self.engine.first, self.earlier.next)
            self.keep()
        self.assertGreater(self.engine.first, 20)
        self.assertEqual(len(self.trims()), len(set(self.trims())))
        self.assertGreater(len(self.trims()), 3)


class OfEarlierWriters(RoundsCase):

    def setUp(self):
        super().setUp()
        self.patch(held, GRAIN=1)
        self.ids = [self.name_blob(0) for _ in range(6)]
        self.head = self.logged.state.place.sequence
        self.logged.lead()

    def is_right(self, earlier, *ids):
        self.assertTrue(earlier.is_read)
        self.assertEqual(earlier.held.named(), set(ids))
        self.assertEqual(earlier.held.size, sum(map(len, self.engine.records[
            self.engine.first - 1:self.head])))

    def test_whatever_faults_reads_have(self):
        for fault in (Fault.HOLE, Fault.DOUBLED, Fault.REVERSED, Fault.BEFORE,
                      Fault.AFTER):
            with self.subTest(fault):
                log = FakeLog(self.engine)
                log.faults.extend([Fault.NONE] * 2 + [fault] * 4)
                self.is_right(self.known(log=log), *self.ids)

    def test_a_leader_that_goes_on_with_a_removal(self):
        """It overtakes the reading, which begins again behind it."""
        log = FakeLog(self.engine)
        earlier, read = self.known(nothing=True, log=log), log.read
        with mock.patch.object(
                log, 'read', lambda *place: read(*place)[:1]):
            for _ in range(3):
                earlier.go_on()
        self.engine.trim(self.head - 1)
        for _ in range(10):
            try:
                earlier.go_on()
            except Unanswered:
                pass
        self.is_right(earlier, *self.ids[-2:])

    def test_a_member_that_has_another_record(self):
        """It is sound, and does not name the last blob.  This member is asked
        first; then the others are, from the beginning."""
        other = restored(self.engine, self.head - 1)
        Logged(other, 'wrong').lead()
        self.engine.damaged[0, self.head] = other.records[self.head - 1]
        earlier = self.known(nothing=True)
        with self.assertRaisesRegex(Unanswered, 'not as it was'):
            for _ in range(10):
                earlier.go_on()
        self.is_right(self.known(), *self.ids)


class AtTheLimit(RoundsCase):

    def setUp(self):
        super().setUp()
        self.patch(held, GRAIN=1)
        self.patch(trimming, STANDS_STILL=0.0)

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
                    self.keep()  # also behind a Trim

        go_on(is_behind=False)
        wanted = Thread(
            self.limit.take, 4000, lambda: None, threading.Event().wait)
        until(lambda: self.limit.lacks_room, 'it waits')
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
        self.patch(tidying, LOOK_EVERY=0.01)
        self.patch(loglimit, PAUSE=0.01, TROUBLE_AFTER=0.05)

    def lead(self, drops=False):
        return super().lead(trims=Trims(A, self.LIMIT, drops))

    def keep(self, storage):
        """What it has is kept, and noted: later in use."""
        storage.replica.keep()
        self.engine.note(A, Note(SELF, storage.replica.kept.place).packed())

    def full(self, drops=False):
        """A storage whose log is full, as another node has kept nothing."""
        self.engine.note(B, Note(B, Place(0, self.engine.log)).packed())
        storage = self.lead(drops)
        for number in range(4):
            in_time(commit, storage, {number: bytes(5000)})
            in_time(self.keep, storage)
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
        storage = self.lead()
        before = storage.lastTransaction()
        with self.assertRaises(StorageTransactionError) as raised:
            vote(storage, {1: bytes(self.LIMIT)})
        self.assertIn('log-limit', str(raised.exception))
        self.assertEqual(storage.lastTransaction(), before)
        in_time(commit, storage, {1: bytes(self.LIMIT // 2)})
        self.has_what_the_log_has()

    def test_a_log_of_nobody_else_stays_small(self):
        storage = self.lead()
        for number in range(30):
            committer = Thread(commit, storage, {number: bytes(3000)})
            until(lambda: (self.keep(storage),
                           not committer.is_alive())[1], 'a commit')
            committer.result()
        self.assertGreater(self.engine.first, 10)
        in_time(storage.close)
        again = self.lead()
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
