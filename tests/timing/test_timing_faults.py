"""However a run of `fsync-time` ends: one line of error, and nothing is left.

No process, no file in the scratch directory; and what was measured is kept.
"""

import contextlib
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

from fsyncstorage.timing.results import document as documents
from fsyncstorage.timing.running import crew
from fsyncstorage.timing.running import supervisor
from fsyncstorage.timing.running import zeosites

from ..support import PATIENCE
from ..support import until
from .support import SETTINGS
from .support import Scratch

COMMITS = (
    'commits', 'filestorage', '--threads', '1', '--seconds', '10ms',
    '--rounds', '1000')
ZEO = (
    'zeo', 'zeo', '--workload', 'write', '--clients', '1', '--objects', '1',
    '--loop', 'asyncio', '--seconds', '0.1', '--rounds', '1000')

STOCK = zeosites.CONTESTANTS['zeo']

#: A file system that is soon full, and vanishes with the last process in it.
SMALL = 'mount -t tmpfs -o size=220k none "$1" && shift && exec "$@"'


class ChildTests(unittest.TestCase):
    """A function in a process of its own."""

    def setUp(self):
        patch = mock.patch.object(supervisor, '_TICK', 0.001)
        patch.start()
        self.addCleanup(patch.stop)

    def tearDown(self):
        with self.assertRaises(ChildProcessError):
            os.waitpid(-1, os.WNOHANG)

    def test_result(self):
        self.assertNotEqual(supervisor.run(os.getpid), os.getpid())
        self.assertEqual(supervisor.run(max, 3, 5), 5)
        # What comes from the terminal is for the parent.
        self.assertNotEqual(supervisor.run(os.getpgrp), os.getpgrp())

    def test_error_is_one_line(self):
        def fail():
            raise OSError('disk\nfull')

        with self.assertRaisesRegex(
                supervisor.Failed,
                r'^OSError: disk full \(test_timing_faults.py, line \d+\)$'):
            supervisor.run(fail)

    def test_death(self):
        with self.assertRaisesRegex(supervisor.Failed, 'exit code 3'):
            supervisor.run(os._exit, 3)

    def test_each_signal_is_an_interrupt_and_ends_the_child(self):
        for each in supervisor.SIGNALS:
            # It may be ignored where the tests run.
            self.addCleanup(signal.signal, each, signal.signal(
                each, signal.default_int_handler))

            def interrupt(number=each):
                os.kill(os.getppid(), number)
                signal.pause()

            with self.subTest(each), supervisor.interrupts_noted():
                with self.assertRaises(KeyboardInterrupt):
                    supervisor.run(interrupt)
                # Nothing else is interrupted, such as what cleans up.
                os.kill(os.getpid(), each)
            self.assertIs(
                signal.getsignal(each), signal.default_int_handler)
            signal.signal(each, signal.SIG_IGN)  # as nohup does
            with supervisor.interrupts_noted():
                os.kill(os.getpid(), each)
                supervisor.check()

    def nothing_is_left_of(self, work):
        """Run it with a descriptor that it should leave to no process."""
        own, theirs = socket.socketpair()
        self.addCleanup(own.close)
        own.settimeout(PATIENCE)
        try:
            supervisor.run(work, theirs)
        finally:
            theirs.close()
            self.assertEqual(own.recv(1), b'')

    def test_no_program_outlives_the_child(self):
        def work(theirs):
            self.program = subprocess.Popen(
                [sys.executable, '-c', 'input()'], stdin=theirs)

        self.nothing_is_left_of(work)

    def test_no_process_outlives_a_child_that_is_killed(self):
        def work(theirs):
            parent = os.getpid()
            if os.fork() == 0:
                os.kill(parent, signal.SIGKILL)
                signal.pause()
            signal.pause()

        with self.assertRaisesRegex(supervisor.Failed, 'exit code -9'):
            self.nothing_is_left_of(work)

    def test_one_that_does_not_end_is_said(self):
        own, theirs = socket.socketpair()
        self.addCleanup(own.close)

        def work():
            child = os.fork()
            if child:
                os.setpgid(child, 0)  # it is not killed with the others
            else:
                own.close()
                theirs.recv(1)
                os._exit(0)

        with mock.patch.object(supervisor, '_GRACE', 0.01), theirs, \
                self.assertRaisesRegex(supervisor.Failed, 'does not end'):
            supervisor.run(work)


class DyingTests(Scratch):
    """If a server or a client dies, there is an error of one line."""

    level = 2

    def assertFails(self, expected, contestant, job, number=1):
        def work():
            with contestant.running(self.scratch, **SETTINGS) as site:
                crew.processes(site, [idle] * (number - 1) + [
                    lambda start: job(site, start)])

        def idle(start):
            start()
            signal.pause()

        with self.assertRaisesRegex(supervisor.Failed, expected) as caught:
            supervisor.run(work)
        self.assertEqual(len(str(caught.exception).splitlines()), 1)

    def test_a_server_that_does_not_start(self):
        broken = zeosites.ZeoSite('x', 'x', 'no.such.module', '')
        self.assertFails(
            "died with exit code 1: .*No module named 'no'", broken, None)

    def test_the_driver_is_killed(self):
        """The server and the clients end, too."""
        own, theirs = socket.socketpair()
        self.addCleanup(own.close)
        own.settimeout(PATIENCE)

        def job(start):
            theirs.sendall(b'!')
            signal.pause()

        def work():
            with STOCK.running(self.scratch, **SETTINGS) as site:
                crew.processes(site, [job])

        driver = supervisor.FORK.Process(target=supervisor.run, args=(work,))
        driver.start()
        theirs.close()
        self.assertEqual(own.recv(1), b'!')
        driver.kill()
        driver.join()
        self.assertEqual(own.recv(1), b'')  # none of them has it any more

    def test_a_server_that_dies(self):
        def job(site, start):
            start()
            os.kill(site.server.process.pid, signal.SIGKILL)
            signal.pause()

        self.assertFails(
            'the server died with exit code -9', STOCK, job, 2)

    def test_a_server_whose_death_nobody_noticed(self):
        def work():
            with STOCK.running(self.scratch, **SETTINGS) as site:
                site.server.process.kill()
                site.server.process.join()

        with self.assertRaisesRegex(
                supervisor.Failed, 'the server died with exit code -9'):
            supervisor.run(work)

    def test_a_client_that_dies(self):
        def bad(site, start):
            start()
            raise OSError('disk\nfull')

        self.assertFails('a client failed: its process died', STOCK,
                         lambda site, start: os._exit(3))
        self.assertFails('a client failed: OSError: disk full', STOCK, bad, 2)


@unittest.skipUnless(os.path.isdir('/proc/self'), 'needs /proc')
class DriverCase(Scratch):
    """A whole run, in a session of its own, which ends with the test."""

    def begin(self, *arguments, within=()):
        self.json = os.path.join(self.enterContext(
            tempfile.TemporaryDirectory()), 'result.json')
        self.driver = subprocess.Popen(
            [*within, sys.executable, '-m', 'fsyncstorage.timing.main',
             *arguments, '--directory', self.scratch, '--json', self.json],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, start_new_session=True)
        self.addCleanup(self.end)

    def end(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.driver.pid, signal.SIGKILL)
        self.driver.communicate()

    def assertEnded(self, code, message, least):
        """One line; no process, and nothing but results, is left."""
        out, err = self.driver.communicate(timeout=PATIENCE)
        self.assertEqual((self.driver.returncode, out), (code, ''), err)
        self.assertRegex(err, message)
        self.assertEqual(len(err.splitlines()), 1, err)
        self.assertEqual(processes_of(self.driver.pid), [])
        self.assertEqual(os.listdir(self.scratch), [])
        document = documents.load(self.json)
        self.assertFalse(document['complete'])
        self.assertGreaterEqual(len(document['samples']), least)


class DriverTests(DriverCase):

    level = 2

    def wait_for_second_sample(self):
        seen = set()

        def begun():
            for path, names, _ in os.walk(self.scratch):
                seen.update(os.path.join(path, name) for name in names
                            if name.startswith('fsync-time-'))
            return len(seen) > 2

        until(begun, 'a second sample')

    def test_ctrl_c(self):
        self.begin(*ZEO)
        self.wait_for_second_sample()
        for _ in range(5):  # it is pressed again and again
            os.killpg(self.driver.pid, signal.SIGINT)
        self.assertEnded(130, ': interrupted; what was measured so far is in'
                         f' {self.json}', 1)


class FullDiskTests(DriverCase):

    level = 3

    @unittest.skipIf(os.geteuid(), 'only root may mount')
    @unittest.skipUnless(shutil.which('unshare'), 'there is no unshare')
    def test_a_full_disk(self):
        within = 'unshare', '--mount', 'sh', '-c', SMALL, 'sh', self.scratch
        for command in COMMITS, ZEO:
            with self.subTest(command[0]):
                self.begin(*command, '--seconds', '1000', within=within)
                self.assertEnded(1, 'No space left on device', 0)


def processes_of(session):
    """The process ids of a session."""
    found = []
    for path in pathlib.Path('/proc').glob('[0-9]*'):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            # 123 (python) S 1 123 123 ...; the name may have anything in it
            _, _, rest = path.joinpath('stat').read_text().rpartition(') ')
            state, _, _, its_session = rest.split()[:4]
            if int(its_session) == session and state != 'Z':
                found.append(int(path.name))
    return found
