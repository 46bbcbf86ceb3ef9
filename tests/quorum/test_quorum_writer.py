"""The writer: what became of each record is known before anything else is
offered, whatever becomes of the answers.  And what an engine promises, of the
log in memory.
"""

import unittest

from fsyncstorage.quorum.history.batch import Batch
from fsyncstorage.quorum.history.fold import Apply
from fsyncstorage.quorum.history.fold import beginning
from fsyncstorage.quorum.history.fold import step
from fsyncstorage.quorum.history.record import Place
from fsyncstorage.quorum.history.record import Trim
from fsyncstorage.quorum.history.record import place_of
from fsyncstorage.quorum.leading.writer import Fenced
from fsyncstorage.quorum.log.interface import Unanswered

from .fakelog import Engine
from .fakelog import FakeLog
from .logcontract import Contract
from .logcontract import WithoutALog
from .samples import KIND
from .samples import LOG
from .samples import changed
from .samples import following
from .samples import leader
from .samples import settle


class WriterTest(unittest.TestCase):

    def setUp(self):
        self.engine = Engine(LOG)
        self.log = FakeLog(self.engine)
        self.writer = leader(self.log, beginning(LOG, 0, 4))

    def write(self, content=b'bytes', *faults, writer=None):
        """Begin a batch."""
        writer = writer or self.writer
        begin = writer.state.end
        writer.write(Batch(
            begin, begin + len(content),
            lambda at, length: content[at - begin:at - begin + length]))
        self.log.faults.extend(faults)

    def unanswered(self, times=1):
        for _ in range(times):
            with self.assertRaises(Unanswered):
                self.writer.advance()

    def fenced(self, pattern, writer=None):
        writer = writer or self.writer
        for _ in range(2):
            with self.assertRaisesRegex(Fenced, pattern):
                writer.advance()
        before = list(self.engine.records)
        with self.assertRaisesRegex(Fenced, pattern):
            writer.say(Trim(1))
        self.assertEqual(self.engine.records, before)

    def written(self):
        """What a node makes of the log."""
        state, content = beginning(LOG, 0, 4), bytearray(b'FS30')
        for raw in self.engine.records:
            found = step(state, raw)
            self.assertIsInstance(found, Apply)
            state = found.state
            if hasattr(found.record.body, 'data'):
                content[found.record.position:] = found.record.body.data
        self.assertEqual(state, self.writer.state)
        return bytes(content[:state.end])


class Written(WriterTest):

    def test_a_file_that_cannot_be_read(self):
        def read(position, length):
            if failures:
                raise failures.pop()
            return bytes(length)

        failures = [OSError('the disk'), KeyboardInterrupt()]
        self.writer.write(Batch(4, 9, read))
        for expected in KeyboardInterrupt, OSError:
            with self.assertRaises(expected):
                self.writer.advance()
        self.assertEqual(self.writer.left, 1)
        settle(self.writer)
        self.assertEqual(self.written(), b'FS30' + bytes(5))


class TheFence(WriterTest):

    def test_it_stays_fenced(self):
        """Also if the log has again what it had lost."""
        self.write(b'first')
        settle(self.writer)
        head, raw = self.engine.head, self.engine.records[-1]
        self.engine.restore(Place(1, place_of(self.engine.records[0]).link))
        self.write(b'second')
        self.fenced('was confirmed')
        self.engine.append(self.engine.head, head, raw)
        self.fenced('was confirmed')
        self.assertEqual(len(self.engine.records), 2)

    def test_a_later_release_has_written(self):
        place = self.writer.state.place
        self.engine.append(
            place, Place(place.sequence + 1, bytes(16)), changed(
                following(self.writer.state, Trim(1)), KIND, 'B', 200))
        self.write(b'bytes')
        self.fenced('does not know')


class InMemory(unittest.TestCase):

    def setUp(self):
        super().setUp()
        self.engine = Engine(None)

    def another(self):
        return FakeLog(self.engine)


class Promises(Contract, InMemory):
    pass


class NoLog(WithoutALog, InMemory):
    pass
