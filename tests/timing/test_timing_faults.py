"""Failures of a run of `fsync-time`: one line of error, and nothing is left.

Each command runs in a session of its own, so that all its processes can be
found.
"""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

from fsyncstorage.timing.results import document as documents
from fsyncstorage.timing.running import supervisor

from ..support import PATIENCE
from ..support import until
from .test_timing import Scratch

COMMITS = (
    'commits', 'filestorage', '--threads', '1', '--seconds', '10ms',
    '--rounds', '1000')
ZEO = (
    'zeo', 'zeo', '--workload', 'light', '--clients', '1', '--loop',
    'asyncio', '--seconds', '0.1', '--rounds', '1000')

#: A file system that is soon full, and vanishes with the last process in it.
SMALL = 'mount -t tmpfs -o size=220k none "$1" && shift && exec "$@"'


def processes_of(session):
    """The process ids of a session, and the arguments of each."""
    found = {}
    for path in pathlib.Path('/proc').glob('[0-9]*'):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            # 123 (python) S 1 123 123 ...; the name may have anything in it
            _, _, rest = path.joinpath('stat').read_text().rpartition(') ')
            state, _, _, its_session = rest.split()[:4]
            if int(its_session) == session and state != 'Z':
                found[int(path.name)] = path.joinpath(
                    'cmdline').read_text().split('\0')
    return found


class SignalTests(unittest.TestCase):

    level = 2

    def setUp(self):
        # One of them may be ignored where the tests run.
        for each in supervisor.SIGNALS:
            self.addCleanup(signal.signal, each, signal.signal(
                each, signal.default_int_handler))
        self.log = []

    def come(self, *signals):
        for each in signals or supervisor.SIGNALS:
            os.kill(os.getpid(), each)
        self.log.append('whole')

    def test_only_the_first_one_counts(self):
        before = list(map(signal.getsignal, supervisor.SIGNALS))
        for first in supervisor.SIGNALS:
            with self.subTest(first), self.assertRaises(KeyboardInterrupt):
                with supervisor.one_interrupt():
                    try:
                        self.come(first)
                    finally:
                        self.come()
        self.assertEqual(self.log, ['whole'] * 3)
        self.assertEqual(
            list(map(signal.getsignal, supervisor.SIGNALS)), before)

    def test_what_is_ignored_stays_ignored(self):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
        with supervisor.one_interrupt():
            self.come(signal.SIGHUP)
        self.assertEqual(self.log, ['whole'])

    def test_one_that_is_held_comes_at_the_end(self):
        with self.assertRaises(KeyboardInterrupt):
            with supervisor.held():
                self.come(signal.SIGTERM)
        with self.assertRaises(KeyboardInterrupt):
            with supervisor.held() as before:
                try:
                    with supervisor.let(before):
                        self.come(signal.SIGINT)
                finally:
                    self.come(signal.SIGINT)
        self.assertEqual(self.log, ['whole'] * 2)

    def test_inside_of_another_one_that_holds_none_is_let_through(self):
        with self.assertRaises(KeyboardInterrupt):
            with supervisor.held(), supervisor.held() as before:
                with supervisor.let(before):
                    self.come(signal.SIGHUP)
        self.assertEqual(self.log, ['whole'])


class DriverCase(Scratch):
    """A driver in a session of its own, which ends with the test."""

    def run_driver(self, command):
        self.driver = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, start_new_session=True)
        self.addCleanup(self.end)

    def end(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.driver.pid, signal.SIGKILL)
        self.driver.communicate()


@unittest.skipUnless(os.path.isdir('/proc/self'), 'needs /proc')
class FaultTests(DriverCase):

    level = 2

    def setUp(self):
        super().setUp()
        self.results = self.enterContext(tempfile.TemporaryDirectory())
        self.json = os.path.join(self.results, 'result.json')

    def start(self, *arguments, within=()):
        self.run_driver(
            [*within, sys.executable, '-m', 'fsyncstorage.timing.main',
             *arguments, '--directory', self.scratch, '--json', self.json])

    def wait_for_second_sample(self):
        seen = set()

        def begun():
            seen.update(
                path for path in pathlib.Path(self.scratch).glob(
                    '*/fsync-time-*') if path.is_dir())
            return len(seen) > 1

        until(begun, 'a second sample')

    def server(self):
        """The process id of one that runs now."""
        found = []

        def there():
            found[:] = [
                number
                for number, its in processes_of(self.driver.pid).items()
                if 'fsyncstorage.timing.servers.launcher' in its]
            return found

        until(there, 'a server')
        return found[0]

    def assertEnded(self, code, message):
        out, err = self.driver.communicate(timeout=PATIENCE)
        self.assertEqual((self.driver.returncode, out), (code, ''), err)
        self.assertRegex(err, message)
        self.assertEqual(len(err.splitlines()), 1, err)
        self.assertEqual(processes_of(self.driver.pid), {})
        self.assertEqual(os.listdir(self.scratch), [])
        document = documents.load(self.json)
        self.assertFalse(document['complete'])
        return document

    def assertInterrupted(self):
        document = self.assertEnded(
            130, f': interrupted; what was measured so far is in {self.json}')
        self.assertGreaterEqual(len(document['samples']), 1)

    def test_ctrl_c(self):
        for command in COMMITS, ZEO:
            with self.subTest(command[0]):
                self.start(*command)
                self.wait_for_second_sample()
                os.killpg(self.driver.pid, signal.SIGINT)
                self.assertInterrupted()

    def test_kill(self):
        for command in COMMITS, ZEO:
            with self.subTest(command[0]):
                self.start(*command)
                self.wait_for_second_sample()
                self.driver.terminate()
                self.assertInterrupted()

    def test_a_terminal_that_is_closed(self):
        # The tests may run under nohup.
        self.addCleanup(signal.signal, signal.SIGHUP, signal.signal(
            signal.SIGHUP, signal.SIG_DFL))
        for command in COMMITS, ZEO:
            with self.subTest(command[0]):
                self.start(*command)
                self.wait_for_second_sample()
                os.killpg(self.driver.pid, signal.SIGHUP)
                self.assertInterrupted()

    def test_impatience(self):
        self.start(*ZEO)
        self.wait_for_second_sample()
        for _ in range(20):
            os.killpg(self.driver.pid, signal.SIGINT)
            self.driver.terminate()
        self.assertInterrupted()

    def test_before_anything_was_measured(self):
        self.start(*ZEO)
        until(lambda: os.listdir(self.scratch), 'a scratch directory')
        self.driver.terminate()
        out, err = self.driver.communicate(timeout=PATIENCE)
        self.assertEqual(self.driver.returncode, 130, err)
        self.assertEqual(os.listdir(self.scratch), [])
        self.assertEqual(
            f'what was measured so far is in {self.json}' in err,
            os.path.exists(self.json), err)

    def test_a_server_is_killed(self):
        for number, code in [
                (signal.SIGKILL, '-9'), (signal.SIGTERM, '-?[0-9]+')]:
            with self.subTest(number):
                self.start(*ZEO, '--seconds', '1000')
                os.kill(self.server(), number)
                self.assertEnded(
                    1, '^fsync-time zeo: zeo failed [(].*[)]: .*'
                       f'the server died with exit code {code}: ')

    @unittest.skipIf(os.geteuid(), 'only root may mount')
    @unittest.skipUnless(shutil.which('unshare'), 'there is no unshare')
    def test_a_full_disk(self):
        within = 'unshare', '--mount', 'sh', '-c', SMALL, 'sh', self.scratch
        for command in (
                (*COMMITS, '--seconds', '1000'),
                (*ZEO, '--seconds', '1000')):
            with self.subTest(command[0]):
                self.start(*command, within=within)
                self.assertEnded(1, 'No space left on device')
