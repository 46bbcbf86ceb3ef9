"""What each client does: a run with a known number of each gives these."""

import importlib.metadata
import json
import socket
from unittest import mock

import ZEO.ClientStorage
from ZODB.POSException import ConflictError
from ZODB.utils import maxtid

from fsyncstorage.client.storage import FsyncClient
from fsyncstorage.local import handedover
from fsyncstorage.metrics import page
from fsyncstorage.metrics.exporters import Showing
from fsyncstorage.server.clients import LONGEST
from fsyncstorage.server.clients import MOST_OIDS
from fsyncstorage.server.clients import MOST_TRANSACTIONS
from fsyncstorage.wire import frames
from fsyncstorage.wire import values

from ..client.talking import Talker
from ..client.talking import hello
from ..server import zeowire
from ..server.serving import ErrorReply
from ..server.serving import Served
from ..server.serving import record
from ..support import PATIENCE
from ..support import begin
from ..support import commit
from ..support import oid
from ..support import until
from .asking import NothingIsKept
from .asking import get
from .asking import probe

HERE = '127.0.0.1', 0


def commit_over(client, records):
    """(ZEO's clients always call what they are given.)"""
    return commit(client, records, f=lambda tid: None)


class ClientsCase(NothingIsKept, Served):

    def setUp(self):
        super().setUp()
        self.storage = self.open(local_reads=True)
        self.showing = Showing(HERE, '1', self.storage)
        self.addCleanup(self.showing.close)
        self.storage.metrics = self.showing
        self.server = self.serve(self.storage)
        self.service = self.server.services['1']
        self.address = self.showing.exporter.address

    def clients(self):
        status, answer = probe(self.address, '/clients')
        self.assertEqual(status, 200)
        return answer['storages']['1']['clients']

    def only(self):
        client, = self.clients()
        return client

    def check(self, **expected):
        client = self.only()
        self.assertEqual(
            {name: client[name] for name in expected}, expected)

    def client(self, make=FsyncClient, **options):
        client = make(self.server.addr, wait_timeout=PATIENCE, wait=True,
                      **options)
        self.addCleanup(client.close)
        return client

    def talk(self, first=None):
        """To a client of ours that speaks by hand."""
        talker = Talker(self.server.addr, first)
        self.addCleanup(talker.close)
        return talker

    def conflict(self, client):
        """Of a change of what has changed since."""
        transaction = begin(client)
        with self.assertRaises(ConflictError):
            client.store(oid(1), b'\0' * 7 + b'\1', record(2), '',
                         transaction)
            client.tpc_vote(transaction)
        client.tpc_abort(transaction)


class ByHand(ClientsCase):
    """A client that speaks stock's protocol."""

    def test_of_several_each_has_its_own(self):
        one, other = (self.connect(self.server) for _ in range(2))
        one.commit({1: b'x'})
        for _ in range(2):
            one.load(1)
        other.ping()
        first, second = sorted(
            self.clients(), key=lambda each: each['number'])
        self.assertEqual((first['commits'], first['loads']), (1, 2))
        self.assertEqual((second['commits'], second['loads']), (0, 0))
        self.assertGreater(first['received'], second['received'])

    def test_commits_conflicts_and_loads(self):
        peer = self.connect(self.server)
        tid = peer.commit({1: record(1), 2: record(1)})
        peer.commit({2: record(2)}, tid)
        for _ in range(3):
            with self.assertRaises(ErrorReply):
                peer.vote({2: record(3)}, tid)
        for _ in range(4):
            peer.load(1)
        peer.vote({3: b'x'})
        peer.abort()
        self.check(commits=2, conflicts=3, loads=4, transactions=[])

    def test_what_is_not_said_is_not_known(self):
        self.connect(self.server)
        self.check(label='', version=None, reads_locally=None,
                   read_only=False)

    def test_its_address(self):
        peer = self.connect(self.server)
        self.check(address='{}:{}'.format(*peer.socket.getsockname()))

    def test_a_client_that_disconnects_leaves_nothing(self):
        peer = self.connect(self.server)
        peer.vote({1: b'x'})
        ours = self.talk()
        ours.vote(ours.stored({2: b'x'}))
        self.assertEqual(len(self.server.tallies), 1)
        for each in peer, ours:
            each.close()
        until(lambda: not self.clients(), 'gone')
        self.assertEqual(self.server.tallies, {})
        until(lambda: not self.service.committer.ballots(), 'aborted')

    def test_one_that_does_not_register_is_none(self):
        with socket.create_connection(self.server.addr) as connection:
            connection.sendall(zeowire.frame(zeowire.HANDSHAKE))
            until(lambda: self.server.connections, 'a connection')
            self.assertEqual(self.clients(), [])
            self.assertEqual(self.server.tallies, {})


class Stock(ClientsCase):

    def test_a_client_of_zeo(self):
        client = self.client(ZEO.ClientStorage.ClientStorage,
                             client_label='stock 1')
        commit_over(client, {1: record(1)})
        client._cache.clear()
        client.loadBefore(oid(1), maxtid)
        self.conflict(client)
        client.ping()
        self.check(label='stock 1', version=None, reads_locally=None,
                   commits=1, loads=1, conflicts=1)


class Ours(ClientsCase):

    def test_what_it_says(self):
        client = self.client(client_label='ours', local_reads='off')
        client.ping()
        self.check(label='ours', reads_locally=False,
                   version=importlib.metadata.version('fsyncstorage'))

    @mock.patch.object(handedover, 'LOOK_EACH', 0.05)
    def test_reading_locally(self):
        client = self.client()
        until(lambda: self.only()['reads_locally'], 'it says so')
        self.assertTrue(client.stats()['reads_locally'])
        self.storage.retire_map()
        until(lambda: not self.only()['reads_locally'], 'not any more')

    def test_commits_loads_and_conflicts(self):
        commit(self.storage, {number: record(number)
                              for number in range(1, 6)})
        client = self.client(local_reads='off')
        for number in range(1, 6):
            client.loadBefore(oid(number), maxtid)
        for number in range(10, 13):
            commit_over(client, {number: record(1)})
        self.conflict(client)
        client.ping()
        self.check(loads=5, commits=3, conflicts=1)

    def test_bytes_are_those_of_all_of_its_connections(self):
        commit(self.storage, {1: record(1), 2: record(2)})
        client = self.client(local_reads='off')
        client.ping()
        before = self.only()
        for number in 1, 2:
            client.loadBefore(oid(number), maxtid)
        commit_over(client, {3: b'x' * 5000})
        client.ping()
        found = self.only()
        self.assertEqual(found['received'], self.server.traffic.received)
        self.assertGreater(found['received'] - before['received'], 5000)
        self.assertEqual(found['sent'], self.server.traffic.sent)
        # Two loads; a begin, a store, a vote, a finish and a ping.
        self.assertEqual(found['messages'] - before['messages'], 7)
        tally = self.service.sessions[0].tally
        tally.sent += 1000  # as its readers report
        self.assertEqual(self.only()['sent'], found['sent'] + 1000)


class Holding(ClientsCase):

    def setUp(self):
        super().setUp()
        self.holder = self.connect(self.server)
        self.holder.post('set_client_label', 'holder')
        self.other = self.connect(self.server)
        self.other.post('set_client_label', 'other')

    def by_label(self):
        return {client['label']: client['transactions']
                for client in self.clients()}

    def test_the_one_that_holds_and_the_one_that_waits(self):
        self.holder.vote({number: b'x' for number in range(1, 10)})
        asked = self.other.ask_vote({9: b'y'})
        until(lambda: self.service.committer.waiting, 'it waits')
        found = self.by_label()
        held, = found['holder']
        self.assertTrue(held['holds'])
        self.assertEqual(held['state'], 'voted')
        self.assertEqual(held['objects'], 9)
        self.assertEqual(
            held['oids'], [hex(number).replace('0x', '0x0')
                           for number in range(1, MOST_OIDS + 1)])
        waiting, = found['other']
        self.assertFalse(waiting['holds'])
        self.assertEqual(waiting['state'], 'waiting for its objects')
        self.assertGreaterEqual(held['seconds'], waiting['seconds'])
        self.holder.abort()
        self.other.answer(asked)
        found = self.by_label()
        self.assertEqual(found['holder'], [])
        self.assertTrue(found['other'][0]['holds'])

    @staticmethod
    def vote(client, number):
        transaction = begin(client)
        client.store(oid(number), bytes(8), record(1), '', transaction)
        client.tpc_vote(transaction)
        return transaction

    def test_a_few_of_many_transactions(self):
        client = self.client(local_reads='off', client_label='many')
        transactions = [self.vote(client, number)
                        for number in range(MOST_TRANSACTIONS + 2)]
        many, = (each for each in self.clients() if each['label'] == 'many')
        self.assertEqual(len(many['transactions']), MOST_TRANSACTIONS)
        self.assertEqual(many['transactions_left_out'], 2)
        for transaction in transactions:
            client.tpc_abort(transaction)


class Bounds(ClientsCase):

    def test_labels(self):
        peer = self.connect(self.server)
        peer.post('set_client_label', 'a\n\x1b[2Jb\u202e' + 'x' * 900)
        peer.ping()
        label = self.only()['label']
        self.assertTrue(label.isprintable())
        self.assertTrue(label.startswith('a\\n\\x1b[2Jb\\u202ex'))
        self.assertEqual(len(label), LONGEST)

    def test_what_a_peer_says_of_itself(self):
        peer = self.talk(hello()._replace(release=b'1\r' + b'0' * 900))

        def say(*arguments):
            return peer.ask(frames.Call(
                0, b'about_client', values.encoded(arguments)))

        self.assertIsInstance(say(1), frames.Result)
        found = self.only()
        self.assertEqual(found['version'][:3], '1\\r')
        self.assertEqual(len(found['version']), LONGEST)
        self.assertIs(found['reads_locally'], True)
        for wrong in ((), (b'1',), (2,), (False, 1)):
            self.assertIsInstance(say(*wrong), frames.Error)

    def test_many_clients(self):
        for _ in range(3):
            self.connect(self.server)
        with mock.patch.object(page, 'MOST', 2):
            _, answer = probe(self.address, '/clients')
        found = answer['storages']['1']
        self.assertEqual(len(found['clients']), 2)
        self.assertEqual(found['left_out'], 1)

    def test_those_that_hold_and_those_that_wait_are_shown_before_others(self):
        """However many others came before them."""
        self.connect(self.server)
        waits, holder = (self.connect(self.server) for _ in range(2))
        holder.vote({1: b'x'})
        asked = waits.ask_vote({1: b'y'})
        until(lambda: self.service.committer.waiting, 'it waits')
        for most, expected in (1, [[True]]), (2, [[True], [False]]):
            with mock.patch.object(page, 'MOST', most):
                self.assertEqual(
                    [[each['holds'] for each in client['transactions']]
                     for client in self.clients()], expected)
        holder.abort()
        waits.answer(asked)

    def test_figures_that_cannot_be_read(self):
        """Of this storage nothing is said, and the log says so: once, until
        they can be read again."""
        self.connect(self.server)
        for _ in range(2):
            with mock.patch.object(
                    self.service, 'clients', side_effect=ValueError):
                with self.assertLogs('fsyncstorage', 'ERROR') as logged:
                    for _ in range(2):
                        status, text = get(self.address, '/clients')
            self.assertEqual(status, 200)
            self.assertEqual(json.loads(text)['storages'], {})
            self.assertEqual(len(logged.output), 1)
            self.assertEqual(len(self.clients()), 1)
