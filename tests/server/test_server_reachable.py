"""A server that other machines can reach without a certificate says so."""

import contextlib
import ssl
import unittest
from unittest import mock

from fsyncstorage.metrics import address
from fsyncstorage.server.runzeo import Options
from fsyncstorage.server.runzeo import Runner
from fsyncstorage.server.runzeo import open_to_others

from .serving import Served

LOGGER = 'fsyncstorage.server.runzeo'


class Addresses(unittest.TestCase):

    def exposed(self, *hosts, context=None):
        return [host for host, _ in open_to_others(
            [(host, 8100) for host in hosts], context)]

    def test_which_are_open(self):
        hosts = ['0.0.0.0', '::', '10.1.2.3', '::ffff:10.1.2.3', 'fe80::1%lo']
        self.assertEqual(self.exposed(*hosts), hosts)
        self.assertEqual(self.exposed(
            '127.0.0.1', '127.8.9.10', '::1', '::ffff:127.0.0.1'), [])
        self.assertEqual(open_to_others(['/run/zeo'], None), [])

    def test_client_certificates_close_them(self):
        """Encryption alone does not."""
        for mode, exposed in ((ssl.CERT_REQUIRED, []),
                              (ssl.CERT_NONE, ['0.0.0.0']),
                              (ssl.CERT_OPTIONAL, ['0.0.0.0'])):
            context = mock.Mock(ssl.SSLContext, verify_mode=mode)
            self.assertEqual(
                self.exposed('0.0.0.0', context=context), exposed)


class AtStart(Served):

    def start(self):
        options = Options()
        options.realize(
            ['-f', self.path(), '-a', '127.0.0.1:0', '--pid-file',
             self.path('pid')])
        runner = Runner(options)
        runner.open_storages()
        runner.create_server()
        self.addCleanup(runner.server.close)
        return runner

    def test_loopback_is_served_without_a_word(self):
        with self.assertNoLogs(LOGGER, 'WARNING'):
            self.start()

    def test_others_are_warned_of(self):
        # A loopback socket, taken for one that is not.
        with contextlib.ExitStack() as stack:
            stack.enter_context(mock.patch.object(
                address, 'is_loopback', lambda host: False))
            logged = stack.enter_context(self.assertLogs(LOGGER, 'WARNING'))
            runner = self.start()
        (_, port), = [each.getsockname() for each
                      in runner.server.acceptor.sockets]
        self.assertIn(f'127.0.0.1 port {port} without', logged.output[0])
