"""What clients make of the server's greeting: ZEO's own, of any release, and
ours."""

import contextlib
import io
import os
from unittest import mock

import ZEO.asyncio.client
from ZEO.asyncio.client import Protocol
from ZEO.ClientStorage import ClientStorage

from fsyncstorage.server.connection import greeting
from fsyncstorage.wire import frames

from ..client.talking import Talking
from ..support import PATIENCE
from ..support import commit
from .test_server_runner import RunnerTestCase
from .test_server_runner import realized

#: What its clients speak: releases 5.0 to 5.4, and from 6.0 on.
ZEO_5 = b'309', b'310', b'3101', b'4', b'5'
ZEO_6 = b'5',
#: Made up: there are none yet.
LATER = (b'5', b'6'), (b'5', b'5.1'), (b'5', b'10')


def spoken(greeting, protocols):
    """What ZEO's own code answers, if it speaks these; None: it refuses."""
    client = mock.Mock(protocols=protocols)
    with mock.patch.object(ZEO.asyncio.client, 'Task'):
        Protocol.finish_connection(client, greeting[4:])
    if client.client.register_failed.called:
        return None
    (said,), _ = client.write_message.call_args
    return said


class OfStock(Talking):

    def test_every_release_takes_it(self):
        self.assertEqual(Protocol.protocols, ZEO_6)
        for protocols in ZEO_5, ZEO_6:
            for as_stock in False, True:
                for msgpack, protocol in (False, b'Z5'), (True, b'M5'):
                    self.assertEqual(
                        spoken(greeting(msgpack, as_stock), protocols),
                        protocol)

    def test_a_release_that_speaks_more(self):
        """It takes the smaller of two texts: ours, which it does not know, if
        its newest is greater.  That is what `--greeting stock` is for."""
        for protocols in LATER:
            newer = protocols[-1] > b'5' + frames.SUFFIX
            self.assertEqual(
                spoken(greeting(False, False), protocols),
                None if newer else b'Z' + protocols[-1])
        self.assertEqual(spoken(greeting(False, False), (b'5', b'6')), None)
        self.assertEqual(spoken(greeting(False, True), (b'5', b'6')), b'Z5')

    def test_a_client_of_stock(self):
        for as_stock in False, True:
            server = self.serve(
                self.open(str(as_stock)), greets_as_stock=as_stock)
            client = ClientStorage(server.addr, wait_timeout=PATIENCE)
            with contextlib.closing(client):
                commit(client, {1: b'x'}, f=lambda tid: None)


class Options(RunnerTestCase):

    def greets_as_stock(self, *arguments, **environment):
        with mock.patch.dict(os.environ, environment):
            return realized('-a', '0', '-f', self.path(),
                            *arguments).greets_as_stock

    def test_what_is_chosen(self):
        stock = '--greeting', 'stock'
        for arguments, environment, chosen in (
                ((), {}, False), (stock, {}, True),
                (('--greeting', 'ours'), {}, False),
                ((), {'FSYNC_GREETING': 'stock'}, True),
                ((), {'FSYNC_GREETING': ''}, False),
                (stock, {'FSYNC_GREETING': 'ours'}, True)):
            with self.subTest(arguments, environment=environment):
                self.assertEqual(bool(self.greets_as_stock(
                    *arguments, **environment)), chosen)
        said = io.StringIO()
        with self.assertRaises(SystemExit), contextlib.redirect_stderr(said):
            self.greets_as_stock('--greeting', 'other')
        self.assertIn("ours or stock, not 'other'", said.getvalue())

    def test_the_server_of_the_command(self):
        runner = self.runner('--greeting', 'stock')
        runner.open_storages()
        runner.create_server()
        self.addCleanup(runner.close_server)
        self.assertEqual(
            runner.server.acceptor.greeting, greeting(False, True))
