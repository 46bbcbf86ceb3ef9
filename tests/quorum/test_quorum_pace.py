"""Blobs are staged slowly while a member that answers is behind, and for half
a minute afterwards.
"""

from unittest import mock

from fsyncstorage.quorum.etcd import messages
from fsyncstorage.quorum.etcd import pace
from fsyncstorage.quorum.etcd.cluster import Cluster
from fsyncstorage.quorum.etcd.pace import AFTERWARDS
from fsyncstorage.quorum.etcd.pace import MOST_BEHIND
from fsyncstorage.quorum.etcd.pace import RATE
from fsyncstorage.quorum.etcd.pace import Pace
from fsyncstorage.quorum.etcd.settings import Settings
from fsyncstorage.quorum.etcd.trouble import Late

from ..support import TestCase


class Member:

    def __init__(self):
        #: None: it does not answer.
        self.applied = 1000
        self.cluster = 1
        self.asked = 0

    def ask(self, question, deadline):
        self.asked += 1
        if self.applied is None:
            raise Late('it does not answer in time')
        return messages.CLASSES['StatusResponse'](
            header={'cluster_id': self.cluster},
            raftAppliedIndex=self.applied)


class Staged(TestCase):
    """By a clock of the test."""

    def setUp(self):
        super().setUp()
        self.now = 1e6
        self.patch(pace, time=self)
        self.members = [Member() for _ in range(3)]
        self.cluster = Cluster(Settings([], 'x'))
        self.cluster.members = self.members
        self.cluster.pause = mock.Mock()
        self.pace = Pace(self.cluster)

    def monotonic(self):
        return self.now

    def pauses(self, seconds=1.0):
        """What a chunk of a megabyte waits."""
        self.now += seconds
        self.cluster.pause.reset_mock()
        self.pace.keep(1 << 20)
        return sum(call.args[0] for call in self.cluster.pause.mock_calls)

    def test_a_member_that_is_behind(self):
        self.assertEqual(self.pauses(), 0)
        self.members[1].applied -= MOST_BEHIND
        self.assertEqual(self.pauses(), 0)
        self.members[1].applied -= 1
        with self.assertLogs('fsyncstorage', 'WARNING') as said:
            self.assertEqual(self.pauses(), (1 << 20) / RATE)
            self.assertEqual(self.pauses(), (1 << 20) / RATE)
            self.members[1].applied = 1000
            self.assertTrue(self.pauses(AFTERWARDS - 0.1))
        self.assertEqual(len(said.output), 1)
        self.assertEqual(self.pauses(0.2), 0)

    def test_one_that_is_away(self):
        """Nobody knows when it is back."""
        for each in self.members[0], *self.members:
            each.applied = None
            self.assertEqual(self.pauses(), 0)

    def test_one_of_another_cluster(self):
        self.members[1].applied, self.members[1].cluster = 5, 2
        for _ in range(2):  # the first round tells which is the right one
            self.pauses(AFTERWARDS + 1)
        self.assertEqual(self.pauses(), 0)

    def test_they_are_asked_once_a_second(self):
        for _ in range(10):
            self.pauses(0.1)
        self.assertLess(self.members[0].asked, 4)
