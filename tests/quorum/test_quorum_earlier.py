"""What the log has, and had before its writer led: counted once, and believed
only if it is linked."""

from unittest import mock

from fsyncstorage.quorum.history.record import Blob
from fsyncstorage.quorum.history.record import Data
from fsyncstorage.quorum.history.record import Trim
from fsyncstorage.quorum.history.staged import new_id
from fsyncstorage.quorum.leading import held
from fsyncstorage.quorum.leading.earlier import Earlier
from fsyncstorage.quorum.leading.held import Held
from fsyncstorage.quorum.leading.held import Item
from fsyncstorage.quorum.leading.held import item
from fsyncstorage.quorum.log.interface import Unanswered

from ..support import TestCase
from .fakelog import MEMBERS
from .fakelog import Engine
from .fakelog import FakeLog
from .fakelog import Fault
from .logged import BEGINNING
from .nodes import led
from .nodes import state_behind
from .samples import LOG
from .samples import settle


class NamedTest(TestCase):
    """Writers that stage blobs, and name some of them."""

    def setUp(self):
        super().setUp()
        self.engine = Engine(LOG)
        self.log = FakeLog(self.engine)
        self.writer = led(FakeLog(self.engine), BEGINNING, 'first')

    def stage(self):
        """By the writer that leads."""
        id = new_id(self.writer.state.epoch)
        self.log.stage(id, 0, b'chunk')
        self.log.stage(id, 1, b'chunk')
        return id

    def name(self, *ids):
        """In a record of its own."""
        self.writer._begin([lambda: Data(
            self.writer.state.end, self.writer.state.end + 1, (), tuple(
                Blob(id, bytes(8), bytes(8), 0, bytes(32), False)
                for id in ids), b'x')])
        settle(self.writer)
        return self.writer.state.place.sequence

    def another_leads(self):
        self.writer = led(
            FakeLog(self.engine), state_behind(self.engine), 'other')

    def earlier(self):
        """It knows nothing yet."""
        found = Earlier(self.log)
        found.begin(self.writer.state.place)
        return found

    def read(self, earlier):
        for _ in range(100):
            try:
                earlier.go_on()
            except Unanswered:
                pass
            if earlier.is_read:
                return earlier
        raise AssertionError('it does not come to the end')

    def bytes_before(self):
        """Of records before that of the epoch."""
        return sum(map(len, self.engine.records[
            self.engine.first - 1:self.writer.state.place.sequence - 1]))


class Counted(TestCase):

    def test_of_one_record(self):
        blobs = tuple(
            Blob(bytes([shared]) * 16, bytes(8), bytes(8), 1000, bytes(32),
                 shared) for shared in (False, True))
        self.assertEqual(
            item(b'raw', Data(0, 1, (), blobs, b'x')),
            Item(3 + 1000, bytes(16) + b'\1' * 16))
        self.assertEqual(item(b'raw', Trim(1)), Item(3, b''))

    def test_of_blobs_all_is_known(self):
        """Votes wait until they are gone."""
        counted = Held()
        counted.add(1, Item(10, b''))
        counted.add(2, Item(5000, bytes(16)))
        counted.add(3, Item(7, b''))
        self.assertFalse(counted.frees(2))
        counted.trim(2)
        self.assertEqual(counted.size, 5017)
        self.assertTrue(counted.frees(3))
        counted.trim(3)
        self.assertFalse(counted.frees(3))
        self.assertEqual(counted.size, 7)

    def test_what_is_named(self):
        counted = Held()
        ids = [bytes([number]) * 16 for number in range(4)]
        counted.add(5, Item(1, ids[0] + ids[1]))
        counted.add(6, Item(1, b''))
        counted.add(7, Item(1, ids[2]))
        counted.add(8, Item(1, ids[3]))
        self.assertEqual(counted.first, 5)
        self.assertEqual(counted.named(), set(ids))
        self.assertEqual(counted.named(7), set(ids[:2]))
        counted.trim(8)
        self.assertEqual(counted.named(), {ids[3]})
        counted.clear()
        self.assertEqual((counted.named(), counted.size), (set(), 0))


class OfEarlierWriters(NamedTest):

    def setUp(self):
        super().setUp()
        patch = mock.patch.object(held, 'GRAIN', 1)
        patch.start()
        self.addCleanup(patch.stop)

    def is_right(self, earlier, *ids):
        self.assertEqual(earlier.held.named(), set(ids))
        self.assertEqual(earlier.held.size, self.bytes_before())

    def test_all_of_it(self):
        ids = [self.stage() for _ in range(4)]
        self.name(ids[0], ids[2])
        self.another_leads()
        self.name(self.stage())
        self.is_right(self.read(self.earlier()), ids[0], ids[2])

    def test_in_slices(self):
        ids = [self.stage() for _ in range(20)]
        for id in ids:
            number = self.name(id)
        self.another_leads()
        earlier = self.earlier()
        earlier.go_on()
        self.assertFalse(earlier.is_read)
        self.assertGreater(earlier.next, 1)
        self.assertLess(earlier.next, number)
        self.assertEqual(
            earlier.held.named(), set(ids[:earlier.next - 2]))
        self.is_right(self.read(earlier), *ids)
        with mock.patch.object(FakeLog, 'read', side_effect=self.fail):
            earlier.go_on()

    def test_whatever_faults_reads_have(self):
        ids = [self.stage() for _ in range(6)]
        for id in ids:
            self.name(id)
        self.another_leads()
        for fault in (Fault.HOLE, Fault.DOUBLED, Fault.REVERSED, Fault.BEFORE,
                      Fault.AFTER):
            with self.subTest(fault):
                self.log.faults.extend([Fault.NONE] * 2 + [fault] * 4)
                self.is_right(self.read(self.earlier()), *ids)
                self.log.faults.clear()

    def test_a_record_that_no_member_has_whole(self):
        """It is asked for again, from there on, and that is said."""
        ids = [self.stage() for _ in range(20)]
        for id in ids:
            number = self.name(id)
        self.another_leads()
        raw = self.engine.records[number - 1]
        for member in range(MEMBERS):
            self.engine.damage(member, number, 999)
        earlier = self.earlier()
        with self.assertRaises(AssertionError):
            self.read(earlier)
        self.assertEqual(earlier.next, number)
        self.assertIn(f'record {number},', earlier.trouble)
        self.engine.damaged[1, number] = raw
        self.is_right(self.read(earlier), *ids)
        self.assertIsNone(earlier.trouble)

    def wrong(self):
        """The records of another log: sound, and the name is not there."""
        id = self.stage()
        head = self.engine.head
        number = self.name(id)
        self.another_leads()
        other = Engine(LOG)
        other.records = self.engine.records[:head.sequence]
        other.head = head
        writer = led(FakeLog(other), state_behind(other), 'wrong')
        writer.say(Trim(1))
        settle(writer)
        return id, number, other.records

    def has(self, members, number, records):
        for sequence in range(number, len(records) + 1):
            for member in members:
                self.engine.damaged[member, sequence] = records[sequence - 1]

    def test_a_member_that_has_another_log(self):
        """It is asked first; then the others are, from the beginning."""
        id, number, records = self.wrong()
        self.has([0], number, records)
        earlier = self.earlier()
        with self.assertRaisesRegex(Unanswered, 'not as it was'):
            for _ in range(10):
                earlier.go_on()
        self.is_right(self.read(earlier), id)

    def test_all_members_have_another_log(self):
        _, number, records = self.wrong()
        self.has(range(MEMBERS), number, records)
        earlier = self.earlier()
        with self.assertRaisesRegex(AssertionError, 'to the end'):
            self.read(earlier)
        self.assertIn('not as it was', earlier.trouble)

    def test_a_log_that_was_trimmed(self):
        """All nodes have what it had."""
        ids = [self.stage() for _ in range(2)]
        first = self.name(ids[0])
        self.name(ids[1])
        self.another_leads()
        self.engine.trim(first + 1)
        self.is_right(self.read(self.earlier()), ids[1])
