"""What a node that follows does to its file: written, synced, kept, in this
order, and never anything that the log does not say."""

import os

import hypothesis
from hypothesis import strategies

from fsyncstorage import datafile
from fsyncstorage.quorum.files import state as states
from fsyncstorage.quorum.following.contents import Contents
from fsyncstorage.quorum.history.record import Data
from fsyncstorage.quorum.history.record import place_of
from fsyncstorage.quorum.log.reading import Reader
from fsyncstorage.quorum.log.reading import Refused

from ..generated import settings
from .fakelog import FakeLog
from .fakelog import Fault
from .logged import BEGINNING
from .logged import FollowTest
from .logged import Logged
from .logged import Watched
from .logged import contents
from .logged import patient
from .samples import following


class Applied(FollowTest):

    def setUp(self):
        super().setUp()
        self.begin()
        self.follower = self.rejoin()
        self.disk = Watched(self.path())
        self.patch(datafile, disk=self.disk)

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

    def test_a_batch_that_is_no_transactions_does_not_count(self):
        end = self.follower.whole.end
        raw = following(self.logged.state, Data(
            end, end + 30, (), (), b'x' * 30))
        self.engine.append(self.engine.head, place_of(raw), raw)
        with self.assertRaisesRegex(Refused, 'report it'):
            self.apply_all(self.follower)
        self.assertEqual(self.follower.whole.end, end)


class Read(FollowTest):
    """A Reader: all records, in their order, each once."""

    def reader(self, *faults, state=BEGINNING):
        log = FakeLog(self.engine)
        log.faults.extend(faults)
        return Reader(log, state)

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
