"""The thread of a standby: it follows, says how far it is, and ends; and a
node that has the lease becomes the one that writes (I16).
"""

import os
import threading
from unittest import mock

from fsyncstorage.errors import DiskError
from fsyncstorage.pack import progress
from fsyncstorage.quorum.files import state as states
from fsyncstorage.quorum.following import standby as module
from fsyncstorage.quorum.following.follower import Follower
from fsyncstorage.quorum.following.standby import Lag
from fsyncstorage.quorum.following.standby import Standby
from fsyncstorage.quorum.history.record import Epoch
from fsyncstorage.quorum.history.record import place_of
from fsyncstorage.quorum.log import reading
from fsyncstorage.quorum.log.interface import Unanswered
from fsyncstorage.quorum.roles.takeover import lead
from fsyncstorage.scrub import scrubbing

from ..pack.phases import held_up
from ..support import PATIENCE
from ..support import Thread
from ..support import until
from .fakelog import FakeLog
from .fakelog import Fault
from .logged import IN_PROCESS
from .logged import NODE
from .logged import FollowTest
from .logged import Logged
from .logged import contents
from .logged import restored
from .logged import take_a_late_record
from .nodes import bodies
from .samples import LOG
from .wrongmember import EngineWithWrong

NOTES = 'fsyncstorage.quorum.log.notes'


class StandbyTest(FollowTest):

    def setUp(self):
        super().setUp()
        self.patch(module, LOOK_EVERY=0.001)
        self.begin()
        self.log = FakeLog(self.engine)
        self.has_ended = threading.Event()

    def make(self, index_every=1 << 30):
        standby = Standby(
            self.rejoin_by(self.log), index_every, self.has_ended.set)
        self.addCleanup(standby.close)
        return standby

    def started(self, **options):
        standby = self.make(**options)
        standby.start()
        return standby

    def has_come_to_the_end(self, standby):
        until(lambda: standby.state == self.here().state
              and standby.lag == Lag(0, 0), 'it comes to the end')

    def until_it_ends(self, standby):
        self.assertTrue(self.has_ended.wait(PATIENCE))
        self.assertIsNotNone(standby.ended)


class Follows(StandbyTest):

    def test_what_it_has_is_synced_when_it_is_stopped(self):
        standby = self.make()
        disk = self.controlled_disk()
        standby.start()
        self.logged.write(10)
        self.has_come_to_the_end(standby)
        standby.stop()
        self.assertEqual(disk.log[-1], 'sync')
        self.assertEqual(standby._follower.synced, self.here().state)

    def test_it_reads_from_one_member(self):
        """As long as that shows what others write."""
        standby = self.started()
        with mock.patch.object(self.log, 'turn') as turn:
            for _ in range(5):
                self.logged.write(10)
                self.has_come_to_the_end(standby)
            turn.assert_not_called()

    def test_what_it_has_is_kept_though_more_comes(self):
        """When the first of it has come long ago."""
        self.now = 1000.0
        self.patch(module, time=self)
        standby = self.started()
        for _ in range(2):
            self.logged.write(10)
            self.has_come_to_the_end(standby)
            until(lambda: standby._save_due, 'it is to be kept')
            self.now += 0.6 * module.SAVED_AFTER
        until(lambda: self.kept().state == self.here().state, 'it is kept')

    def monotonic(self):
        return self.now


class Trouble(StandbyTest):

    def setUp(self):
        super().setUp()
        self.patch(module, FIRST_PAUSE=0.001, LONGEST_PAUSE=0.002)

    def test_a_log_that_does_not_answer(self):
        standby = self.started()
        self.log.is_away = True
        until(lambda: standby.trouble, 'it says so')
        self.assertIn('does not answer', standby.trouble)
        self.assertGreater(standby.seconds_without_contact, 0)
        self.logged.write(10)
        with self.assertLogs(module.__name__, 'WARNING') as said:
            self.log.is_away = False
            self.has_come_to_the_end(standby)
            until(lambda: standby.trouble is None, 'it is over')
        self.assertIn('goes on', said.output[-1])

    def test_a_disk_that_is_full(self):
        standby = self.make()
        disk = self.controlled_disk()
        disk.before_write = mock.Mock(
            side_effect=OSError(28, 'No space left on device'))
        standby.start()
        self.logged.write(10, 20)
        until(lambda: standby.trouble, 'it says so')
        self.assertIn('No space left', standby.trouble)
        disk.before_write = lambda data, position: None
        self.has_come_to_the_end(standby)
        self.assertEqual(self.content(), self.logged.content)


    def test_its_file_is_removed_or_replaced(self):
        """What the log has would come into a file that no start finds."""
        standby = self.started()
        for content in None, b'another':
            with self.subTest(content):
                os.rename(self.path(), self.path('away'))
                if content is not None:
                    self.replace(content)
                until(lambda: standby.trouble, 'it says so')
                self.assertIn('was removed, or another', standby.trouble)
                self.logged.write(10)
                os.rename(self.path('away'), self.path())
                self.has_come_to_the_end(standby)
                until(lambda: standby.trouble is None, 'it is over')

    def test_the_scrub_finds_damage(self):
        """Its node says so, and the others do not rely on it."""
        self.logged.write(100)
        self.begin()
        with open(self.path(), 'r+b') as file:
            file.seek(-60, os.SEEK_END)
            byte = file.read(1)
        self.patch(scrubbing, LOOK_AGAIN_AFTER=0.01)
        packs = IN_PROCESS._replace(scrub_rate=1 << 30)
        standby = Standby(self.rejoin_by(self.log, packs), 1 << 30)
        self.addCleanup(standby.close)
        with open(self.path(), 'r+b') as file:
            file.seek(-60, os.SEEK_END)
            file.write(bytes([byte[0] ^ 1]))
        with self.assertLogs('fsyncstorage', 'ERROR'):
            standby.start()
            until(lambda: standby.damage, 'it says so')
        self.assertIn('1 damaged transaction', standby.damage)

    def test_the_scrub_of_a_packed_file(self):
        """What is kept may be that of the old file, until a majority confirms
        the swap."""
        self.logged.objects = 5
        self.logged.write(*range(10, 60))
        self.patch(scrubbing, LOOK_AGAIN_AFTER=0.01)
        packs = IN_PROCESS._replace(scrub_rate=1 << 30)
        standby = Standby(self.rejoin_by(self.log, packs), 1 << 30)
        self.addCleanup(standby.close)
        standby.start()
        self.has_come_to_the_end(standby)
        with mock.patch.object(
                Follower, 'save', self.which_keeps_no_swap(Follower.save)):
            self.logged.begin_pack().swap().write(10)
            self.has_come_to_the_end(standby)
            passes = standby._scrub.stats()['passes']
            until(lambda: standby._scrub.stats()['passes'] > passes, 'a pass')
        self.assertIsNone(standby.damage)

    def which_keeps_no_swap(self, save):
        def saved(follower):
            if follower.synced.generation != follower.kept.generation:
                raise Unanswered('no majority')
            save(follower)
        return saved

    def test_the_log_has_replaced_its_file_and_its_pack_is_late(self):
        """It cannot take over before that is ready."""
        self.logged.objects = 5
        self.logged.write(*range(10, 60))
        with held_up(progress.COPY) as is_held_up:
            standby = self.started()
            self.logged.begin_pack()
            self.assertTrue(is_held_up.wait(PATIENCE))
            self.assertIsNone(standby.why_not_ready)
            self.logged.swap()
            until(lambda: standby.why_not_ready, 'it says so')
            self.assertIn('cannot take over', standby.why_not_ready)
        self.has_come_to_the_end(standby)
        self.assertIsNone(standby.why_not_ready)
        self.assertEqual(self.content(), self.logged.content)


class Ends(StandbyTest):

    def test_what_was_lost_is_noticed_though_nothing_comes(self):
        """It asks all members, now and then."""
        self.patch(reading, LOOKED_EVERY=0.0)
        self.logged.write(10)
        number = self.engine.head.sequence - 1
        standby = self.make()

        with self.assertLogs('fsyncstorage', 'CRITICAL'):
            standby.start()
            self.has_come_to_the_end(standby)
            with self.engine.changed:
                self.engine.restore(restored(self.engine, number).head)
            self.until_it_ends(standby)
        self.assertIn('restored', standby.ended)

    def test_a_sync_that_fails(self):
        """I7: it is not tried again."""
        standby = self.make()
        disk = self.controlled_disk()
        disk.fail_sync(OSError(5, 'Input/output error'))
        self.logged.write(10)
        with self.assertLogs('fsyncstorage', 'CRITICAL'):
            standby.start()
            self.until_it_ends(standby)
            standby.stop()
        self.assertIn('start this node again', standby.ended)
        self.assertEqual(disk.log.count('sync'), 1)
        self.assertEqual(self.kept().state.end, 4)


class Misled(StandbyTest):
    """By a member that has lost a record, and has taken that of a late writer
    in its place."""

    def setUp(self):
        super().setUp()
        self.engine = EngineWithWrong(LOG)
        self.logged = Logged(self.engine).lead()
        self.begin()
        self.log = FakeLog(self.engine)
        self.log.turn()  # to the wrong one

    def mislead(self):
        take_a_late_record(self.engine)
        self.logged.lead().write(20)

    def test_it_ends_and_nothing_of_that_was_kept(self):
        """Its node begins anew, with what was kept."""
        self.patch(reading, LOOKED_EVERY=1000.0)
        self.patch(module, SAVED_AFTER=0.0)
        standby = self.make()
        self.mislead()
        with mock.patch.object(
                states, 'save', side_effect=states.save) as save:
            standby.start()
            self.until_it_ends(standby)
            self.assertTrue(standby.is_misled)
            standby.close()
            self.log = FakeLog(self.engine)
            standby = self.started()
            self.logged.write(30).write(40)
            self.has_come_to_the_end(standby)
        self.assertEqual(self.content(), self.logged.content)
        self.assertIsNone(standby.ended)
        links = {self.logged.engine.log, *(
            place_of(raw).link for raw in self.engine.records)}
        kept = {call.args[1].place.link for call in save.call_args_list}
        self.assertLessEqual(kept, links)


class Interrupted(FakeLog):
    """Something happens before its first append."""

    def __init__(self, engine, happens):
        super().__init__(engine)
        self._happens = happens

    def append(self, before, place, raw):
        happens, self._happens = self._happens, lambda: None
        happens()
        super().append(before, place, raw)


class Takeover(FollowTest):

    def setUp(self):
        super().setUp()
        self.begin()
        self.may_go_on = True

    def lead(self, follower, log=None):
        return lead(follower, log or FakeLog(self.engine), NODE,
                    lambda: self.may_go_on, self.stopping)

    def is_handed_over(self, follower):
        """Its file is what the log says, without half a batch."""
        opened = self.handed_over(follower)
        self.assertEqual(self.content(), contents(self.engine.records).content)
        self.assertEqual(opened.content.end, len(self.content()))

    def test_a_record_that_comes_in_between(self):
        """It was acknowledged, so it is before the epoch."""
        follower = self.rejoin()
        self.lead(follower, Interrupted(
            self.engine, lambda: self.logged.write(10)))
        self.assertIsInstance(bodies(self.engine)[-1], Epoch)
        self.assertGreater(follower.whole.end, 4)
        self.is_handed_over(follower)

    def test_a_pack_that_the_standby_had_not_ended(self):
        follower = self.rejoin()
        self.logged.objects = 5
        self.logged.write(*range(10, 60)).begin_pack()
        self.apply_all(follower)
        self.logged.swap()
        leading = Thread(self.lead, follower)
        self.assertIsNotNone(leading.result())
        self.is_handed_over(follower)

    def test_the_lease_is_lost_meanwhile(self):
        """It does not try again."""
        def happens():
            self.may_go_on = False
            log.faults.append(Fault.BEFORE)

        follower = self.rejoin()
        log = Interrupted(self.engine, happens)
        before = self.engine.head
        self.assertIsNone(self.lead(follower, log))
        self.assertEqual(self.engine.head, before)

    def test_a_disk_that_fails(self):
        """It does not lead: another node may be sound."""
        disk = self.controlled_disk()
        follower = self.rejoin()
        self.logged.write(10)
        before = self.engine.head
        disk.fail_sync(OSError('no'))
        with self.assertRaises(DiskError):
            self.lead(follower)
        self.assertEqual(self.engine.head, before)
