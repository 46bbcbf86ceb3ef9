"""Staged blobs are removed when no record names them, and no vote has them;
and none that is needed.  What records name, also of earlier writers, is
counted once, and believed only if it is linked.

Goes with `quorum/leading/tidying.py` and `earlier.py`.
"""

import logging
from unittest import mock

from fsyncstorage.quorum.history.record import Blob
from fsyncstorage.quorum.history.record import Data
from fsyncstorage.quorum.history.record import Trim
from fsyncstorage.quorum.history.staged import new_id
from fsyncstorage.quorum.leading import held
from fsyncstorage.quorum.leading import tidying as module
from fsyncstorage.quorum.leading.earlier import Earlier
from fsyncstorage.quorum.leading.held import Held
from fsyncstorage.quorum.leading.loglimit import LogLimit
from fsyncstorage.quorum.leading.tidying import Tidying
from fsyncstorage.quorum.log.interface import Unanswered

from ..support import TestCase
from ..support import until
from .fakelog import Engine
from .fakelog import FakeLog
from .fakelog import Fault
from .logged import BEGINNING
from .nodes import led
from .nodes import state_behind
from .samples import LOG
from .samples import settle

LOGGER = 'fsyncstorage.quorum.leading.tidying'


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
            self.writer.state.end, self.writer.state.end + 1, tuple(
                Blob(id, bytes(8), bytes(8), 0, bytes(32))
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


class OfEarlierWriters(NamedTest):

    def setUp(self):
        super().setUp()
        self.patch(held, GRAIN=1)

    def is_right(self, earlier, *ids):
        self.assertEqual(earlier.held.named(), set(ids))
        self.assertEqual(earlier.held.size, self.bytes_before())

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

    def test_a_leader_that_goes_on_with_a_removal(self):
        """It overtakes the reading, which begins again behind it."""
        ids = [self.stage() for _ in range(6)]
        numbers = [self.name(id) for id in ids]
        self.another_leads()
        earlier, read = self.earlier(), self.log.read
        with mock.patch.object(
                self.log, 'read', lambda *place: read(*place)[:1]):
            for _ in range(3):
                earlier.go_on()
        self.engine.trim(numbers[4])
        self.is_right(self.read(earlier), *ids[4:])

    def test_a_member_that_has_another_log(self):
        """Its records are sound, and do not name the blob.  It is asked first;
        then the others are, from the beginning."""
        id, head = self.stage(), self.engine.head
        number = self.name(id)
        self.another_leads()
        other = Engine(LOG)
        other.records = self.engine.records[:head.sequence]
        other.head = head
        writer = led(FakeLog(other), state_behind(other), 'wrong')
        writer.say(Trim(1))
        settle(writer)
        for sequence in range(number, len(other.records) + 1):
            self.engine.damaged[0, sequence] = other.records[sequence - 1]
        earlier = self.earlier()
        with self.assertRaisesRegex(Unanswered, 'not as it was'):
            for _ in range(10):
                earlier.go_on()
        self.is_right(self.read(earlier), id)


class Tidied(NamedTest):

    def setUp(self):
        super().setUp()
        self.patch(module, FIRST_PAUSE=0.01, LONGEST_PAUSE=0.01)
        logger = logging.getLogger(LOGGER)
        self.addCleanup(logger.setLevel, logger.level)
        self.limit = LogLimit(0, Held(), self.earlier())
        #: Ids that votes have.
        self.under_way = set()

    def tidying(self, *faults):
        earlier = self.earlier()
        tidying = Tidying(
            self.log, 'Data.fs', self.writer.state.epoch, earlier,
            lambda: (self.under_way | earlier.held.named()
                     | self.writer.held.named()), self.limit)
        self.addCleanup(tidying.close)
        self.log.faults.extend(faults)
        tidying.start()
        return tidying

    def swept(self, tidying):
        until(lambda: tidying._swept is not None, 'swept')

    # What is swept

    def test_what_earlier_ones_have_left(self):
        left, used = self.stage(), self.stage()
        self.name(used)
        self.another_leads()
        self.under_way.add(own := self.stage())
        with self.assertLogs(LOGGER, 'INFO') as logs:
            self.tidying(*[Fault.BEFORE, Fault.AFTER] * 3)
            until(lambda: self.engine.all_staged() == {used, own}, 'removed')
            until(lambda: logs.output, 'said')
        self.assertIn('1 blobs', logs.output[0])
        self.assertNotIn(left, self.engine.all_staged())

    def test_those_of_later_ones_stay(self):
        mine, early = self.stage(), self.writer
        self.another_leads()
        later = self.stage()
        self.writer = early
        self.swept(self.tidying())
        self.assertEqual(self.engine.all_staged(), {later})
        self.assertNotIn(mine, self.engine.all_staged())

    def test_not_before_all_is_known(self):
        used = self.stage()
        number = self.name(used)
        self.another_leads()
        for member in range(self.log.members):
            self.engine.damage(member, number, 999)
        with self.assertLogs(LOGGER, 'ERROR') as logs:
            tidying = self.tidying()
            until(lambda: tidying._earlier._times > 5, 'it tries')
        self.assertEqual(len(logs.output), 1)
        self.assertIn(f'record {number},', logs.output[0])
        self.assertEqual(self.engine.all_staged(), {used})
        self.assertIsNone(tidying._swept)

    def test_what_becomes_named_meanwhile(self):
        """An id goes from those under way to those that are named."""
        self.under_way.add(id := self.stage())
        tidying = self.tidying()
        self.swept(tidying)
        real = self.engine.all_staged

        def named_meanwhile():
            found = real()
            self.name(id)
            self.under_way.clear()
            return found

        with mock.patch.object(self.engine, 'all_staged', named_meanwhile):
            before = tidying._swept
            tidying._swept -= module.SWEPT_EVERY  # it is an hour later
            tidying._thread.wake()
            until(lambda: tidying._swept > before, 'swept once more')
        self.assertEqual(self.engine.all_staged(), {id})

    # What was dropped, and room

    def test_a_full_engine_makes_room(self):
        """What was dropped is removed before."""
        tidying = self.tidying()
        self.swept(tidying)
        id = self.stage()
        self.engine.is_full = self.engine.has_free_pages = True
        real, seen = self.engine.make_room, []
        with mock.patch.object(self.engine, 'make_room', lambda: (
                seen.append(self.engine.all_staged()), real())[1]):
            with self.assertLogs(LOGGER, 'WARNING') as logs:
                tidying._dropped.append((id, 1))
                tidying.may_be_full()
                until(lambda: logs.output, 'said')
        self.assertEqual(seen, [set()])
        self.assertFalse(self.engine.is_full)
