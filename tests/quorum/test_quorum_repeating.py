"""A transaction whose vote was not answered is sent again, to the next node;
what may be committed, or was promised, is not (I3, I16).  Goes with
`client/repeating.py`, but for a primary that dies at any byte of a commit, of
what is sent or of what is answered: the client goes on at the next node, and
the commit is there once, or not at all.
"""

import collections
import contextlib
import itertools
from unittest import mock

import transaction
import ZODB
from BTrees.Length import Length
from ZEO.Exceptions import ClientDisconnected
from ZODB.blob import Blob
from ZODB.POSException import ConflictError
from ZODB.utils import z64

from fsyncstorage.client import link
from fsyncstorage.client import repeating
from fsyncstorage.server import commitchannel
from fsyncstorage.wire import commitserver

from ..client.connected import begin
from ..client.connected import commit
from ..client.connected import store
from ..client.test_client_outcome import InOneTrip
from ..client.test_client_outcome import InTwoTrips
from ..client.test_client_outcome import Lost
from ..often import often
from ..support import Thread
from ..support import commit as commit_in_process
from ..support import oid
from ..support import until
from .logged import bootstrap
from .test_quorum_outcome import NodesTest


class RepeatingTest(NodesTest):

    def setUp(self):
        super().setUp()
        #: Called when the next node leads, and does not serve yet.
        self.meanwhile = lambda: None
        bootstrap(self.path_of('b'))
        self.lead('a')
        self.client = self.make_client()

    def make_client(self):
        return self.connect()

    def _serve(self, *args):
        self.meanwhile()
        return super()._serve(*args)

    def goes_on(self):
        """Another node leads, when the client has lost the first one."""
        until(lambda: not self.client.is_connected(), 'lost')
        self.lead('b')

    def check_once(self, tid, number=1, data=b'x'):
        """It is there, its connections were told, and nothing is left."""
        self.assertEqual(self.storage.load(oid(number)), (data, tid))
        self.assertEqual(
            [record.tid for transaction in self.storage.iterator()
             for record in transaction if record.oid == oid(number)], [tid])
        self.assertEqual(self.called, [tid])
        self.check_over()

    def check_over(self):
        self.assertEqual(self.client._server._committing, {})
        until(self.client.is_connected, 'connected again')
        commit(self.client, {99: b'x'})


class Moments:

    def check_repeated(self, kind):
        self.dies_at_request(kind)
        with self.assertLogs(repeating.__name__, 'INFO') as said:
            committing = Thread(self.commit)
            self.goes_on()
            self.check_once(committing.result())
        self.assertEqual(len(said.output), 2)
        for line in said.output:
            self.assertIn(f'{self.client.__name__}: a transaction ', line)
        self.assertIn('has its answer', said.output[1])
        self.assertEqual(self.client.stats()['commits_repeated'], 1)

    def test_its_request_was_not_read(self):
        self.check_repeated(self.request)

    def test_others_were_faster(self):
        """A conflict is a conflict."""
        serial = commit(self.client, {1: b'x'})
        self.meanwhile = lambda: commit_in_process(
            self.storage, {1: b'other'}, {1: serial})
        self.dies_at_request(self.request)
        committing = Thread(self.commit, serial=serial)
        self.goes_on()
        with self.assertRaises(ConflictError):
            committing.result()
        self.assertEqual(self.called, [])
        self.check_over()
        self.assertEqual(self.client.loadBefore(
            oid(1), self.client.lastTransaction())[0], b'other')

    # To whom it is not sent

    def refused_by(self, begin_to_refuse):
        self.dies_at_request(self.request)
        committing = Thread(self.commit)
        until(lambda: not self.client.is_connected(), 'lost')
        begin_to_refuse()
        with self.assertLogs(repeating.__name__, 'INFO') as said:
            self.lead('b')
            with self.assertRaises(ClientDisconnected):
                committing.result()
        self.assertIn('is not sent again', said.output[0])
        self.assertEqual(self.client.stats()['commits_repeated'], 0)
        self.assertEqual(self.called, [])
        self.assertEqual(list(self.storage.iterator()), [])
        self.check_over()

    def say_of_the_next(self, node):
        self.patch(link, node_of=lambda about: node)

    def test_a_node_of_another_log(self):
        self.refused_by(lambda: self.say_of_the_next(
            repeating.Node(b'another', b'instance')))

    def test_one_that_has_lost_what_was_seen(self):
        self.refused_by(lambda: self.client._doom.fall(None, z64))

    def test_the_same_run_of_a_server(self):
        """What has made it end the connection would do so again."""
        lost = Lost(commitchannel._METHODS[self.request], goes_on=False)
        with mock.patch.dict(commitchannel._METHODS, {self.request: lost}), \
                self.assertRaises(ClientDisconnected):
            self.commit()
        self.assertEqual(lost.calls, 1)
        self.assertEqual(list(self.storage.iterator()), [])

    # What it has said

    def test_a_large_one(self):
        """Two pieces leave before the vote, and it is more than is kept in
        memory."""
        large = {number: bytes([number]) * 600_000 for number in range(1, 11)}

        def commit_large():
            transaction = begin(self.client)
            for number, data in large.items():
                store(self.client, transaction, number, data)
            self.client.tpc_vote(transaction)
            return self.client.tpc_finish(transaction, self.called.append)

        self.dies_at_request(commitserver.Vote)
        committing = Thread(commit_large)
        self.goes_on()
        tid = committing.result()
        for number, data in large.items():
            self.assertEqual(self.storage.load(oid(number)), (data, tid))
        self.check_once(tid, 1, large[1])

    def test_it_is_sent_again_a_few_times_at_most(self):
        self.patch(repeating, MOST_TIMES=0)
        self.dies_at_request(self.request)
        committing = Thread(self.commit)
        self.goes_on()
        with self.assertRaises(ClientDisconnected):
            committing.result()
        self.check_over()


class InTwo(InTwoTrips, Moments, RepeatingTest):

    level = 2
    request = commitserver.Vote

    def commit(self, number=1, data=b'x', serial=z64):
        transaction = begin(self.client)
        try:
            store(self.client, transaction, number, data, serial)
            self.client.tpc_vote(transaction)
            return self.client.tpc_finish(transaction, self.called.append)
        except BaseException:
            if not self.client._server.is_closed():
                self.client.tpc_abort(transaction)
            raise

    def test_what_was_voted_is_not_repeated(self):
        """It was promised, and that cannot be taken back."""
        transaction = begin(self.client)
        store(self.client, transaction, 1, b'x')
        self.client.tpc_vote(transaction)
        self.assertIsNone(
            self.client._server.committing(id(transaction)).said)
        self.kill_soon()
        self.goes_on()
        until(self.client.is_connected, 'connected again')
        with self.assertRaises(ClientDisconnected):
            self.client.tpc_finish(transaction)
        self.assertEqual(list(self.storage.iterator()), [])
        self.check_over()


class InOne(InOneTrip, Moments, RepeatingTest):

    level = 2


class Databases(RepeatingTest):
    """What an application sees."""

    level = 2

    has_blobs = True

    def make_client(self):
        return self.connect(blob_dir=self.path('cache'))

    def setUp(self):
        super().setUp()
        self.db = ZODB.DB(self.client)
        self.addCleanup(self.db.close)
        self.manager = transaction.TransactionManager()
        self.connection = self.db.open(self.manager)
        self.root = self.connection.root()

    def commit(self, lost_at=commitserver.Trip):
        """It goes on at the next node."""
        self.dies_at_request(lost_at)
        committing = Thread(self.manager.commit)
        self.goes_on()
        committing.result()

    def other_root(self):
        other = self.db.open(transaction.TransactionManager())
        self.addCleanup(other.close)
        return other.root()

    def test_a_blob(self):
        blob = self.root['blob'] = Blob(b'content' * 100_000)
        self.commit()
        with self.other_root()['blob'].open() as file:
            self.assertEqual(file.read(), b'content' * 100_000)
        self.assertIsNotNone(self.client.leaseBlob(
            blob._p_oid, self.storage.lastTransaction()))

    def test_an_undo(self):
        self.root['it'] = 1
        self.manager.commit()
        self.root['it'] = 2
        self.manager.commit()
        last, = self.db.undoLog(0, 1)
        self.manager.begin()
        self.db.undo(last['id'], self.manager.get())
        self.commit(commitserver.Vote)  # it is no connection
        self.assertEqual(self.other_root()['it'], 1)

    def test_a_conflict_that_the_next_node_resolves(self):
        self.root['length'] = length = Length(0)
        self.manager.commit()

        def count():
            with ZODB.DB(self.storage).transaction() as other:
                other.root()['length'].change(10)

        self.meanwhile = count
        length.change(1)
        self.commit()
        self.assertEqual(length(), 11)
        self.assertEqual(self.other_root()['length'](), 11)


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
