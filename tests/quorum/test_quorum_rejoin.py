"""The start of a node: its file becomes what the log says, or nothing changes
and the message says what to do.  And what it does to its file when it follows:
written, synced, kept, in this order, and never anything that the log does not
say.
"""

import contextlib
import os
import shutil
from unittest import mock

import zc.lockfile

from fsyncstorage import FsyncStorage
from fsyncstorage import datafile
from fsyncstorage.format import scan
from fsyncstorage.format.seal import UnknownVersion
from fsyncstorage.quorum.files import state as states
from fsyncstorage.quorum.following.rejoin import rejoin
from fsyncstorage.quorum.history import record as records
from fsyncstorage.quorum.history.fold import Why
from fsyncstorage.quorum.history.record import Data
from fsyncstorage.quorum.history.record import place_of
from fsyncstorage.quorum.log.interface import Unanswered
from fsyncstorage.quorum.log.reading import WHAT_TO_DO
from fsyncstorage.quorum.log.reading import Refused
from fsyncstorage.storage import opening

from ..format.sealing import later_release
from ..format.sealing import window_of
from ..support import Thread
from .fakelog import MEMBERS
from .fakelog import Engine
from .fakelog import FakeLog
from .logged import FollowTest
from .logged import Logged
from .logged import bootstrap
from .logged import found_in
from .logged import restored
from .samples import OTHER
from .samples import SELF
from .samples import following


class Rejoined(FollowTest):

    def is_rejoined(self, follower):
        """It has what the log says, and has kept it."""
        expected = self.here()
        self.assertEqual(self.content(), expected.content)
        self.assertEqual(follower.state, expected.state)
        whole = follower.whole
        self.assertEqual(self.kept().state, whole)
        self.assertEqual(whole.end, expected.state.end)

    def test_what_is_behind_the_kept_end_is_cut_off_and_kept_beside(self):
        self.logged.write(10)
        self.begin()
        kept, tail = self.content(), b'what a stock storage has written'
        self.replace(kept + tail)
        self.logged.write(20)
        with self.assertLogs('fsyncstorage', 'WARNING') as logs:
            self.is_rejoined(self.rejoin())
        with open(self.path('Data.fs.tr0'), 'rb') as file:
            self.assertEqual(file.read(), tail)
        self.assertIn('Data.fs.tr0', logs.output[0])

    def test_the_cut_is_durable_before_anything_is_written(self):
        """Else a power cut may bring back what was there."""
        self.begin()
        self.replace(self.content() + b'tail')
        self.logged.write(10)
        disk = self.controlled_disk()
        self.rejoin()
        cut = disk.log.index('truncate')
        self.assertEqual(
            disk.log[cut:cut + 3], ['truncate', 'sync', 'write'])

    def test_waiting_ends_when_it_is_told_to(self):
        self.begin()
        self.replace(self.content() + b'tail')
        log = mock.Mock(members=MEMBERS)
        log.read.side_effect = log.ends.side_effect = Unanswered('nobody')
        with self.nothing_changes():
            waiting = Thread(rejoin, self.path(), log, self.stopping)
            self.stopping.set()
            with self.assertRaises(Unanswered):
                waiting.result()


class Opened(FollowTest):
    """A storage opens the file without reading it again."""

    def setUp(self):
        super().setUp()
        self.logged.write(10, 20)
        self.begin()
        self.logged.write(30).write(40)

    def open_over(self, follower):
        opened = follower.hand_over()
        os.remove(self.path('Data.fs.quorum'))  # its policy is another one
        storage = FsyncStorage(self.path(), opened=opened)
        self.addCleanup(storage.close)
        return storage

    def test_the_storage_has_the_locks(self):
        storage = self.open_over(self.rejoin())
        with self.assertRaises(zc.lockfile.LockError):
            FsyncStorage(self.path())
        storage.close()
        FsyncStorage(self.path()).close()

    def test_an_index_that_is_ahead_of_what_was_kept(self):
        """It is of something else, and is not used."""
        kept = found_in(self.directory)['Data.fs.quorum']
        follower = self.rejoin()
        follower.save_index()
        follower.close()
        with open(self.path('Data.fs.quorum'), 'wb') as file:
            file.write(kept)
        opened = self.handed_over(self.rejoin())
        self.assertEqual(opened.content.index.items(),
                         scanned(self.logged.content).items())

    def test_an_index_of_another_file(self):
        """It says nothing, though it goes further than the log."""
        other = Logged(name='other').lead().write(11, 21, 31, 41, 500)
        path = self.path('other/Data.fs')
        bootstrap(path)
        with contextlib.closing(rejoin(
                path, FakeLog(other.engine), self.stopping)) as follower:
            follower.save_index()
        shutil.copy(path + '.index', self.path('Data.fs.index'))
        opened = self.handed_over(self.rejoin())
        self.assertEqual(opened.content.index.items(),
                         scanned(self.logged.content).items())


def scanned(data):
    """The index of a file with this content."""
    index = opening.nothing_known().index
    for transaction in scan.transactions(window_of(data)):
        for each in transaction.records:
            index[each.oid] = each.position
    return index


class NotStarted(FollowTest):
    """Each line of the table "What is refused" that is about a start."""

    def setUp(self):
        super().setUp()
        self.logged.write(10, 20).write(30)

    def refused(self, words, engine=None, error=Refused):
        with self.nothing_changes(), self.assertRaisesRegex(error, words):
            self.rejoin(engine)
        with self.assertRaisesRegex(error, 'othing was changed'), \
                self.nothing_changes():
            self.rejoin(engine)

    def refused_why(self, why, engine=None):
        with self.nothing_changes(), self.assertRaises(Refused) as caught:
            self.rejoin(engine)
        self.assertIs(caught.exception.why, why)
        self.assertIn(WHAT_TO_DO[why], str(caught.exception))
        self.assertIn('Nothing was changed', str(caught.exception))

    def begin_with_tail(self):
        """So that there is something to be cut off."""
        self.begin()
        self.replace(self.content() + b'tail')

    def test_a_file_without_what_a_node_keeps(self):
        self.begin_with_tail()
        os.remove(self.path('Data.fs.quorum'))
        self.refused('fsync-quorum bootstrap')

    def test_damage_of_what_was_kept(self):
        self.begin_with_tail()
        path = self.path('Data.fs.quorum')
        with open(path, 'r+b') as file:
            file.seek(20)
            file.write(b'\xff\0\xff')
        self.refused('fsync-quorum forget.*fsync-quorum bootstrap --from')

    def test_a_missing_file(self):
        self.begin()
        os.remove(self.path())
        self.refused('Data.fs is missing.*fsync-quorum forget its name.*'
                     'fsync-quorum bootstrap --from')

    def test_what_the_log_has_lost_or_has_otherwise(self):
        self.begin_with_tail()
        number = self.engine.head.sequence
        for why, change in {
                Why.BEHIND: lambda log: log.restore(
                    restored(log, number - 1).head),
                Why.FORKED: self.went_on_otherwise,
                Why.TRIMMED: lambda log: log.trim(
                    Logged(log).lead().write(40, 50).engine.head.sequence),
                Why.UNKNOWN: self.later_record,
                Why.STALE: self.stale}.items():
            with self.subTest(why):
                log = restored(self.engine, number)
                change(log)
                self.refused_why(why, log)
        self.refused_why(Why.BEHIND, restored(self.engine, 0))
        self.refused_why(Why.OTHER_LOG, Engine(OTHER))

    def went_on_otherwise(self, log):
        log.restore(restored(log, 3).head)
        Logged(log, 'other').lead().write(10, 20, 30, 40, 50)

    def later_record(self, log):
        with mock.patch.object(records, 'VERSION', 99):
            raw = following(self.logged.state, records.Trim(1))
        log.append(log.head, place_of(raw), raw)

    def stale(self, log):
        """A writer whose epoch is over."""
        before = self.logged.state
        raw = following(
            Logged(log).lead().state, records.Trim(1), epoch=before.epoch,
            writer=before.writer)
        log.append(log.head, place_of(raw), raw)

    def test_a_file_that_a_later_release_has_written(self):
        with later_release():
            self.logged.write(10)
        self.begin_with_tail()
        self.refused('Data.fs: .* version', error=UnknownVersion)

    def test_a_log_that_lacks_what_a_seal_says(self):
        self.begin()
        lost = restored(self.engine, self.engine.head.sequence)
        self.logged.write(40).write(50)
        self.replace(self.logged.content)
        self.refused('had been confirmed', lost)

    def test_an_old_file_beside_a_newer_state(self):
        self.begin()
        self.replace(self.content()[:-1])
        self.refused('it ends at .*fsync-quorum bootstrap')

    def test_another_file_of_the_same_length(self):
        self.begin()
        self.logged.write(40)
        content = self.content()
        # (The last length may be any.)
        for back, wrong in (20, b'?'), (8, b'\xff' * 8):
            at = len(content) - back
            self.replace(
                content[:at] + wrong + content[at + len(wrong):] + b'tail')
            self.refused('another file.*fsync-quorum bootstrap')

    def test_damage_of_our_own_file(self):
        self.begin_with_tail()
        content = bytearray(self.content())
        content[60] ^= 1
        self.replace(content)
        with mock.patch.object(states, 'TIED', 64):
            states.save(
                self.path(), self.kept().state, lambda position, length:
                bytes(content[position:position + length]), SELF)
            self.refused('fsync-check.*fsync-quorum bootstrap')

    def test_the_file_is_open_under_another_name(self):
        self.begin()
        self.rejoin()
        os.link(self.path(), self.path('other'))
        os.link(self.path('Data.fs.quorum'), self.path('other.quorum'))
        with self.assertRaises(opening.InUse):
            rejoin(self.path('other'), FakeLog(self.engine), self.stopping)

    def test_no_room_for_what_is_cut_off(self):
        self.begin_with_tail()
        disk = datafile.Disk()
        with mock.patch.object(datafile, 'disk', disk), mock.patch.object(
                disk, 'write', side_effect=OSError(28, 'No space left')):
            self.refused('could not be kept', error=OSError)


class Applied(FollowTest):

    def setUp(self):
        super().setUp()
        self.begin()
        self.follower = self.rejoin()

    def test_a_batch_that_is_no_transactions_does_not_count(self):
        end = self.follower.whole.end
        raw = following(self.logged.state, Data(
            end, end + 30, (), b'x' * 30))
        self.engine.append(self.engine.head, place_of(raw), raw)
        with self.assertRaisesRegex(Refused, 'report it'):
            self.apply_all(self.follower)
        self.assertEqual(self.follower.whole.end, end)
