"""The commit state machine, driven without files, threads or clocks."""

import typing
import unittest

from hypothesis import stateful
from hypothesis import strategies

from fsyncstorage.commit import pipeline
from fsyncstorage.commit.pipeline import Commit
from fsyncstorage.commit.pipeline import Pipeline
from fsyncstorage.errors import OutcomeUnknown
from fsyncstorage.errors import WritingStopped

from ..generated import settings
from ..often import often


def tid(number):
    return number.to_bytes(8, 'big')


class Point(typing.NamedTuple):

    end: int
    tid: bytes


def commit(number, promised=True):
    return Commit(
        number * 10, Point(number * 10 + 10, tid(number)), promised=promised)


class PipelineTests(unittest.TestCase):

    def setUp(self):
        self.line = Pipeline(Point(10, tid(0)))

    def append(self, *numbers, promised=True):
        commits = [commit(number, promised) for number in numbers]
        for each in commits:
            self.line.append(each)
        return commits

    def test_alone_a_batch_is_one_commit(self):
        first, second = self.append(1, 2)
        point, batch = self.line.next_batch(alone=True)
        self.assertEqual((point, batch), (first.point, [first]))

    def test_data_first_a_batch_ends_before_blobs(self):
        """If anything before them is not durable; else it begins there."""
        one, two, three = self.append(1, 2, 3)
        two.blobs = object()
        first = self.line.next_batch(alone=False, data_first=True)
        self.assertEqual(first, (one.point, [one]))
        self.line.synced(one.point)
        second = self.line.next_batch(alone=False, data_first=True)
        self.assertEqual(second, (three.point, [two, three]))

    def test_data_first_what_is_published_counts_too(self):
        one, = self.append(1, promised=False)
        self.line.publish(one)
        two, = self.append(2)
        two.blobs = object()
        self.assertEqual(
            self.line.next_batch(alone=False, data_first=True),
            (one.point, []))
        self.assertEqual(
            self.line.next_batch(alone=False), (two.point, [two]))

    def test_failure_spares_what_is_durable(self):
        first, second = self.append(1, 2)
        self.line.synced(first.point)
        lost = self.line.fail('disk', lambda: OutcomeUnknown('disk'))
        self.assertEqual(lost, [second])
        self.assertIsInstance(second.error, OutcomeUnknown)
        self.assertIs(self.line.next_to_publish(), first)
        with self.assertRaises(WritingStopped):
            self.append(3)

    def test_after_a_failure_only_what_is_durable_is_visible(self):
        first, second = self.append(1, 2, promised=False)
        self.line.publish(first)
        self.line.publish(second)
        self.line.synced(first.point)
        self.assertEqual(self.line.visible, second.point)
        self.line.fail('disk', lambda: OutcomeUnknown('disk'))
        self.assertEqual(self.line.visible, first.point)

    def test_a_file_is_not_replaced_under_a_commit(self):
        self.append(1)
        with self.assertRaises(AssertionError):
            self.line.rebase(Point(4, tid(1)))


class AnyInterleaving(stateful.RuleBasedStateMachine):
    """I1 and I4 in whatever order things happen."""

    def __init__(self):
        super().__init__()
        self.line = Pipeline(Point(10, tid(0)))
        self.number = 0
        self.published = []
        self.running_sync = None

    @stateful.rule(promised=strategies.booleans())
    def append(self, promised):
        try:
            self.line.append(commit(self.number + 1, promised))
        except WritingStopped:
            assert self.line.stopped
        else:
            self.number += 1

    @stateful.precondition(lambda self: self.running_sync is None)
    @stateful.rule(alone=strategies.booleans())
    def begin_sync(self, alone):
        self.running_sync, _ = self.line.next_batch(alone)

    @stateful.precondition(lambda self: self.running_sync is not None)
    @stateful.rule()
    def end_sync(self):
        self.line.synced(self.running_sync)
        self.running_sync = None

    @stateful.precondition(lambda self: self.number > 8)
    @stateful.rule()
    def fail(self):
        self.line.fail('disk', lambda: OutcomeUnknown('disk'))

    @stateful.rule()
    def publish(self):
        each = self.line.next_to_publish()
        if each is not None:
            if each.promised:
                assert each.end <= self.line.durable.end
            self.line.publish(each)
            self.published.append(each.tid)

    @stateful.invariant()
    def published_in_order_without_a_gap(self):
        assert self.published == [
            tid(number + 1) for number in range(len(self.published))]

    @stateful.invariant()
    def points_are_in_order(self):
        assert self.line.durable <= self.line.appended
        assert self.line.published <= self.line.appended
        assert self.line.visible <= self.line.published

    @stateful.invariant()
    def every_commit_in_the_queue_can_still_be_settled(self):
        assert not any(each.settled for each in self.line.queue)
        if self.line.failed:
            assert all(each.state is pipeline.DURABLE or not each.promised
                       for each in self.line.queue)


AnyInterleaving.TestCase.settings = settings(
    max_examples=often(80, 200, 25), stateful_step_count=30, deadline=None,
    derandomize=True)
AnyInterleavingTests = AnyInterleaving.TestCase
