"""Several addresses: which one is used, and what is found out about each."""

import contextlib
import errno
import os
import shutil
import socket
import threading
from unittest import mock

from ZEO.Exceptions import ClientDisconnected
from ZODB.utils import z64

from fsyncstorage.client.zeoconnection import ZeoConnection
from fsyncstorage.errors import OutcomeUnknown
from fsyncstorage.server import frames
from fsyncstorage.server.session import Session
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
    protocol = client._server.client.protocol
    return None if protocol is None else protocol.addr


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
    """What ZEO alone would not try again: register_failed_poll is an hour."""

    level = 2

    records = {1: b'one'}

    def setUp(self):
        super().setUp()
        self.down = free_address()  # nobody listens

    def connect(self, *addresses, **options):
        client = super().connect(list(addresses), wait=False, **options)
        client._server.client.connect_poll = 0
        client._server.client.register_failed_poll = 3600
        return client

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
        self.server.close()
        self.thread.join()
        self.serve_at(address)
        self.until_at(client, address)

    def test_one_that_refuses_beside_one_that_is_down(self):
        self.server.read_only = True
        refused = threading.Event()
        register_failed = ZeoConnection.register_failed

        def note(*args):
            register_failed(*args)
            refused.set()

        self.patch(ZeoConnection, register_failed=note)
        address = self.server.acceptor.addr
        client = super().connect([self.down, address], wait=False)
        client._server.client.register_failed_poll = 0.01
        self.assertTrue(refused.wait(PATIENCE))
        self.server.read_only = False
        self.until_at(client, address)

    def test_one_that_lags_beside_one_that_comes(self):
        """The one that the client refuses does not keep it from the other."""
        first, thread = self.server, self.thread
        address, lagging = first.acceptor.addr, self.copy().acceptor.addr
        client = self.connect(address)
        self.until_at(client, address)
        commit(client, {2: b'two'})
        client.new_addr([lagging, address])
        with self.assertLogs('fsyncstorage.client', 'ERROR') as logged:
            first.close()
            thread.join()
            until(lambda: logged.output, 'refused')
        self.assertIn('the server is at', logged.output[0])
        self.serve_at(address)
        self.until_at(client, address)

    def test_a_fallback_that_becomes_writable(self):
        """Both can only be read at first."""
        servers = {each.acceptor.addr: each
                   for each in (self.server, self.copy())}
        for each in servers.values():
            each.read_only = True
        with self.assertNoLogs('fsyncstorage.server', 'ERROR'):
            client = self.connect(*servers, read_only_fallback=True)
            client._server.client.register_failed_poll = 0.01
            until(client.is_connected, 'connected')
        self.assertTrue(client.isReadOnly())
        other, = servers.keys() - {server_of(client)}
        servers[other].read_only = False
        self.until_at(client, other)
        self.assertFalse(client.isReadOnly())

    def test_how_long_a_server_may_be_silent(self):
        """Where nothing is said, and another address can take over."""
        first, second = self.server.acceptor.addr, self.copy().acceptor.addr
        client = self.connect(first)
        until(client.is_connected, 'connected')
        self.assertIsNone(client._server.client.protocol._liveness)
        client.new_addr([first, second])
        self.in_client_loop(client, client._server._reconnect)
        until(client.is_connected, 'connected again')
        self.assertEqual(
            client._server.client.protocol._liveness._seconds, 30)


class Through(ConnectedTestCase):
    """A relay, and another way to the same server."""

    records = {1: b'one', 2: b'two'}

    def setUp(self):
        super().setUp()
        self.relays = Relays()
        self.relays.__enter__()
        self.addCleanup(self.relays.__exit__)
        self.relay = self.relays.open(self.server.acceptor.addr)
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
        self.client = self.connect(self.through, server_timeout=1)
        self.client.new_addr([self.through, self.server.acceptor.addr])
        until(lambda: self.client._server.stream, 'a channel')

    def finish_in_silence(self, part):
        """The request reaches the server if `part` is 1; no answer comes."""
        transaction = vote(self.client, {9: b'nine'})
        self.relays.do(self.relay.arm, [Cut('finish', 'frozen', part, True)])
        return Thread(self.client.tpc_finish, transaction)

    def test_the_same_server_by_another_way(self):
        """It knows: it is committed."""
        tid = self.finish_in_silence(1).result()
        self.assertEqual(server_of(self.client), self.server.acceptor.addr)
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
        """It does not know, whatever has come of it: no promise."""
        for part in 0, 1:
            with self.subTest(part):
                first = self.server
                shutil.copyfile(self.path(), self.path(f'{part}.fs'))
                self.storage = self.open(f'{part}.fs')
                self.address = '127.0.0.1', 0
                self.serve()
                client = self.connect(self.through, server_timeout=1)
                client.new_addr([self.through, self.server.acceptor.addr])
                transaction = begin(client)
                store(client, transaction, 10 + part, b'x', z64)
                client.tpc_vote(transaction)
                self.relays.do(
                    self.relay.arm, [Cut('finish', 'frozen', part, True)])
                finishing = Thread(client.tpc_finish, transaction)
                with self.assertRaises(OutcomeUnknown):
                    finishing.result()
                self.assertEqual(
                    server_of(client), self.server.acceptor.addr)
                client.close()
                self.relays.do(self.relay.settle)
                self.server = first


class HeldUpTestCase(ConnectedTestCase):
    """A server whose loop does nothing for a while."""

    records = {1: b'one', 2: b'two'}

    def setUp(self):
        super().setUp()
        self.may_go_on = threading.Event()
        self.addCleanup(self.may_go_on.set)

    def hold_up(self):
        self.server.acceptor.event_loop.call_soon_threadsafe(
            self.may_go_on.wait, PATIENCE)


class GivenUpByTheSystem(HeldUpTestCase):
    """A finish over the ZEO connection, which this machine ends."""

    level = 2

    commit_channel = False

    def finish(self, number, **options):
        client = self.connect(**options)
        transaction = begin(client)
        store(client, transaction, 1000 + number, b'perhaps')
        client.tpc_vote(transaction)
        self.hold_up()
        finishing = Thread(client.tpc_finish, transaction)
        protocol = client._server.client.protocol
        until(lambda: protocol.futures, 'asked')
        self.in_client_loop(client, protocol.connection_lost, OSError(
            number, os.strerror(number)))
        came = outcome(finishing)
        self.may_go_on.set()
        client.close()
        self.may_go_on.clear()
        return came

    def test_the_outcome(self):
        """The server may still be there, and finish it."""
        for number, seconds in (
                (errno.ETIMEDOUT, 3600), (errno.EHOSTUNREACH, 3600),
                (errno.ENETUNREACH, 3600), (errno.EHOSTDOWN, None)):
            with self.subTest(number, seconds=seconds), self.assertLogs(
                    'fsyncstorage.client', 'WARNING') as logged:
                self.assertIs(self.finish(number, server_timeout=seconds),
                              OutcomeUnknown)
            self.assertIn('nothing was heard', logged.output[0])

    def test_the_server_has_ended_it(self):
        self.assertIs(self.finish(errno.ECONNRESET, server_timeout=3600),
                      ClientDisconnected)


class Room(ConnectedTestCase):

    level = 2
    records = {1: b'one'}

    def test_a_vote_that_waits_for_room(self):
        """The server does not read it, and says something elsewhere."""
        asked = []
        alive = Session.alive
        self.patch(Session, alive=lambda session: (
            asked.append(session), alive(session))[1])
        client = self.connect(server_timeout=1)
        generation = client._connection_generation
        room = self.server.room
        other = mock.Mock()
        self.assertTrue(self.in_loop(
            lambda: room.ask(other, frames.ROOM)))
        transaction = begin(client)
        store(client, transaction, 60, bytes(100_000))
        voting = Thread(client.tpc_vote, transaction)
        until(lambda: room._line.waiting, 'waiting')
        # Nothing is said on the commit channel meanwhile.
        until(lambda: len(asked) >= 6, 'longer than it may be silent')
        self.in_loop(lambda: room.give_back(other))
        voting.result()
        client.tpc_finish(transaction)
        self.assertEqual(client._connection_generation, generation)
