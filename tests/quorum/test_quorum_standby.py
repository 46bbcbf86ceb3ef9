"""The thread of a standby: it follows, says how far it is, and ends."""

import collections
import os
import threading
from unittest import mock

import zc.lockfile
from ZODB.utils import z64

from fsyncstorage.quorum.files import state as states
from fsyncstorage.quorum.following import standby as module
from fsyncstorage.quorum.following.standby import Lag
from fsyncstorage.quorum.following.standby import Standby
from fsyncstorage.quorum.history.record import Data
from fsyncstorage.quorum.history.record import PackBegin
from fsyncstorage.quorum.history.record import PackSwap
from fsyncstorage.quorum.history.record import Place
from fsyncstorage.quorum.history.record import place_of
from fsyncstorage.quorum.log.interface import Unanswered
from fsyncstorage.quorum.log.notes import Note

from ..support import PATIENCE
from ..support import until
from .fakelog import MEMBERS
from .fakelog import FakeLog
from .logged import NODE
from .logged import FollowTest
from .logged import Logged
from .logged import restored
from .samples import LOG
from .samples import OTHER
from .samples import SELF
from .samples import following
from .samples import settle
from .test_quorum_rejoin import scanned
from .wrongmember import EngineWithWrong

NOTES = 'fsyncstorage.quorum.log.notes'


class StandbyLog(FakeLog):
    """It counts calls, and can be out of reach."""

    def __init__(self, engine):
        super().__init__(engine)
        self.calls = collections.Counter()
        self.is_away = self.is_stopped = False
        self.noted = {}

    def _call(self, name, *args):
        self.calls[name] += 1
        if self.is_away or self.is_stopped:
            raise Unanswered(name)
        answer = super()._call(name, *args)
        if self.is_stopped:
            raise Unanswered(name)
        return answer

    def note(self, node, raw):
        super().note(node, raw)
        self.noted[node] = raw

    def stop(self):
        self.is_stopped = True
        with self._engine.changed:
            self._engine.changed.notify_all()


class StandbyTest(FollowTest):

    def setUp(self):
        super().setUp()
        self.begin()
        self.log = StandbyLog(self.engine)
        self.has_ended = threading.Event()

    def patch(self, **values):
        for name, value in values.items():
            patch = mock.patch.object(module, name, value)
            patch.start()
            self.addCleanup(patch.stop)

    def make(self, index_every=1 << 30):
        standby = Standby(self.rejoin_by(self.log), NODE, index_every,
                          self.has_ended.set)
        self.addCleanup(standby.close)
        self.log.calls.clear()
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

    level = 2

    def test_it_comes_to_the_end(self):
        standby = self.started()
        self.logged.write(10).write(20, 300)
        self.has_come_to_the_end(standby)
        self.logged.write_some_of(400).lead().write(50)
        self.has_come_to_the_end(standby)
        self.assertEqual(self.content(), self.logged.content)

    def test_its_index_is_in_memory(self):
        """A takeover does not read the file."""
        standby = self.started()
        self.logged.write(10).write(20, 300)
        self.has_come_to_the_end(standby)
        standby.stop()
        opened = self.handed_over(standby.follower)
        content = opened.content
        self.assertEqual(
            content.index.items(), scanned(self.logged.content).items())
        self.assertEqual(content.end, len(self.logged.content))
        self.assertNotEqual(content.tid, z64)
        standby.close()
        self.assertEqual(len(self.content()), opened.file.size())
        self.assertNotIn('Data.fs.index', self.files())

    def test_what_it_has_is_synced_when_it_is_stopped(self):
        standby = self.make()
        disk = self.controlled_disk()
        standby.start()
        self.logged.write(10)
        self.has_come_to_the_end(standby)
        standby.stop()
        self.assertEqual(disk.log[-1], 'sync')
        self.assertEqual(standby._follower.synced, self.here().state)

    def note(self):
        return Note(SELF, self.here().state.place).packed()

    def test_its_place_is_noted_when_it_is_kept(self):
        self.patch(SAVED_AFTER=0.0)
        self.started()
        until(lambda: self.log.noted, 'it notes where it begins')
        self.assertEqual(self.log.noted[NODE], self.note())
        self.logged.write(10)
        until(lambda: self.log.noted[NODE] == self.note(), 'it is noted')
        self.assertEqual(self.kept().state, self.here().state)

    def another_takes_the_name(self):
        self.engine.kept[NODE] = Note(OTHER, self.here().state.place).packed()

    def ends_as_its_name_is_taken(self, standby):
        self.until_it_ends(standby)
        self.assertIn('another node of the name', standby.ended)
        self.assertIn('fsync-quorum forget', standby.ended)
        self.assertTrue(self.engine.kept[NODE].startswith(OTHER))

    def test_a_name_that_another_node_has_now(self):
        """It was forgotten, and another one was made in its place: what that
        has noted must stay."""
        self.patch(SAVED_AFTER=0.0)
        standby = self.started()
        until(lambda: self.log.noted, 'it notes where it begins')
        self.another_takes_the_name()
        with self.assertLogs(module.__name__, 'CRITICAL'):
            self.logged.write(10)
            self.ends_as_its_name_is_taken(standby)

    def test_a_copy_of_it_runs_under_its_name(self):
        self.patch(SAVED_AFTER=0.0, LOOKED_EVERY=0.0)
        standby = self.started()
        until(lambda: self.log.noted, 'it notes where it begins')
        place = self.here().state.place
        with self.assertLogs(NOTES, 'WARNING') as said:
            self.engine.note(NODE, Note(
                SELF, Place(place.sequence + 5, b'l' * 16)).packed())
            until(lambda: said.output, 'it says so')
        self.assertIn('runs under its name', said.output[0])
        self.logged.write(10)
        self.has_come_to_the_end(standby)

    def files(self):
        return os.listdir(self.directory)

    def test_a_close_leaves_an_index(self):
        self.patch(SAVED_AFTER=0.0)
        standby = self.started()
        self.logged.write(10)
        until(lambda: self.kept().state == self.here().state, 'it is kept')
        standby.close()
        self.assertIn('Data.fs.index', self.files())
        self.rejoin()  # the locks are free

    def test_how_far_it_is_behind(self):
        self.patch(MEASURED_EVERY=0.0, SAVED_AFTER=1000.0)
        standby = self.make()
        disk = self.controlled_disk()
        disk.hold_syncs()
        self.logged.write(10)
        standby.start()
        disk.wait_for_sync()
        synced = self.kept().state
        for _ in range(20):
            self.logged.write(500)
        disk.let_one_sync_end()
        disk.wait_for_sync()
        lag, end = standby.lag, self.here().state
        self.assertGreater(lag.records, 50)
        self.assertLess(
            lag.records, end.place.sequence - synced.place.sequence)
        self.assertGreater(lag.bytes, 10_000)
        self.assertLess(lag.bytes, end.end - synced.end)
        disk.release_syncs()
        self.has_come_to_the_end(standby)


class Trouble(StandbyTest):

    def setUp(self):
        super().setUp()
        self.patch(FIRST_PAUSE=0.001, LONGEST_PAUSE=0.002)

    def test_a_log_that_does_not_answer(self):
        standby = self.started()
        self.log.is_away = True
        until(lambda: standby.trouble, 'it says so')
        self.assertIn('does not answer', standby.trouble)
        self.assertGreater(standby.seconds_without_contact, 0)
        self.logged.write(10)
        self.log.is_away = False
        self.has_come_to_the_end(standby)
        until(lambda: standby.trouble is None, 'it is over')

    def test_damage_that_all_members_have(self):
        """It asks again: one of them may be replaced."""
        standby = self.started()
        self.logged.write(10)
        self.has_come_to_the_end(standby)
        with self.engine.changed:
            number = self.engine.head.sequence + 1
            for member in range(MEMBERS):
                self.engine.damaged[member, number] = b'damage'
        self.logged.write(20)
        until(lambda: standby.trouble, 'it says so')
        self.assertIsNone(standby.ended)
        self.engine.damaged.clear()
        self.has_come_to_the_end(standby)

    def test_a_disk_that_is_full(self):
        standby = self.make()
        disk = self.controlled_disk()
        full = OSError(28, 'No space left on device')

        def refuse(data, position):
            raise full

        disk.before_write = refuse
        standby.start()
        self.logged.write(10, 20)
        until(lambda: standby.trouble, 'it says so')
        self.assertIn('No space left', standby.trouble)
        disk.before_write = lambda data, position: None
        self.has_come_to_the_end(standby)
        self.assertEqual(self.content(), self.logged.content)


class Ends(StandbyTest):

    def ends(self, standby, words):
        with self.assertLogs('fsyncstorage', 'CRITICAL') as logs:
            standby.start()
            self.until_it_ends(standby)
            standby.stop()
        self.assertRegex(standby.ended, words)
        self.assertIn(standby.ended, logs.output[0])

    def test_a_log_that_is_refused(self):
        standby = self.make()
        self.engine.restore(self.engine.head._replace(sequence=0))
        self.patch(LOOKED_EVERY=0.0)
        self.ends(standby, 'fsync-quorum bootstrap')

    def test_what_was_lost_is_noticed_though_nothing_comes(self):
        """It asks all members, now and then."""
        self.patch(LOOKED_EVERY=0.0, WAIT=0.001)
        self.logged.write(10)
        number = self.engine.head.sequence - 1
        standby = self.make()

        def restore():
            with self.engine.changed:
                other = restored(self.engine, number)
                self.engine.restore(other.head)

        with self.assertLogs('fsyncstorage', 'CRITICAL'):
            standby.start()
            self.has_come_to_the_end(standby)
            restore()
            self.until_it_ends(standby)
        self.assertIn('restored', standby.ended)

    def test_a_sync_that_fails(self):
        """I7: it is not tried again."""
        standby = self.make()
        disk = self.controlled_disk()
        disk.fail_sync(OSError(5, 'Input/output error'))
        self.logged.write(10)
        self.ends(standby, 'start this node again')
        self.assertEqual(disk.log.count('sync'), 1)
        self.assertEqual(self.kept().state.end, 4)

    def test_an_error_of_ours(self):
        standby = self.make()
        self.log.wait = mock.Mock(side_effect=ZeroDivisionError('a mistake'))
        with self.assertLogs('fsyncstorage', 'ERROR'):
            standby.start()
            self.until_it_ends(standby)
        self.assertIn('a mistake', standby.ended)


class LogOfWrong(StandbyLog):
    """It mostly reads what the wrong member has."""

    def read(self, sequence, member=None):
        return super().read(
            sequence, self._engine.wrong if member is None else member)


class Misled(StandbyTest):
    """By a member that has lost a record, and has taken that of a late writer
    in its place."""

    def setUp(self):
        super().setUp()
        self.engine = EngineWithWrong(LOG)
        self.logged = Logged(self.engine).lead()
        self.begin()
        self.log = LogOfWrong(self.engine)

    def mislead(self):
        own, late = self.engine.records[:], Logged(self.engine, 'late')
        begin = late.add(5, durable=4)
        raw = following(late.state, Data(
            begin, late.file.end, (), (), late.content[begin:]))
        self.engine.own = [*own, raw], place_of(raw)
        self.logged.lead().write(20)

    def goes_on(self):
        standby = self.make()
        self.mislead()
        with self.assertLogs('fsyncstorage', 'WARNING') as logs:
            standby.start()
            self.has_come_to_the_end(standby)
        self.assertIn('starts again', ''.join(logs.output))
        self.assertEqual(self.content(), self.logged.content)
        self.logged.write(30).write(40)
        self.has_come_to_the_end(standby)
        self.assertEqual(self.content(), self.logged.content)
        self.assertIsNone(standby.ended)

    def test_what_fails_at_that_start_is_tried_again(self):
        """A full disk, or somebody who has the file for a moment."""
        self.patch(SAVED_AFTER=1000.0, LOOKED_EVERY=0.0, FIRST_PAUSE=0.001,
                   LONGEST_PAUSE=0.002)
        failures = [OSError(28, 'No space left on device'),
                    zc.lockfile.LockError('in use'),
                    OSError(28, 'No space left on device')]
        seen = []

        def rejoin(*args):
            if failures:
                raise failures.pop()
            seen.append(standby.trouble)
            return module_rejoin(*args)

        module_rejoin, make = module.rejoin, self.make

        def made():
            nonlocal standby
            standby = make()
            return standby

        standby = None
        with mock.patch.object(self, 'make', made):
            with mock.patch.object(module, 'rejoin', rejoin):
                self.goes_on()
        self.assertIn('No space left', seen[0])

    def test_it_keeps_nothing_of_that(self):
        self.patch(SAVED_AFTER=0.0, LOOKED_EVERY=1000.0)
        kept = []
        with mock.patch.object(
                states, 'save', side_effect=_noting(states.save, kept)):
            self.goes_on()
        links = {self.logged.engine.log, *(
            place_of(raw).link for raw in self.engine.records)}
        self.assertLessEqual({state.place.link for state in kept}, links)

    def test_by_the_swap_of_a_pack(self):
        """Others have no record in its place, or another one: all are asked
        what it is, and the file is not replaced."""
        self.patch(SAVED_AFTER=0.0, LOOKED_EVERY=1000.0, FIRST_PAUSE=0.001,
                   LONGEST_PAUSE=0.002)
        self.logged.writer.say(PackBegin(bytes(8), True, b'another'))
        settle(self.logged.writer)
        standby = self.make()
        state = self.here().state
        raw = following(state, PackSwap(state.pack.id, 4, bytes(32)))
        self.engine.own = [*self.engine.records, raw], place_of(raw)
        self.logged.lead().write(20)
        standby.start()
        self.has_come_to_the_end(standby)
        self.assertEqual(self.content(), self.logged.content)
        self.assertIsNone(standby.ended)

    def test_what_was_kept_is_final(self):
        """Where all members have lost it."""
        self.patch(SAVED_AFTER=0.0, LOOKED_EVERY=0.0)
        self.logged.write(10)
        standby = self.make()
        self.engine.restore(restored(self.engine, 1).head)
        with self.assertLogs('fsyncstorage', 'CRITICAL'):
            standby.start()
            self.until_it_ends(standby)
        self.assertIn('restored', standby.ended)


def _noting(function, states):
    def call(path, state, *args):
        states.append(state)
        return function(path, state, *args)
    return call


class Stops(StandbyTest):

    def test_while_it_waits(self):
        standby = self.started()
        until(lambda: self.log.calls['wait'], 'it waits')
        standby.stop()
        self.assertTrue(self.log.is_stopped)  # no call waits any longer
        self.assertIsNone(standby.ended)

    def test_while_the_log_does_not_answer(self):
        standby = self.make()
        self.log.is_away = True
        standby.start()
        until(lambda: self.log.calls['read'], 'it asks')
        standby.stop()
        standby.stop()
        self.assertIsNone(standby.ended)


class Pauses(threading.Event):
    """It is set after so many pauses, which take no time."""

    def __init__(self, number, before_third=lambda: None):
        super().__init__()
        self.seconds = []
        self._number = number
        self._before_third = before_third

    def wait(self, timeout):
        self.seconds.append(timeout)
        if len(self.seconds) == 3:
            self._before_third()
        if len(self.seconds) == self._number:
            self.set()
        return self.is_set()
