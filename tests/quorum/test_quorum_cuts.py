"""A client whose primary dies in the middle of a commit goes on at the next
node: the commit is there once, or not at all, and its client knows which
(I3, I16).
"""

import collections
import contextlib
import itertools

from transaction.interfaces import TransientError
from ZEO.Exceptions import ClientDisconnected

from fsyncstorage.wire import frames

from ..client.connected import begin
from ..client.connected import store
from ..client.test_client_outcome import InOneTrip
from ..client.test_client_outcome import InTwoTrips
from ..often import often
from ..support import Thread
from ..support import oid
from ..support import until
from .logged import bootstrap
from .test_quorum_outcome import NodesTest


class ChangeOfLeader:

    def setUp(self):
        super().setUp()
        bootstrap(self.path_of('b'))
        self.lead('a')
        self.client = self.connect()

    def commit_again(self):
        with self.assertRaises(TransientError):
            self.commit()
        return self.commit()  # it waits for the next node

    def test_a_vote_that_meets_it_can_be_tried_again(self):
        """Nothing was promised to anybody."""
        self.dies_at_request(self.request)
        committing = Thread(self.commit_again)
        until(lambda: not self.client.is_connected(), 'lost')
        self.lead('b')
        tid = committing.result()
        self.assertEqual(self.called, [tid])
        self.assertEqual(
            [record.tid for transaction in self.storage.iterator()
             for record in transaction], [tid])


class InTwo(InTwoTrips):

    def commit(self, number=1, data=b'x'):
        transaction = begin(self.client)
        try:
            store(self.client, transaction, number, data)
            self.client.tpc_vote(transaction)
            return self.client.tpc_finish(transaction, self.called.append)
        except ClientDisconnected:
            self.client.tpc_abort(transaction)
            raise


class OfAVote(InTwo, ChangeOfLeader, NodesTest):

    request = frames.Vote


class OfATrip(InOneTrip, ChangeOfLeader, NodesTest):

    request = frames.Trip


class Cutting:
    """The socket of a stream, which ends behind so many bytes."""

    def __init__(self, connection, up=None, down=None, cut=None):
        self._connection = connection
        #: How many may pass yet; None: all.
        self._left = {'up': up, 'down': down}
        self._cut = cut
        #: How many have passed.
        self.passed = {'up': 0, 'down': 0}

    def __getattr__(self, name):
        return getattr(self._connection, name)

    def _takes(self, way, size):
        """How many of so many pass."""
        left = self._left[way]
        passing = size if left is None else min(size, left)
        if left is not None:
            self._left[way] -= passing
        self.passed[way] += passing
        return passing

    def _cut_once(self):
        cut, self._cut = self._cut, None
        if cut is not None:
            cut()

    def sendall(self, data):
        passing = self._takes('up', len(data))
        self._connection.sendall(data[:passing])
        if self._left['up'] == 0:
            self._cut_once()
            raise OSError('the connection is cut')

    def recv(self, size, flags=0):
        if self._left['down'] == 0:
            self._cut_once()
            return b''
        data = self._connection.recv(size, flags)
        return data[:self._takes('down', len(data))]


class Cuts:

    #: One byte of so many.
    step = often(8, 1, at_check=16)

    def setUp(self):
        super().setUp()
        bootstrap(self.path_of('b'))
        self.lead('a')
        self.client = self.connect()
        self.next = itertools.cycle('ba')
        self.numbers = itertools.count(1)

    def lead(self, node):
        if node in self.servers:  # all of that process is gone
            self._close(self.servers[node])
        super().lead(node)

    def test_at_any_byte(self):
        lengths, kept = self.lengths(), collections.Counter()
        for way in lengths:
            for place in range(lengths[way])[::self.step]:
                with self.subTest(way=way, place=place):
                    kept[self.cut(**{way: place})] += 1
        self.assertTrue(kept[True] and kept[False])

    def lengths(self):
        """Bytes of a commit, both ways."""
        stream = self.client._failover.stream
        stream._socket = counting = Cutting(stream._socket)
        self.commit(next(self.numbers))
        stream._socket = counting._connection
        return counting.passed

    def cut(self, **places):
        """Is the commit kept?"""
        number = next(self.numbers)
        stream = self.client._failover.stream
        stream._socket = Cutting(
            stream._socket, **places, cut=self.kill_soon)
        self.called.clear()
        committing = Thread(self.commit, number)
        until(lambda: not self.client.is_connected(), 'cut')
        self.lead(next(self.next))
        tids = []
        with contextlib.suppress(ClientDisconnected):
            tids.append(committing.result())
        self.assertEqual(self.called, tids)
        self.assertEqual(tids, [
            record.tid for transaction in self.storage.iterator()
            for record in transaction if record.oid == oid(number)])
        until(self.client.is_connected, 'connected again')
        return bool(tids)


class OfOneTrip(InOneTrip, Cuts, NodesTest):
    pass


class OfTwoTrips(InTwo, Cuts, NodesTest):

    level = 2
