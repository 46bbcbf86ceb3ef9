"""Clients that ask for more durability than the storage of their server gives.

I3 and I4 over a network: a client of ours and a stock one; storages in
wrappers.
"""

import itertools

from ZEO.ClientStorage import ClientStorage
from ZODB.DemoStorage import DemoStorage
from ZODB.tests.hexstorage import HexStorage

from fsyncstorage.client.storage import FsyncClient

from ..support import PATIENCE
from ..support import Thread
from ..support import vote
from .serving import ErrorReply
from .serving import Served

ASKED = {'durability': 'group-commit', 'key': 'value'}
UNPROMISING = 'none', 'interval'


class AskingCase(Served):

    def setUp(self):
        super().setUp()
        self.numbers = itertools.count()  # of the storages of a test
        self.disk = self.controlled_disk()

    def new_storage(self, policy):
        self.storage = self.open(
            f'{policy} {next(self.numbers)}', durability=policy,
            sync_interval='1h')
        self.addCleanup(self.disk.release_syncs)
        return self.storage

    def client(self, server, make):
        client = make(server.addr, wait_timeout=PATIENCE)
        self.addCleanup(client.close)
        return client

    def last_extension(self):
        *_, last = self.storage.iterator()
        return last.extension

    def stats(self, key):
        return self.storage.stats()[key]


class Clients(AskingCase):

    def check(self, make, wrap=lambda storage: storage, **options):
        for policy in UNPROMISING:
            with self.subTest(policy=policy):
                server = self.serve(
                    wrap(self.new_storage(policy)), **options)
                self.check_one(
                    self.client(server, make), self.client(server, make))
                server.close()

    def check_one(self, client, other):
        plain = other.tpc_finish(vote(other, {1: b'x'}))
        self.assertLess(self.stats('last_durable'), plain)
        metadata = vote(client, {2: b'x'}, extension=ASKED)
        self.disk.hold_again()
        thread = Thread(client.tpc_finish, metadata)
        self.disk.wait_for_sync()
        self.assertTrue(thread.is_alive())
        self.assertEqual(self.storage.lastTransaction(), plain)
        self.assertLessEqual(other.lastTransaction(), plain)
        self.disk.release_syncs()
        tid = thread.result()
        self.assertEqual(self.stats('last_durable'), tid)
        self.assertEqual(self.last_extension(), {'key': 'value'})
        # One that does not ask is as before.
        self.assertLess(tid, other.tpc_finish(vote(other, {3: b'x'})))
        self.assertEqual(self.stats('last_durable'), tid)

    def test_ours(self):
        self.check(FsyncClient)

    def test_stock(self):
        self.check(ClientStorage)

    def test_a_wrapper(self):
        for make in FsyncClient, ClientStorage:
            with self.subTest(make):
                self.check(make, HexStorage)

    def test_changes_of_a_demo_storage(self):
        """It is in one ballot at a time, and told by no AsyncFinish."""
        self.check(FsyncClient, lambda changes: DemoStorage(changes=changes))


class Peers(AskingCase):

    def begin(self, peer, extension, tid=None):
        peer.post('tpc_begin', peer.id, b'', b'', extension, tid, ' ')

    def vote(self, peer, number, extension):
        self.begin(peer, extension)
        peer.store(number, b'x')
        peer.call('vote', peer.id)

    def test_tids_rise_on_each_connection(self):
        """Also where one that does not ask comes behind one that does."""
        for policy in UNPROMISING:
            with self.subTest(policy):
                server = self.serve(self.new_storage(policy))
                one, other = self.connect(server), self.connect(server)
                other.commit({1: b'x'})
                self.vote(one, 2, ASKED)
                self.disk.hold_again()
                first = one.ask_finish()
                self.disk.wait_for_sync()
                other.vote({3: b'x'})
                second = other.ask_finish()
                other.ping()
                self.assertEqual(other.replies, {})
                self.disk.release_syncs()
                asked, behind = one.answer(first), other.answer(second)
                self.assertLess(asked, behind)
                self.assertEqual(self.stats('last_durable'), asked)
                one.wait_for_invalidations(2)
                for peer in one, other:
                    self.assertEqual(peer.tids, sorted(set(peer.tids)))
                    self.assertEqual(peer.tids[-2:], [asked, behind])
                server.close()

    def test_what_it_would_not_get(self):
        """The vote fails; I13: short errors."""
        server = self.serve(self.new_storage('interval'))
        peer = self.connect(server)
        values = ('group-comit', 'quorum', 'x' * 60_000, [['group-commit']],
                  {1: 2}, None, 1.5, b'group-commit', 'group-commit\n')
        for number, value in enumerate(values):
            with self.assertLogs('fsyncstorage.server'):
                with self.assertRaises(ErrorReply) as caught:
                    self.vote(peer, number, {'durability': value})
            self.assertEqual(caught.exception.name, 'StorageTransactionError')
            self.assertLess(len(str(caught.exception)), 300)
        self.assertEqual(list(self.storage.iterator()), [])
        peer.commit({1: b'x'})
