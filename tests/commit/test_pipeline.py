"""The commit state machine, driven without files, threads or clocks."""

import typing

from hypothesis import stateful
from hypothesis import strategies

from fsyncstorage.commit import pipeline
from fsyncstorage.commit.pipeline import SETTLED
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


class AnyInterleaving(stateful.RuleBasedStateMachine):
    """I1 and I4 in whatever order things happen."""

    def __init__(self):
        super().__init__()
        self.line = Pipeline(Point(10, tid(0)))
        self.number = 0
        self.published = []
        self.running_sync = None
        self.durable_at_failure = None

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

    @stateful.precondition(lambda self: self.number > 2)
    @stateful.rule()
    def fail(self):
        durable = [each for each in self.line.queue
                   if each.state is pipeline.DURABLE]
        self.line.fail('disk', lambda: OutcomeUnknown('disk'))
        assert all(each in self.line.queue for each in durable)
        if self.durable_at_failure is None:
            self.durable_at_failure = self.line.durable

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
        if self.line.failed:
            # A sync that ends later proves nothing; what may be lost is not
            # shown.
            assert self.line.durable == self.durable_at_failure
            assert self.line.visible <= self.line.durable

    @stateful.invariant()
    def every_commit_in_the_queue_can_still_be_settled(self):
        assert not any(each.state in SETTLED for each in self.line.queue)
        if self.line.failed:
            assert all(each.state is pipeline.DURABLE or not each.promised
                       for each in self.line.queue)


AnyInterleaving.TestCase.settings = settings(
    max_examples=often(50, 300, 30), stateful_step_count=30, deadline=None,
    derandomize=True)
AnyInterleavingTests = AnyInterleaving.TestCase
