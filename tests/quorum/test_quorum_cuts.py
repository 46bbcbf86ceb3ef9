"""A primary dies at any byte of a commit, of what is sent or of what is
answered: the client goes on at the next node, and the commit is there once, or
not at all (I3, I16)."""

import collections
import contextlib
import itertools
import os

from ZEO.Exceptions import ClientDisconnected

from ..client.test_client_outcome import InOneTrip
from ..client.test_client_outcome import InTwoTrips
from ..often import often
from ..support import Thread
from ..support import oid
from ..support import until
from .nodes import begin_log
from .test_quorum_outcome import NodesTest

#: Bytes of a finish, and of the answer to a vote without a conflict.
FRAME = 9


class Cutting:
    """The socket of a channel, which ends behind so many bytes."""

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
        os.makedirs(os.path.dirname(self.path_of('b')))
        begin_log(self.path_of('b'))
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
                    is_kept = self.cut(**{way: place})
                    kept[is_kept] += 1
                    self.assertTrue(is_kept or self.was_voted(
                        way, place, lengths))
        self.assertGreater(kept[True], kept[False])

    def lengths(self):
        """Bytes of a commit, both ways."""
        stream = self.client._server.stream
        stream._socket = counting = Cutting(stream._socket)
        self.commit(next(self.numbers))
        stream._socket = counting._connection
        return counting.passed

    def cut(self, **places):
        """Is the commit kept?"""
        number = next(self.numbers)
        stream = self.client._server.stream
        stream._socket = Cutting(
            stream._socket, **places, cut=self.kill_soon)
        self.called.clear()
        committing = Thread(self.commit, number)
        until(lambda: not self.client.is_connected(), 'cut')
        self.lead(next(self.next))
        tids = []
        with contextlib.suppress(self.may_fail):
            tids.append(committing.result())
        self.assertEqual(self.called, tids)
        self.assertEqual(tids, [
            record.tid for transaction in self.storage.iterator()
            for record in transaction if record.oid == oid(number)])
        self.assertEqual(self.client._server._committing, {})
        until(lambda: self.client._server.stream, 'connected again')
        return bool(tids)


class OfOneTrip(InOneTrip, Cuts, NodesTest):
    """None fails."""

    may_fail = ()

    @staticmethod
    def was_voted(way, place, lengths):
        return False


class OfTwoTrips(InTwoTrips, Cuts, NodesTest):
    """Only what was voted may fail."""

    level = 2

    may_fail = ClientDisconnected

    @staticmethod
    def was_voted(way, place, lengths):
        return place >= (FRAME if way == 'down' else lengths['up'] - FRAME)
