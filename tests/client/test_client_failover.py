"""Several addresses: which one is used, and what is found out about each."""

import contextlib
import shutil
import socket
import threading
from unittest import mock

from ZEO.Exceptions import ClientDisconnected
from ZODB.utils import z64

from fsyncstorage.client import failover
from fsyncstorage.errors import OutcomeUnknown
from perf.ports import free_address

from ..server.relay import Cut
from ..server.relay import Relays
from ..support import PATIENCE
from ..support import Thread
from ..support import oid
from ..support import until
from .connected import ConnectedTestCase
from .connected import begin
from .connected import commit
from .connected import store
from .connected import vote


def server_of(client):
    """The address that it uses now."""
    return client._server_addr


def outcome(thread):
    """The class of its error; None: there was none."""
    try:
        thread.result()
    except AssertionError:  # it hangs
        raise
    except ClientDisconnected:
        return ClientDisconnected
    except Exception as error:
        return type(error)
    return None


class Addresses(ConnectedTestCase):

    level = 2

    records = {1: b'one'}

    def setUp(self):
        super().setUp()
        self.down = free_address()  # nobody listens

    def connect(self, *addresses, **options):
        return super().connect(list(addresses), wait=False, **options)

    def copy(self):
        """Another server, of the same data."""
        shutil.copyfile(self.path(), self.path('Copy.fs'))
        self.storage = self.open('Copy.fs')
        self.address = '127.0.0.1', 0
        self.serve()
        return self.server

    def serve_at(self, address):
        """The data of the first server, which has ended."""
        self.storage = self.open(blob_dir=self.path('blobs'))
        self.address = address
        self.serve()

    def until_at(self, client, address):
        until(lambda: client.is_connected()
              and server_of(client) == address, 'connected there')
        self.assertEqual(self.load(client, 1)[0], b'one')

    def test_one_that_closes_beside_one_that_is_down(self):
        """Until somebody listens there who serves."""
        with socket.create_server(('127.0.0.1', 0)) as listener:
            listener.settimeout(PATIENCE)
            address = listener.getsockname()
            client = self.connect(self.down, address)
            for _ in range(5):
                peer, _ = listener.accept()
                peer.close()
        self.end_server()
        self.serve_at(address)
        self.until_at(client, address)

    def test_one_that_refuses_beside_one_that_is_down(self):
        self.server.read_only = True
        address = self.server.addr
        with self.assertLogs('fsyncstorage.client', 'INFO') as logged:
            client = self.connect(self.down, address)
            until(lambda: 'nobody can write here' in str(logged.output),
                  'refused')
        self.server.read_only = False
        self.until_at(client, address)

    def test_one_that_lags_beside_one_that_comes(self):
        """The one that the client refuses does not keep it from the other."""
        first, thread = self.server, self.thread
        address, lagging = first.addr, self.copy().addr
        client = self.connect(address, lagging)
        self.until_at(client, address)
        commit(client, {2: b'two'})
        with self.assertLogs('fsyncstorage.client', 'INFO') as logged:
            first.close()
            thread.join()
            until(lambda: 'this client has seen' in str(logged.output),
                  'refused')
        self.serve_at(address)
        self.until_at(client, address)

    def test_a_fallback_that_becomes_writable(self):
        """Both can only be read at first."""
        self.patch(failover, LOOK_FOR_BETTER=0.01)
        servers = {each.addr: each for each in (self.server, self.copy())}
        for each in servers.values():
            each.read_only = True
        with self.assertNoLogs('fsyncstorage.server', 'ERROR'):
            client = self.connect(*servers, read_only_fallback=True)
            until(client.is_connected, 'connected')
        self.assertTrue(client.isReadOnly())
        other, = servers.keys() - {server_of(client)}
        servers[other].read_only = False
        until(lambda: not client.isReadOnly(), 'a better server')
        self.until_at(client, other)

    def test_why_there_is_no_server(self):
        """It is said once, and then once a minute as a warning."""
        def said():
            return [each for each in logged.output if 'no stream' in each]

        tried = threading.Semaphore(0)

        def opened(*args):
            tried.release()
            raise failover.NoServer('a test')

        with mock.patch.object(failover, 'opened', opened), self.assertLogs(
                'fsyncstorage.client', 'INFO') as logged:
            self.connect(self.down)
            for _ in range(5):
                self.assertTrue(tried.acquire(timeout=PATIENCE))
            self.assertEqual(len(said()), 1)
            self.patch(failover, SAY_AGAIN=0)
            until(lambda: len(said()) > 2, 'said again')
        self.assertIn('WARNING', said()[-1])


class Through(ConnectedTestCase):
    """A relay, and another way to the same server."""

    records = {1: b'one', 2: b'two'}

    def setUp(self):
        super().setUp()
        self.relays = Relays()
        self.relays.__enter__()
        self.addCleanup(self.relays.__exit__)
        self.relay = self.relays.open(self.server.addr)
        self.through = '127.0.0.1', self.relay.port

    def freeze(self):
        self.relays.do(self.relay._flows.clear)

    def go_on(self):
        self.relays.do(self.relay._flows.set)


class Outcomes(Through):
    """A finish through a relay that goes silent, or at another server."""

    level = 2

    def setUp(self):
        super().setUp()
        self.client = self.connect(
            [self.through, self.server.addr], server_timeout=1)

    def finish_in_silence(self, part):
        """The request reaches the server if `part` is 1; no answer comes."""
        transaction = vote(self.client, {9: b'nine'})
        self.relays.do(self.relay.arm, [Cut('finish', 'frozen', part, True)])
        return Thread(self.client.tpc_finish, transaction)

    def test_the_same_server_by_another_way(self):
        """It knows: it is committed."""
        tid = self.finish_in_silence(1).result()
        self.assertEqual(server_of(self.client), self.server.addr)
        self.assertEqual(self.load(self.client, 9)[:2], (b'nine', tid))

    def test_one_that_did_not_reach_it(self):
        """It promises, and keeps the promise when the request comes."""
        finishing = self.finish_in_silence(0)
        with self.assertRaises(ClientDisconnected) as caught:
            finishing.result()
        self.assertNotIsInstance(caught.exception, OutcomeUnknown)
        self.go_on()
        self.client.ping()
        self.assertNotIn(oid(9), self.stored())
        commit(self.client, {9: b'nine'})

    def stored(self):
        with contextlib.closing(self.storage.iterator()) as transactions:
            return {record.oid for each in transactions for record in each}

    def test_another_server(self):
        """Its file decides: what is not there never will be there, and can be
        repeated."""
        for part in 0, 1:
            with self.subTest(part):
                first = self.server
                shutil.copyfile(self.path(), self.path(f'{part}.fs'))
                self.storage = self.open(f'{part}.fs')
                self.address = '127.0.0.1', 0
                self.serve()
                client = self.connect(
                    [self.through, self.server.addr], server_timeout=1)
                transaction = begin(client)
                store(client, transaction, 10 + part, b'x', z64)
                client.tpc_vote(transaction)
                self.relays.do(
                    self.relay.arm, [Cut('finish', 'frozen', part, True)])
                finishing = Thread(client.tpc_finish, transaction)
                with self.assertRaises(ClientDisconnected):
                    finishing.result()
                self.assertEqual(
                    server_of(client), self.server.addr)
                client.close()
                self.relays.do(self.relay.settle)
                self.server = first
