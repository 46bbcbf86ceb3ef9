"""`fsync-runzeo` from its options to its first storage, and its pid file."""

import contextlib
import io
import os
import pathlib
import signal
import ssl
from unittest import mock

from ZEO.runzeo import ZEOServer

from fsyncstorage import FsyncStorage
from fsyncstorage.metrics import address
from fsyncstorage.metrics import exporters
from fsyncstorage.metrics import probes
from fsyncstorage.server.runzeo import Options
from fsyncstorage.server.runzeo import Runner
from fsyncstorage.server.runzeo import open_to_others

from ..metrics.asking import metrics
from ..metrics.asking import probe
from ..support import TestCase

CONFIG = """
%import fsyncstorage
<zeo>
  address 127.0.0.1:0
  pid-filename {0}/zeo.pid
</zeo>
<fsyncstorage 1>
  path {0}/Data.fs
  {1}
</fsyncstorage>
"""

#: The signals that end a server, and the status that it has then: as stock's,
#: it is started again after a SIGHUP.
ENDS = {signal.SIGTERM: 0, signal.SIGINT: 0, signal.SIGHUP: 1}


class RunnerTestCase(TestCase):

    def runner(self, *options, section=''):
        config = pathlib.Path(self.path('zeo.conf'))
        config.write_text(CONFIG.format(config.parent, section))
        self.pid_file = config.parent / 'zeo.pid'
        self.addCleanup(exporters.process_is, probes.SERVING)
        return Runner(realized('-C', str(config), *options))


def realized(*arguments):
    options = Options()
    options.realize(arguments)
    return options


class Storages(RunnerTestCase):

    def check_refused(self, runner, words):
        runner.make_pidfile()
        with self.assertLogs('fsyncstorage', 'ERROR') as logged:
            with self.assertRaisesRegex(SystemExit, words):
                runner.open_storages()
        self.assertRegex(logged.output[0], words)
        runner.remove_pidfile()

    def test_the_server_that_has_the_storages_has_the_pid_file(self):
        runner = self.runner()
        runner.make_pidfile()
        self.assertFalse(self.pid_file.exists())
        runner.open_storages()
        self.addCleanup(runner.storages['1'].close)
        self.assertEqual(int(self.pid_file.read_text()), os.getpid())
        runner.remove_pidfile()
        self.assertFalse(self.pid_file.exists())

    def test_one_that_is_refused_leaves_it_alone(self):
        runner = self.runner()
        self.pid_file.write_text('42')
        holder = FsyncStorage(self.path())
        self.addCleanup(holder.close)
        self.check_refused(runner, 'Data.fs is open for writing in process')
        self.assertEqual(self.pid_file.read_text(), '42')

    def test_a_file_that_is_no_database(self):
        runner = self.runner()
        pathlib.Path(self.path()).write_text('something else')
        self.check_refused(runner, 'Data.fs')
        self.assertFalse(self.pid_file.exists())


class Words(RunnerTestCase):

    def said(self, *arguments):
        """The status, and what is on the terminal."""
        with (contextlib.redirect_stdout(io.StringIO()) as out,
              contextlib.redirect_stderr(out),
              self.assertRaises(SystemExit) as caught):
            realized(*arguments)
        return caught.exception.code, out.getvalue()

    def test_the_sections_of_a_client(self):
        config = pathlib.Path(self.path('zeo.conf'))
        config.write_text('%import fsyncstorage.client\n'
                          + CONFIG.format(config.parent, ''))
        status, words = self.said('-C', str(config))
        self.assertEqual(status, 2)
        self.assertIn('%import fsyncstorage.client', words)
        self.assertNotIn('redefined', words)

    def test_a_key_that_is_none(self):
        config = pathlib.Path(self.path('zeo.conf'))
        config.write_text(CONFIG.format(config.parent, 'durabilty none'))
        status, words = self.said('-C', str(config))
        self.assertEqual(status, 2)
        self.assertIn("did you mean 'durability'?", words)


class Signals(RunnerTestCase):

    def setUp(self):
        super().setUp()
        for number in (
                signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR2,
                signal.SIGXFSZ):
            self.addCleanup(signal.signal, number, signal.getsignal(number))
        # It leaves the socket with which it looks to the collector.
        self.patch(ZEOServer, check_socket=mock.Mock())

    def test_one_that_comes_while_storages_are_opened(self):
        """That may take long, and process 1 of a container ignores what has no
        handler."""
        for number, status in ENDS.items():
            signal.signal(number, signal.SIG_IGN)
            runner = self.runner()
            with self.subTest(number), mock.patch.object(
                    ZEOServer, 'open_storages',
                    lambda _, number=number: signal.raise_signal(number)), \
                    mock.patch.object(
                        Runner, 'create_server', side_effect=AssertionError):
                self.check_ends(runner, status)

    def check_ends(self, runner, status):
        with mock.patch.object(ZEOServer, 'setup_default_logging'), \
                self.assertRaises(SystemExit) as ended:
            runner.main()
        self.assertEqual(ended.exception.code, status)
        self.assertFalse(self.pid_file.exists())

    def when_it_serves(self, runner, number):
        """A patch: it gets this signal."""
        create = runner.create_server

        def create_and_end():
            create()
            runner.server.acceptor.event_loop.call_soon(
                signal.raise_signal, number)

        return mock.patch.object(runner, 'create_server', create_and_end)

    def test_one_that_comes_while_it_serves(self):
        for number, status in ENDS.items():
            runner = self.runner()
            with self.subTest(number), self.when_it_serves(runner, number):
                self.check_ends(runner, status)

    def check_one_that_comes_behind_the_end(self, number):
        """The server is closed, and its pid file is still there."""
        runner = self.runner()
        close = runner.close_server

        def close_and_be_told():
            close()
            self.assertTrue(self.pid_file.exists())
            signal.raise_signal(number)

        with self.when_it_serves(runner, signal.SIGTERM), \
                mock.patch.object(runner, 'close_server', close_and_be_told):
            self.check_ends(runner, 0)

    def test_the_rotation_of_the_log_behind_the_end(self):
        with self.assertLogs('', 'WARNING') as logged:
            self.check_one_that_comes_behind_the_end(signal.SIGUSR2)
        self.assertIn('SIGUSR2', logged.output[-1])


class Backups(RunnerTestCase):

    def store_of(self, *arguments, **environment):
        with mock.patch.dict(os.environ, environment):
            return realized('-a', '0', '-f', self.path(), *arguments).backup

    def test_its_store(self):
        self.assertFalse(self.store_of())
        self.assertFalse(self.store_of(FSYNC_BACKUP=''))
        self.assertEqual(self.store_of(FSYNC_BACKUP='s3://a/b'), 's3://a/b')
        self.assertEqual(
            self.store_of('--backup', 'here', FSYNC_BACKUP='there'), 'here')

    def test_several_storages(self):
        with self.assertRaisesRegex(ValueError, 'one storage'):
            Runner(realized('-a', '0', '-f', self.path('a'), '-f',
                            self.path('b'), '--backup', 'store'))

    def test_a_storage_that_is_not_ours(self):
        runner = Runner(realized(
            '-a', '0', '-f', self.path(), '--backup', 'store'))
        with self.assertRaisesRegex(SystemExit, '<fsyncstorage>'):
            runner.open_storages()
        runner.storages['1'].close()


class Metrics(RunnerTestCase):

    def address_of(self, *arguments, **environment):
        with mock.patch.dict(os.environ, environment):
            return realized('-a', '0', '-f', self.path(), *arguments).metrics

    def test_the_address(self):
        self.assertIsNone(self.address_of())
        self.assertEqual(
            self.address_of('--metrics', '9180'), ('127.0.0.1', 9180))
        self.assertEqual(
            self.address_of(FSYNC_METRICS='0.0.0.0:9180'), ('0.0.0.0', 9180))
        self.assertEqual(
            self.address_of('--metrics', '1', FSYNC_METRICS='2'),
            ('127.0.0.1', 1))
        self.assertIsNone(self.address_of(FSYNC_METRICS=''))

    def test_an_address_that_is_none(self):
        for arguments, environment in [
                (['--metrics', 'here'], {}), ([], {'FSYNC_METRICS': 'here'})]:
            said = io.StringIO()
            with self.assertRaises(SystemExit), \
                    contextlib.redirect_stderr(said):
                self.address_of(*arguments, **environment)
            self.assertIn('PORT, HOST:PORT or [HOST]:PORT', said.getvalue())

    def check_from_start_to_end(self, runner, address):
        """It is started, serves and shows one storage, and ends."""
        self.assertEqual(probe(address(), '/startup')[0], 503)
        self.assertEqual(probe(address(), '/ready')[0], 503)
        runner.create_server()
        self.assertEqual(probe(address(), '/startup')[0], 200)
        status, answer = probe(address(), '/ready')
        self.assertEqual((status, answer['storages']), (200, {'1': 'ready'}))
        self.assertEqual(metrics(address())['fsyncstorage_clients',], 0)
        self.assertEqual(len(exporters._exporters._open), 1)
        runner.close_server()
        self.assertEqual(exporters._exporters._open, {})

    def test_a_section(self):
        runner = self.runner(section='<metrics>\naddress 0\n</metrics>')
        runner.open_storages()
        storage = runner.storages['1']
        self.check_from_start_to_end(
            runner, lambda: storage.metrics.exporter.address)


class OpenToOthers(RunnerTestCase):
    """A server that other machines can reach without a certificate says so."""

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

    def test_only_others_are_warned_of(self):
        runner = self.runner()
        runner.open_storages()
        with self.assertNoLogs('fsyncstorage.server.runzeo', 'WARNING'):
            runner.create_server()
        self.addCleanup(runner.server.close)
        (_, port), = [each.getsockname() for each
                      in runner.server.acceptor.sockets]
        # A loopback socket, taken for one that is not.
        with mock.patch.object(address, 'is_loopback', lambda host: False), \
                self.assertLogs('fsyncstorage.server.runzeo') as logged:
            runner._warn_of_strangers()
        self.assertIn(f'127.0.0.1 port {port} without', logged.output[0])
