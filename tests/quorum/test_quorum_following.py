"""What a node that follows does to its file: written, synced, kept, in this
order, and never anything that the log does not say."""

import os
from unittest import mock

import hypothesis
from hypothesis import strategies

from fsyncstorage import datafile
from fsyncstorage.errors import DiskError
from fsyncstorage.format import scan
from fsyncstorage.quorum.files import state as states
from fsyncstorage.quorum.following import follower as module
from fsyncstorage.quorum.following.contents import Contents
from fsyncstorage.quorum.history.fold import Why
from fsyncstorage.quorum.history.fold import step
from fsyncstorage.quorum.history.record import Commit
from fsyncstorage.quorum.history.record import Data
from fsyncstorage.quorum.history.record import Epoch
from fsyncstorage.quorum.history.record import parse
from fsyncstorage.quorum.history.record import place_of
from fsyncstorage.quorum.log.reading import Reader
from fsyncstorage.quorum.log.reading import Refused

from ..format.sealing import window_of
from ..generated import settings
from .fakelog import MEMBERS
from .fakelog import FakeLog
from .fakelog import Fault
from .logged import BEGINNING
from .logged import FollowTest
from .logged import Logged
from .logged import Watched
from .logged import contents
from .logged import patient
from .samples import data
from .samples import following


class Applied(FollowTest):

    def setUp(self):
        super().setUp()
        self.begin()
        self.follower = self.rejoin()
        self.disk = Watched(self.path())
        patch = mock.patch.object(datafile, 'disk', self.disk)
        patch.start()
        self.addCleanup(patch.stop)

    def test_a_batch_counts_when_it_is_whole(self):
        self.logged.write_some_of(400)
        end = self.follower.whole.end
        self.apply_all(self.follower)
        self.assertEqual(self.follower.whole.end, end)
        self.assertGreater(len(self.content()), end)
        self.follower.sync()
        self.follower.save()
        self.assertEqual(self.kept().state.end, end)

    def test_a_commit_that_was_given_up_whatever_fails_behind_that(self):
        """As where a pack ends with the epoch, and its file cannot be removed:
        the commit is not taken for one of the next batch."""
        follower, tid = self.follower, b'tid'.rjust(8)
        commit = Commit(b'id'.rjust(36), tid)
        follower._indexing.count = mock.Mock()
        self.apply(data(
            follower.state, b'some', follower.state.end + 9, [commit]))
        failing = mock.patch.object(
            follower._repacking, 'goes_by', side_effect=OSError(5, 'EIO'))
        with failing, mock.patch.object(
                module, 'confirmed', return_value=True):
            with self.assertRaises(OSError):
                self.apply(Epoch(b'node'.ljust(16)), follower.state.end,
                           epoch=2, writer=b'second'.ljust(16))
        self.apply(data(follower.state, b'other'))
        with self.assertRaises(LookupError):
            follower.fates.of(commit.id, bytes(8))

    def apply(self, body, *args, **fields):
        state = self.follower.state
        self.follower.apply(step(
            state, following(state, body, *args, **fields)))

    def test_what_is_kept_is_synced(self):
        self.logged.write(10)
        self.apply_all(self.follower)
        self.follower.save()
        self.assertNotIn('Data.fs.quorum', self.disk.done)
        self.follower.sync()
        self.follower.save()
        self.assertEqual(self.disk.done[-2:], ['sync', 'Data.fs.quorum'])
        self.assertEqual(self.kept().state, self.here().state)

    def test_a_batch_that_is_given_up_is_gone_before_anything_follows(self):
        self.logged.write(10)
        self.apply_all(self.follower)
        self.logged.write_some_of(400)
        self.logged.lead()
        self.disk.done.clear()
        self.apply_all(self.follower)
        self.assertEqual(self.disk.done, [
            'write', 'write', 'truncate', 'sync', 'Data.fs.quorum'])
        self.assertEqual(self.content(), self.here().content)
        self.assertEqual(self.kept().state, self.here().state)

    def test_a_failed_sync_is_final(self):
        """I7: it says what to do."""
        self.logged.write(10)
        self.apply_all(self.follower)
        with mock.patch.object(
                self.disk, 'sync', side_effect=OSError(5, 'I/O error')):
            with self.assertRaisesRegex(DiskError, 'start this node again'):
                self.follower.sync()
        self.follower.save()
        self.assertEqual(self.kept().state.end, 4)

    def test_a_batch_that_is_no_transactions_does_not_count(self):
        end = self.follower.whole.end
        raw = following(self.logged.state, Data(
            end, end + 30, (), (), b'x' * 30))
        self.engine.append(self.engine.head, place_of(raw), raw)
        with self.assertRaisesRegex(Refused, 'report it'):
            self.apply_all(self.follower)
        self.assertEqual(self.follower.whole.end, end)

    def test_its_index_has_what_counts(self):
        self.logged.write(10, 20).write(30)
        self.apply_all(self.follower)
        content = self.handed_over(self.follower).content
        transactions = [*scan.transactions(window_of(self.logged.content))]
        self.assertEqual(content.end, transactions[-1].end)
        self.assertEqual(content.tid, transactions[-1].tid)
        self.assertEqual(content.index.items(), [
            (record.oid, record.position) for each in transactions
            for record in each.records])

    def test_an_index_that_cannot_be_written_does_no_harm(self):
        self.logged.write(10)
        self.apply_all(self.follower)
        self.follower.sync()
        self.follower.save()
        with mock.patch.object(
                self.disk, 'replace', side_effect=OSError(28, 'No space')), \
                self.assertLogs('fsyncstorage', 'WARNING'):
            self.follower.save_index()
        self.assertEqual(sorted(os.listdir(self.directory)), [
            'Data.fs', 'Data.fs.lock', 'Data.fs.quorum'])


class Read(FollowTest):
    """A Reader: all records, in their order, each once."""

    def reader(self, *faults, state=BEGINNING):
        log = FakeLog(self.engine)
        log.faults.extend(faults)
        return Reader(log, state)

    def sequences(self, given):
        return [each.record.sequence for each in given]

    def test_it_comes_to_the_end(self):
        self.logged.write(10, 20).write(30)
        reader = self.reader()
        self.assertEqual(
            self.sequences(reader.to_the_end(patient())),
            [*range(1, self.engine.head.sequence + 1)])
        self.assertEqual(reader.state, self.here().state)
        self.assertEqual(reader.read(), [])
        self.assertEqual(reader.look(), [])

    def test_a_hole_is_found_elsewhere(self):
        self.logged.write(10, 20)
        reader = self.reader(Fault.HOLE)
        self.assertEqual(self.sequences(reader.read())[:1], [1])

    def test_a_damaged_member_is_passed_by(self):
        self.logged.write(10)
        for sequence in 1, 2:
            for member in range(MEMBERS - 1):
                self.engine.damage(member, sequence, 700)
        self.assertEqual(
            self.sequences(self.reader().to_the_end(patient())),
            [*range(1, self.engine.head.sequence + 1)])

    def test_damage_that_all_have_is_refused(self):
        for member in range(MEMBERS):
            self.engine.damage(member, 1, 700)
        with self.assertRaises(Refused) as caught:
            self.reader().read()
        self.assertIs(caught.exception.why, Why.DAMAGED)

    def test_contents_of_the_log(self):
        """Forward, in any pieces, and over what an epoch has given up."""
        self.logged.write(10, 200).write_some_of(300)
        given_up = {self.here().state.incomplete.id}
        self.logged.lead().write(40).write(50)
        read = Contents(
            lambda: self.reader().to_the_end(patient()), given_up)
        content = self.logged.content
        for size in 1, 44, 99, 100, 101, 1000:
            for position in range(4, len(content), size):
                self.assertEqual(
                    read(position, size), content[position:position + size])
        self.assertEqual(read(len(content), 5), b'')


class AnyLog(FollowTest):

    level = 2
    STEPS = strategies.lists(strategies.one_of(
        strategies.tuples(
            strategies.just('write'),
            strategies.lists(strategies.integers(1, 400), min_size=1,
                             max_size=3)),
        strategies.tuples(strategies.just('lead'), strategies.just([])),
        strategies.tuples(strategies.just('give up'),
                          strategies.integers(1, 4)),
        strategies.tuples(strategies.just('follow'), strategies.lists(
            strategies.sampled_from(list(Fault)), max_size=12)),
        strategies.tuples(strategies.just('keep'), strategies.just([])),
        strategies.tuples(strategies.just('start'), strategies.lists(
            strategies.sampled_from(list(Fault)), max_size=12)),
    ), max_size=25)

    @settings(max_examples=60, deadline=None)
    @hypothesis.given(STEPS)
    def test_the_file_is_what_the_log_says(self, steps):
        """Whatever is answered, and in which order: up to what is whole, and
        up to what is kept."""
        self.logged = Logged().lead()
        self.engine = self.logged.engine
        for name in os.listdir(self.directory):
            os.remove(self.path(name))
        self.begin()
        follower = self.rejoin()
        for step, value in [*steps, ('follow', []), ('start', [])]:
            if step == 'write':
                self.logged.write(*value)
            elif step == 'lead':
                self.logged.lead()
            elif step == 'give up':
                self.logged.write_some_of(500, records=value)
                if value % 2:  # what follows is shorter, or longer
                    self.logged.lead()
                else:
                    self.logged.lead().write(600)
            elif step == 'follow':
                log = FakeLog(self.engine)
                log.faults.extend(value)
                for applied in Reader(log, follower.state).to_the_end(
                        patient()):
                    follower.apply(applied)
            elif step == 'keep':
                follower.sync()
                follower.save()
            else:
                follower.close()
                follower = self.rejoin(None, *value)
                self.assertEqual(follower.whole.end, self.here().state.end)
            self.is_right(follower)
        follower.close()

    def is_right(self, follower):
        for state in follower.whole, follower.synced, self.kept().state:
            expected = contents(
                self.engine.records[:state.place.sequence])
            self.assertEqual(state, expected.state)
            self.assertEqual(
                self.content()[:state.end], expected.content)
        self.assertIsNone(states.misfit(
            self.kept(), follower.read, len(self.content())))


class Epochs(FollowTest):

    def test_the_record_of_an_epoch_changes_no_byte(self):
        self.logged.write(10)
        self.begin()
        self.logged.lead()
        before = self.content()
        follower = self.rejoin()
        self.assertEqual(self.content(), before)
        self.assertEqual(follower.kept.epoch, 2)
        self.assertIsInstance(parse(self.engine.records[-1]).body, Epoch)
