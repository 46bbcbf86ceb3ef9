"""Servers in processes of their own that are frozen, or killed.

Whoever waits goes on with the other server, or gets an error; and nothing is
left behind.
"""

import contextlib
import gc
import signal
import socket
import threading
from unittest import mock

import transaction
import ZODB
from ZEO.Exceptions import ClientDisconnected
from ZODB.POSException import POSKeyError
from ZODB.utils import maxtid
from ZODB.utils import p64
from ZODB.utils import u64
from ZODB.utils import z64

from fsyncstorage.client import readchannel
from fsyncstorage.client import sockets
from fsyncstorage.errors import OutcomeUnknown
from perf.ports import free_address

from ..server.serving import open_files
from ..support import PATIENCE
from ..support import Thread
from ..support import begin
from ..support import oid
from ..support import until
from .connected import begin as begin_at
from .connected import store
from .connected import vote
from .serverprocesses import ProcessesTestCase
from .serverprocesses import outcome
from .serverprocesses import server_of

BLOB = 77
CONTENT = b'blob' * 100000


class SilentTestCase(ProcessesTestCase):

    def fill(self, storage):
        given = self.path('given')
        with open(given, 'wb') as file:
            file.write(CONTENT)
        transaction = begin(storage)
        storage.storeBlob(oid(BLOB), z64, b'a blob', given, '', transaction)
        storage.tpc_vote(transaction)
        self.blob_tid = storage.tpc_finish(transaction)

    def patch(self, target, name, value):
        patch = mock.patch.object(target, name, value)
        patch.start()
        self.addCleanup(patch.stop)

    def load(self, client, number):
        return client.loadBefore(oid(number), maxtid)

    def check_loads(self, outcomes):
        self.assertEqual(set(outcomes.values()), {None}, outcomes)

    def check_all_is_well(self, client, server):
        """It uses this server, for all that there is."""
        client._wait()
        self.assertEqual(server_of(client), server.address)
        for number in range(40, 43):
            self.assertEqual(self.load(client, number)[0], b'%d' % number)
        voted = vote(client, {90: b'new'})
        tid = client.tpc_finish(voted)
        self.assertEqual(self.load(client, 90)[:2], (b'new', tid))


class Waiting(SilentTestCase):
    """Those that wait for a server that is frozen."""

    level = 2

    def test_whoever_waits(self):
        # A channel that is being opened is not waited for, either.
        self.patch(readchannel, 'CONNECT_WITHIN', 3600)
        client = self.connect_to_two(blob_dir=self.path('cache'))
        self.load(client, 1)  # opens a channel
        voted, begun = vote(client, {61: b'perhaps'}), begin_at(client)
        store(client, begun, 60, b'never')
        self.first.freeze()
        waiting = {what: Thread(*call) for what, call in {
            'finish': (client.tpc_finish, voted),
            'vote': (client.tpc_vote, begun),
            'load': (self.load, client, 2),
            'load on another channel': (self.load, client, 3),
            'blob': (client.loadBlob, oid(BLOB), self.blob_tid),
            'oids': (client.new_oid,),
            'ping': (client.ping,),
            'list': (client.undoLog, 0, 10),
            'history': (client.history, oid(1)),
        }.items()}
        outcomes = {what: outcome(each) for what, each in waiting.items()}
        # A call on the ZEO connection that was cut off is not repeated.
        for what in 'oids', 'ping', 'list', 'history', 'vote':
            self.assertIn(
                outcomes.pop(what, None), (None, ClientDisconnected), what)
        self.assertEqual(outcomes.pop('finish'), OutcomeUnknown)
        self.check_loads(outcomes)
        self.check_all_is_well(client, self.second)


class Frozen(SilentTestCase):

    level = 2

    def test_a_commit_of_a_database(self):
        """In one trip, or in two."""
        client = self.connect_to_two()
        with contextlib.closing(ZODB.DB(client)) as db:
            connection = db.open(manager := transaction.TransactionManager())
            connection.root()['x'] = 1
            manager.commit()
            # The other server would be behind this client.
            client.new_addr([self.first.address])
            connection.root()['x'] = 2
            self.first.freeze()
            committing = Thread(manager.commit)
            until(lambda: not client.is_connected(), 'given up')
            self.first.thaw()
            # The same server: it knows.
            self.assertIn(outcome(committing), (None, ClientDisconnected))
            manager.abort()
            connection.close()

    def test_close_while_others_wait(self):
        """Before the client has noticed; no thread or descriptor is left."""
        self.connect_to_two().close()  # what is made once
        gc.collect()
        before = open_files()
        client = self.connect(
            self.first.address, server_timeout=None,
            blob_dir=self.path('cache'))
        self.load(client, 1)
        finishing = vote(client, {61: b'perhaps'})
        self.first.freeze()
        waiting = [Thread(self.load, client, 2), Thread(client.new_oid),
                   Thread(client.tpc_finish, finishing)]
        until(lambda: client._server.client.protocol.futures, 'asked')
        with self.assertNoLogs('ZEO.asyncio', 'ERROR'):
            client.close()
        for each in waiting:
            self.assertIsNotNone(outcome(each))
        client = waiting = each = None
        until(lambda: gc.collect() is not None and open_files() <= before,
              'closed')


class FrozenAndKilled(SilentTestCase):

    level = 3

    def test_close_with_what_cannot_leave(self):
        """The server does not take it, and is not waited for."""
        client = self.connect_to_two(
            server_timeout=None, blob_dir=self.path('cache'))
        self.first.freeze()
        given = self.path('large')
        with open(given, 'wb') as file:
            file.truncate(32 << 20)
        begun = begin_at(client)
        storing = Thread(client.storeBlob, oid(62), z64, b'a blob', given, '',
                         begun)
        until(lambda: self.waits_to_leave(client) > 1 << 20, 'stuck')
        with self.assertNoLogs('ZEO.asyncio', 'ERROR'):
            client.close()
        outcome(storing)

    def waits_to_leave(self, client):
        stream = client._server.stream
        if stream is not None:
            return sockets.unsent(stream._socket)
        transport = client._server.client.protocol._transport
        return (sockets.unsent(transport.get_extra_info('socket'))
                + transport.get_write_buffer_size())

    def test_kill(self):
        client = self.connect_to_two(server_timeout=None)
        stopped = threading.Event()

        def load_on():
            numbers = 0
            while not stopped.is_set():
                for number in range(1, 30):
                    with contextlib.suppress(ClientDisconnected):
                        self.load(client, number)
                        numbers += 1
                client._cache.clear()
            return numbers

        loading = [Thread(load_on) for _ in range(3)]
        self.first.kill()
        until(lambda: server_of(client) == self.second.address
              and client.is_connected(), 'gone over')
        stopped.set()
        for each in loading:
            self.assertGreater(each.result(), 0)
        self.check_all_is_well(client, self.second)

    def test_an_interrupt_while_it_waits(self):
        class Interrupt(BaseException):
            pass

        def interrupt(*args):
            raise Interrupt

        client = self.connect_to_two()
        before = signal.signal(signal.SIGALRM, interrupt)
        self.addCleanup(signal.signal, signal.SIGALRM, before)
        self.first.freeze()
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with self.assertRaises(Interrupt):
            self.load(client, 2)
        # (Over the ZEO connection it is a new load that goes on.)
        with contextlib.suppress(ClientDisconnected):
            self.load(client, 2)
        self.check_all_is_well(client, self.second)

    def test_it_may_be_silent_for_ever(self):
        """As with a stock client, or for as long as it takes."""
        client = self.connect_to_two(server_timeout=None)
        self.first.freeze()
        loading = Thread(self.load, client, 2)
        loading.join(1.5)
        self.assertTrue(client.is_connected())
        self.assertTrue(loading.is_alive())
        self.first.thaw()
        self.assertEqual(loading.result()[0], b'2')
        self.assertEqual(server_of(client), self.first.address)

    def test_an_idle_client(self):
        """Nobody waits, and it notices."""
        client = self.connect_to_two()
        self.first.freeze()
        until(lambda: server_of(client) == self.second.address, 'gone over')
        self.check_all_is_well(client, self.second)


class FrozenLocally(SilentTestCase):

    level = 3
    local_reads = 'on'

    def load(self, client, number):
        """As of what it knows: what is newer, it asks for."""
        now = u64(client.lastTransaction()) + 1
        return client.loadBefore(oid(number), p64(now))

    def test_the_file_is_read_on(self):
        """Nobody has to answer for that, and nobody notices."""
        client = self.connect_to_two(local_reads='auto')
        client.new_addr([self.first.address])
        until(lambda: client.stats()['reads_locally'], 'locally')
        self.first.freeze()
        self.check_local(client, range(1, 5))
        until(lambda: not client.is_connected(), 'given up')
        self.check_local(client, range(5, 10))
        # What is not there has to be asked for.
        client.new_addr([self.first.address, self.second.address])
        with self.assertRaises(POSKeyError):
            self.load(client, 1000)
        self.assertEqual(server_of(client), self.second.address)

    def check_local(self, client, numbers):
        before = client.stats()['local_reads']
        for number in numbers:
            self.assertEqual(self.load(client, number)[0], b'%d' % number)
        self.assertEqual(client.stats()['local_reads'], before + len(numbers))


class Mute(SilentTestCase):
    """Something that takes connections, and says nothing."""

    level = 2

    def setUp(self):
        super().setUp()
        self.mute = socket.create_server(('127.0.0.1', 0))
        self.addCleanup(self.mute.close)

    def test_beside_a_server(self):
        server = self.serve()
        client = self.connect(self.mute.getsockname(), server.address)
        self.check_all_is_well(client, server)

    def test_alone(self):
        """It is given up, and tried again."""
        self.connect(self.mute.getsockname(), wait=False)
        self.mute.settimeout(PATIENCE)
        with self.assertLogs('fsyncstorage.client', 'WARNING') as logged:
            for _ in range(2):
                peer, _ = self.mute.accept()
                with peer:
                    peer.settimeout(PATIENCE)
                    self.assertEqual(peer.recv(1), b'')
        self.assertIn('nothing was heard from the server', logged.output[0])

    def test_behind_its_greeting(self):
        """It keeps others waiting no longer than it may be silent itself."""
        address = free_address()

        def greet():
            peer, _ = self.mute.accept()
            peer.sendall(b'\0\0\0\2Z5')
            return peer

        greeting = Thread(greet)
        client = self.connect(self.mute.getsockname(), address, wait=False)
        with greeting.result():
            until(client._server.client.register_lock.locked, 'registering')
            self.check_all_is_well(client, self.serve(address=address))
