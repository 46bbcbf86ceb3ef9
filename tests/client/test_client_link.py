"""The client's connection: the server it reads from, and its transactions.
Goes with `client/link.py`.
"""

import contextlib
import socket
from unittest import mock

from ZEO.Exceptions import ClientDisconnected
from ZODB.POSException import POSKeyError
from ZODB.utils import z64

from fsyncstorage import wire
from fsyncstorage.client import outgoing
from fsyncstorage.client.addresses import Addresses
from fsyncstorage.server.session import Session

from ..support import PATIENCE
from ..support import Thread
from ..support import in_a_child
from ..support import name_of_error
from ..support import oid
from ..support import until
from .connected import ConnectedTestCase
from .connected import begin
from .connected import commit
from .connected import store
from .connected import vote

CUT = ClientDisconnected


class Servers(ConnectedTestCase):
    """Loads go to the server that sends the invalidations."""

    records = {1: b'one', 2: b'two'}

    def check_load(self, client, number, channels):
        requests = self.figures.requests
        self.assertEqual(self.load(client, number)[1], self.tid)
        self.assertEqual(self.figures.requests - requests, channels)

    def test_a_server_without_read_channels_for_us(self):
        """None, those of another version, or none that a hello can have: it
        reads over the ZEO connection, and says so once."""
        told = {'channel': wire.VERSION, 'instance': bytes(16)}
        as_it_should = 'that it has named as it should'
        for about, why in (
                ({}, 'no read channels;'),
                ({'channel': 99}, 'no read channels of our version;'),
                ({**told, 'mark': None}, as_it_should),
                ({**told, 'mark': b'short'}, as_it_should),
                ({**told, 'mark': 'x' * 8}, as_it_should),
                ({**told, 'instance': 7}, as_it_should),
                ({**told, 'instance': b''}, as_it_should)):
            self.patch(Session, get_info=lambda session: {
                'name': '', 'length': 0, 'size': 0, 'supportsUndo': 1,
                'interfaces': (), 'fsyncstorage': about})
            with self.subTest(about), self.assertLogs(
                    'fsyncstorage.client', 'INFO') as logged:
                client = self.connect()
                self.cut_off(client)
                line, = logged.output
                self.assertIn(why, line)
                self.check_load(client, 1, channels=0)
                client.close()

    def test_another_connection_has_others(self):
        client = self.connect()
        self.check_load(client, 1, channels=1)
        self.cut_off(client)
        self.check_load(client, 2, channels=1)
        until(lambda: self.figures.channels == 1, 'closed')

    def test_new_oids_of_a_server_that_was_started_again(self):
        """Nobody gets what another one was given."""
        client = self.connect()
        client.new_oid()
        self.serve_again()
        until(client.is_connected, 'connected')
        other = self.connect()
        given = {other.new_oid() for _ in range(5)}
        self.assertFalse(given & {client.new_oid() for _ in range(200)})

    def test_a_load_while_there_is_no_server(self):
        """It waits for the next one."""
        client = self.connect()
        self.check_load(client, 1, channels=1)
        self.server.close()
        until(lambda: not client.is_connected(), 'disconnected')
        load = Thread(self.load, client, 2)
        self.serve_again()
        self.assertEqual(load.result()[1], self.tid)


class Hostile(ConnectedTestCase):
    """What a server says is checked; it is tried again, as after any error.
    """

    def setUp(self):
        super().setUp()
        self.patch(Addresses, refused=lambda *args: None)

    def check_it_connects_later(self, method, *wrong):
        """`wrong` is answered first; None: what the server does answer."""
        answers, real = [*wrong], getattr(Session, method)

        def answered(session, *args):
            right = real(session, *args)
            answer = answers.pop(0) if answers else None
            return right if answer is None else answer

        with mock.patch.object(Session, method, answered), \
                self.assertLogs('ZEO.asyncio.client', 'ERROR') as logged:
            client = self.connect(wait=False)
            until(client.is_connected, 'connected')
        client.close()
        return logged.output

    def test_it_describes_itself_wrongly(self):
        for wrong in ([1], 7, {'fsyncstorage': 7}, {'interfaces': 7}):
            for earlier in (), (None,):
                with self.subTest(wrong, earlier=earlier):
                    line, = self.check_it_connects_later(
                        'get_info', *earlier, wrong)
                    self.assertIn('answers get_info by', line)

    def test_it_names_no_tid(self):
        for wrong in 7, 'text', b'short':
            with self.subTest(wrong):
                self.check_it_connects_later('register', wrong)

    def test_it_sends_much_before_it_registers_a_client(self):
        with socket.create_server(('127.0.0.1', 0)) as listener:
            client = self.connect(listener.getsockname(), wait=False)
            listener.settimeout(PATIENCE)
            peer, _ = listener.accept()
            with peer, self.assertLogs('fsyncstorage.client', 'WARNING'):
                peer.settimeout(PATIENCE)
                with self.assertRaises(ConnectionError):
                    peer.sendall(b'\x3f' * (64 << 20))
                    raise AssertionError('it was taken')
            client.close()


class Closing(ConnectedTestCase):

    records = {number: b'x' for number in range(20)}

    def test_while_others_read(self):
        """They are told; nobody is left waiting."""
        client = self.connect(read_channels=2)

        def load(number):
            with contextlib.suppress(CUT):
                self.load(client, number)
                return 'a load ended'

        with self.loads_held_up():
            loads = [Thread(load, number) for number in (1, 1, 2, 3, 4)]
            self.until_asked(2)
            client.close()
            self.assertEqual([load.result() for load in loads], [None] * 5)

    def test_twice(self):
        client = self.connect()
        client.close()
        client.close()
        with self.assertRaises(CUT):
            self.load(client, 1)


class Fork(ConnectedTestCase):

    records = {1: b'one', 2: b'two'}

    def test_the_child_is_told(self):
        """It neither hangs nor takes answers from its parent."""
        client = self.connect()
        self.load(client, 1)
        self.assertEqual(
            in_a_child(name_of_error, self.load, client, 2),
            'ClientDisconnected')
        self.assertEqual(self.load(client, 2)[0], b'two')


class Transactions(ConnectedTestCase):
    """Over the ZEO connection; test_client_commits has them on the channel."""

    level = 2
    commit_channel = False

    def setUp(self):
        super().setUp()
        self.client = self.connect()

    def check_all_is_well(self):
        """Nothing is left of what was before, here and at the server."""
        self.client.ping()
        self.assertEqual(self.transactions(), 0)
        for client in self.client, self.connect():
            with contextlib.closing(client):
                tid = Thread(commit, client, {77: b'x'}, self.serial(77))
                self.assertEqual(tid.result(), self.serial(77))

    def serial(self, number):
        try:
            return self.storage.load(oid(number))[1]
        except POSKeyError:
            return z64

    # Aborts

    def test_abort_at_each_point(self):
        large = b'x' * (outgoing.GATHERED + 1)
        for steps in range(5):
            with self.subTest(steps):
                transaction = begin(self.client)
                for step in (
                    lambda: store(self.client, transaction, 1, b'x'),
                    lambda: store(self.client, transaction, 2, large),
                    lambda: store(self.client, transaction, 3, b'x'),
                    lambda: self.client.tpc_vote(transaction),
                )[:steps]:
                    step()
                self.client.tpc_abort(transaction)
                self.client.tpc_abort(transaction)  # as managers do
                self.check_all_is_well()
                self.client = self.connect()

    def test_abort_of_another_transaction(self):
        """It ended long ago; now somebody else's is being committed."""
        earlier = vote(self.client, {1: b'x'})
        self.client.tpc_finish(earlier)
        current = begin(self.client)
        store(self.client, current, 2, b'x')
        self.client.tpc_abort(earlier)
        store(self.client, current, 3, b'x')
        self.client.tpc_vote(current)
        self.client.tpc_abort(earlier)
        self.client.tpc_finish(current)
        self.assertEqual(len(self.storage), 3)
        self.check_all_is_well()

    def test_abort_waits_for_a_connection(self):
        """So the next try finds one."""
        transaction = begin(self.client)
        self.server.close()
        until(lambda: not self.client.is_connected(), 'disconnected')
        abort = Thread(self.client.tpc_abort, transaction)
        self.serve_again()
        abort.result()
        commit(self.client, {1: b'x'})

    # Connections that are lost

    def test_a_connection_that_is_lost_at_each_point(self):
        large = b'x' * (outgoing.GATHERED + 1)
        for lost_after in range(5):
            with self.subTest(lost_after):
                before = self.storage.lastTransaction()
                transaction = begin(self.client)
                steps = [
                    lambda: store(self.client, transaction, 1, b'x'),
                    lambda: store(self.client, transaction, 2, large),
                    lambda: store(self.client, transaction, 3, b'x'),
                    lambda: self.client.tpc_vote(transaction),
                    lambda: self.client.tpc_finish(transaction),
                ]
                for step in steps[:lost_after]:
                    step()
                self.cut_off(self.client)
                with self.assertRaises(CUT):
                    for step in steps[lost_after:]:
                        step()
                self.client.tpc_abort(transaction)
                self.assertEqual(self.storage.lastTransaction(), before)
                self.check_all_is_well()
                self.client = self.connect()
