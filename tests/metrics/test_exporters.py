"""What goes wrong with metrics is a line of the log, and nothing else."""

import contextlib
import os
import socket
import sys
import threading
import warnings
from unittest import mock

from fsyncstorage.metrics import answering
from fsyncstorage.metrics import exporters
from fsyncstorage.metrics import probes
from fsyncstorage.metrics.exporters import Showing
from perf.ports import free_address

from ..support import PATIENCE
from ..support import TestCase
from ..support import Thread
from ..support import commit
from ..support import in_a_child
from ..support import until
from .asking import get
from .asking import metrics
from .asking import probe

HERE = '127.0.0.1', 0


class Shown(TestCase):

    def setUp(self):
        super().setUp()
        # They are taken now and then, and read figures, too.
        samples = mock.patch.object(exporters.Exporter, '_sample', mock.Mock())
        samples.start()
        self.addCleanup(samples.stop)

    def show(self, storage, address=HERE, name='1'):
        showing = Showing(address, name, storage)
        self.addCleanup(showing.close)
        return showing

    @contextlib.contextmanager
    def one_line(self, regex):
        """One line, of a warning."""
        with self.assertLogs('fsyncstorage.metrics') as logged:
            yield
        warnings = [record.getMessage() for record in logged.records
                    if record.levelname != 'INFO']
        self.assertEqual(len(warnings), 1, warnings)
        self.assertRegex(warnings[0], regex)
        self.assertNotIn('\n', warnings[0])


class Addresses(Shown):

    def test_storages_share_an_address(self):
        address = free_address()
        first = self.show(self.open(), address, 'one')
        second = self.show(self.open('other.fs'), address, 'two')
        self.assertIs(first.exporter, second.exporter)
        self.assertEqual(
            probe(address, '/ready')[1]['storages'],
            {'one': 'ready', 'two': 'ready'})
        first.close()
        first.close()  # once more counts for nothing
        self.assertEqual(
            probe(address, '/ready')[1]['storages'], {'two': 'ready'})
        second.close()
        with self.assertRaises(OSError):
            get(address, '/ready')
        self.show(self.open('third.fs'), address)
        self.assertEqual(get(address, '/ready')[0], 200)

    def test_its_storage_is_hidden_first_and_its_thread_awaited_last(self):
        storage = self.open()
        storage.metrics = self.show(storage)
        showing = storage.metrics
        release, seen = storage._release, []

        def releasing():
            seen.append((showing.exporter.storages(),
                         get(showing.exporter.address, '/ready')[0]))
            release()
            raise OSError('a close that fails')

        with mock.patch.object(storage, '_release', releasing):
            with self.assertRaisesRegex(OSError, 'a close that fails'):
                storage.close()
        self.assertEqual(seen, [([], 503)])
        self.assertEqual(exporters._exporters._open, {})

    def test_a_thread_that_hangs_keeps_nobody_for_ever(self):
        asked, go_on = threading.Event(), threading.Event()
        self.addCleanup(go_on.set)

        def hang():
            asked.set()
            go_on.wait(PATIENCE)
            return {}

        storage = self.open()
        storage.metrics = self.show(storage)
        with mock.patch.object(storage, 'stats', hang), \
                mock.patch.object(answering, 'FAREWELL', 0.05), \
                socket.create_connection(
                    storage.metrics.exporter.address, PATIENCE) as connection:
            connection.sendall(b'GET /metrics HTTP/1.0\r\n\r\n')
            self.assertTrue(asked.wait(PATIENCE))
            with self.one_line('have not ended'):
                Thread(storage.close).result()
            thread = storage.metrics.exporter._answering._thread
            self.assertTrue(thread.is_alive())
            go_on.set()
            thread.join(PATIENCE)

    def test_no_two_time_series_look_the_same(self):
        address = free_address()
        for name in 'a.fs', 'b.fs', 'c.fs':
            self.show(self.open(name), address)
        self.assertEqual(
            list(probe(address, '/ready')[1]['storages']),
            ['1', '1 (2)', '1 (3)'])

    def can_listen(self, host):
        try:
            socket.create_server((host, 0), family=socket.AF_INET6).close()
        except OSError as error:
            self.skipTest(f'{host}: {error}')

    def test_all_addresses(self):
        """`::` is what a cluster with both kinds is told to use."""
        if not socket.has_dualstack_ipv6():
            self.skipTest('no socket for both')
        self.can_listen('::')
        with self.one_line('whoever can reach'):
            showing = self.show(self.open(), ('::', 0))
        _, port = showing.exporter.address
        for host in '127.0.0.1', '::1':
            self.assertEqual(get((host, port), '/ready')[0], 200)


class Trouble(Shown):

    def check_it_commits(self, storage):
        commit(storage, {1: b'x'})
        self.assertEqual(len(storage), 1)

    def test_an_address_in_use(self):
        with socket.create_server(HERE) as taken:
            storage = self.open()
            with self.one_line('no metrics at 127.0.0.1:.* in use'):
                # Two that share it are one line, too.
                showing = self.show(storage, taken.getsockname())
                self.show(self.open('other.fs'), taken.getsockname())
        self.assertIsNone(showing.exporter.address)
        self.check_it_commits(storage)

    def test_a_name_that_is_none(self):
        for host in 'no.such.host.invalid', 'a' * 300, 'a..b':
            with self.subTest(host):
                with self.one_line('no metrics at ' + host[:20]):
                    self.show(None, (host, 0))

    def test_no_thread(self):
        storage = self.open()
        with mock.patch('threading.Thread.start',
                        side_effect=RuntimeError("can't start new thread")):
            with self.one_line("no metrics .* can't start new thread"):
                self.show(storage)
        self.check_it_commits(storage)

    def test_without_the_library_there_are_probes(self):
        storage = self.open()
        with mock.patch.dict(sys.modules, {'prometheus_client': None}):
            with self.one_line(r"and probes: .*fsyncstorage\[metrics\]"):
                showing = self.show(storage)
        address = showing.exporter.address
        status, text = get(address, '/metrics')
        self.assertEqual(status, 501)
        self.assertIn(exporters.EXTRA, text)
        self.assertEqual(get(address, '/ready')[0], 200)
        self.check_it_commits(storage)

    def test_figures_are_read_once_a_second_at_most(self):
        storage = self.open()
        address = self.show(storage).exporter.address
        with mock.patch.object(exporters, 'time') as clock:
            for now, commits in (0, 0), (0.99, 0), (1.01, 1):
                clock.monotonic.return_value = now
                self.assertEqual(
                    metrics(address)['fsyncstorage_commits_total',], commits)
                if not now:
                    commit(storage, {1: b'x'})

    def test_figures_that_cannot_be_read_are_missing(self):
        address = free_address()
        storage = self.open()
        self.show(storage, address, 'bad')
        self.show(self.open('other.fs'), address, 'good')
        with mock.patch.object(exporters, 'KEPT', 0):
            with mock.patch.object(
                    storage, 'stats', side_effect=ZeroDivisionError), \
                    self.one_line("the figures of 'bad' could not be read"):
                for _ in range(2):
                    status, text = get(address, '/metrics')
                    self.assertEqual(status, 200)
                    self.assertIn('_objects{storage="good"} 0.0', text)
                    self.assertEqual(
                        [line for line in text.split('\n') if '"bad"' in line],
                        ['fsyncstorage_figures_readable{storage="bad"} 0.0'])
            text = get(address, '/metrics')[1]
            self.assertIn('_objects{storage="bad"}', text)
            self.assertIn('_figures_readable{storage="bad"} 1.0', text)

    def test_a_page_that_fails_is_logged_once(self):
        """Until it can be made again; and each by itself."""
        address = self.show(self.open()).exporter.address
        for path, name in ('/ready', 'ready'), ('/live', 'live'), (
                '/ready', 'ready'):
            with mock.patch.object(
                    probes, name, side_effect=ZeroDivisionError), \
                    self.one_line(f'{path} of the metrics could not be made'):
                for _ in range(2):
                    self.assertEqual(get(address, path)[0], 500)
            self.assertEqual(get(address, path)[0], 200)

    def test_a_probe_takes_no_lock(self):
        storage = self.open()
        address = self.show(storage).exporter.address
        with storage._sequencer.mutex:
            self.assertEqual(get(address, '/ready')[0], 200)

    def test_a_fork_waits_for_no_lock_and_keeps_no_connection(self):
        storage = self.open()
        showing = self.show(storage)
        answering = showing.exporter._answering
        with socket.create_connection(answering.address, PATIENCE):
            until(lambda: answering._open, 'it is accepted')
            (_, connection), = answering._open.values()

            def in_child():
                free = showing.exporter._mutex.acquire(blocking=False)
                return free, connection.fileno()

            with showing.exporter._mutex:
                self.assertEqual(in_a_child(in_child), [True, -1])
            self.assertNotEqual(connection.fileno(), -1)

    def test_a_fork_keeps_no_address(self):
        storage = self.open()
        showing = self.show(storage, free_address())
        address = showing.exporter.address
        ours, theirs = socket.socketpair()
        with warnings.catch_warnings():
            # Python 3.12 warns of any fork beside threads.
            warnings.simplefilter('ignore', DeprecationWarning)
            child = os.fork()
        if not child:
            ours.close()
            theirs.send(b'here')
            theirs.recv(1)  # until the test is over
            os._exit(0)
        theirs.close()
        try:
            self.assertEqual(ours.recv(10), b'here')
            showing.close()
            socket.create_server(address).close()
        finally:
            ours.close()
            os.waitpid(child, 0)
