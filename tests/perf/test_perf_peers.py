"""The peers of the campaigns, and the program that runs PostgreSQL.

The program is tested with stand-ins for PostgreSQL (see fakepostgres);
PostgreSQL itself and RelStorage only where they are installed.
"""

import contextlib
import fcntl
import importlib.util
import multiprocessing
import os
import pathlib
import pwd
import shutil
import signal
import socket
import tempfile
from unittest import mock

from fsyncstorage.timing.running import supervisor
from fsyncstorage.timing.servers import served
from fsyncstorage.timing.zeo import reading
from fsyncstorage.timing.zeo import writing
from perf.peers import postgresql
from perf.peers import relstorages

from ..support import PATIENCE
from ..support import until
from ..timing.test_timing import Scratch
from . import fakepostgres

SETTINGS = {
    'loop': 'asyncio', 'sync_latency': 0.0, 'socket': False}


class ProgramTests(Scratch):
    """Start and end of a server, with stand-ins for PostgreSQL."""

    level = 2

    def setUp(self):
        super().setUp()
        self.programs = self.enterContext(tempfile.TemporaryDirectory())
        fakepostgres.write(self.programs)

    def running(self, host='127.0.0.1', **options):
        return served.running(
            'tests.perf.fakepostgres', self.scratch, host=host,
            programs=self.programs, **options)

    def process_id(self):
        return int(pathlib.Path(self.scratch, 'pid').read_text())

    def assertEnded(self):
        with self.assertRaises(ProcessLookupError):
            os.kill(self.process_id(), 0)

    def test_it_ends_when_it_is_not_needed_any_more(self):
        def work():
            with self.running() as server:
                os.kill(self.process_id(), 0)
                return server.address, server.usage()

        address, usage = supervisor.run(work)
        self.assertRegex(
            address, r'^host=127.0.0.1 port=\d+ user=zodb'
            r' password=[0-9a-f]{64} dbname=postgres$')
        self.assertEqual(usage, {})
        self.assertEnded()

    def test_a_unix_socket(self):
        def work():
            with self.running(host=None) as server:
                return server.address

        self.assertRegex(supervisor.run(work), f'^host={self.scratch}/')

    def test_a_standby(self):
        """It is there when it streams what its primary writes."""
        fakepostgres.write(self.programs, postgres=fakepostgres.STANDBY)

        def work():
            with self.running(primary='of the primary', settings={
                    'max_connections': 300}) as server:
                options = pathlib.Path(
                    '/proc', str(self.process_id()), 'cmdline').read_text()
                return server.address, options.split('\0')

        address, options = supervisor.run(work)
        self.assertRegex(address, '^host=127.0.0.1 ')
        self.assertIn('--max_connections=300', options)
        self.assertEqual(pathlib.Path(
            self.scratch, 'copied').read_text(), 'of the primary')
        self.assertEnded()

    def test_it_ends_when_the_process_that_needs_it_is_killed(self):
        def work():
            with self.running():
                os.kill(os.getpid(), signal.SIGKILL)

        with self.assertRaisesRegex(supervisor.Failed, 'exit code -9'):
            supervisor.run(work)
        self.assertEnded()

    def test_it_ends_when_the_driver_is_killed(self):
        own, theirs = socket.socketpair()
        self.addCleanup(own.close)

        def work():
            with self.running() as server:
                theirs.sendall(b'!')
                server.sentinels[0].read()

        driver = multiprocessing.get_context('fork').Process(
            target=supervisor.run, args=(work,))
        driver.start()
        theirs.close()
        own.recv(1)
        driver.kill()
        driver.join()
        # Only the server could notice that; the rest of the sample follows.
        own.settimeout(PATIENCE)
        self.assertEqual(own.recv(1), b'')
        self.assertEnded()

    def failure(self):

        def work():
            with self.running() as server:
                server.usage()

        with self.assertRaises(supervisor.Failed) as caught:
            supervisor.run(work)
        return str(caught.exception)

    def test_no_cluster_can_be_made(self):
        fakepostgres.write(self.programs, initdb=fakepostgres.FAILING)
        self.assertIn('FATAL: no room', self.failure())

    def test_postgresql_does_not_start(self):
        fakepostgres.write(self.programs, postgres=fakepostgres.FAILING)
        self.assertIn(
            'the server died with exit code 1: FATAL: no room',
            self.failure())

    def test_postgresql_dies(self):

        def work():
            with self.running() as server:
                os.kill(self.process_id(), signal.SIGKILL)
                server.sentinels[0].read()
                server.usage()

        self.assertNothingLeft(work, 137)

    def test_the_program_that_watches_it_is_killed(self):

        def work():
            with self.running() as server:
                server._process.kill()
                server._process.wait()

        self.assertNothingLeft(work, -9)

    def assertNothingLeft(self, work, exit_code):
        fakepostgres.write(self.programs, postgres=fakepostgres.WITH_CHILD)
        with self.assertRaisesRegex(
                supervisor.Failed, f'died with exit code {exit_code}'):
            supervisor.run(work)
        with open(os.path.join(self.scratch, 'lock')) as lock:

            def is_free():
                with contextlib.suppress(BlockingIOError):
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    return True

            until(is_free, 'the end of all')


class MissingTests(Scratch):
    """A peer that is not installed is named and left out."""

    level = 2

    def test_postgresql(self):
        with mock.patch.object(shutil, 'which', lambda *args, **kw: None):
            self.assertEqual(
                postgresql.missing(), 'PostgreSQL is not installed')

    def test_the_user_of_postgresql(self):
        for user, expected in [
                (0, 'there is no user postgres to run PostgreSQL'),
                (1000, None)]:
            with mock.patch.object(os, 'geteuid', lambda: user), \
                    mock.patch.object(pwd, 'getpwall', lambda: []), \
                    mock.patch.object(shutil, 'which', lambda *a, **kw: a):
                self.assertEqual(postgresql.missing(), expected)

    def test_relstorage_and_its_driver(self):
        found = importlib.util.find_spec
        for absent, contestant, expected in [
                ('relstorage', relstorages.SQLITE, 'RelStorage'),
                ('psycopg2', relstorages.POSTGRESQL, 'psycopg2')]:

            def find_spec(name, *args):
                return None if name == absent else found(name, *args)

            with mock.patch.object(importlib.util, 'find_spec', find_spec):
                self.assertEqual(
                    contestant.missing(), f'{expected} is not installed')

    def test_the_version_is_told_where_it_takes_part(self):
        with mock.patch.object(postgresql, 'version', lambda: '15.4'):
            self.assertEqual(
                list(relstorages.versions(
                    [relstorages.SQLITE, relstorages.POSTGRESQL])),
                ['PostgreSQL was 15.4.'])
            self.assertEqual(
                list(relstorages.versions([relstorages.SQLITE])), [])


class RelStorageTests(Scratch):
    """With the peers themselves, if they are installed."""

    level = 2

    def measure(self, function, **settings):
        """Yields the peers and their figures."""
        for contestant in relstorages.POSTGRESQL, relstorages.SQLITE:
            with self.subTest(contestant.name):
                if reason := contestant.missing():
                    self.skipTest(reason)
                with tempfile.TemporaryDirectory(
                        dir=self.scratch) as directory:
                    os.chmod(self.scratch, 0o711)
                    os.chmod(directory, 0o711)
                    yield contestant, supervisor.run(lambda: function(
                        contestant, directory, **SETTINGS, **settings))

    def test_writes(self):
        for contestant, figures in self.measure(
                writing.measure, clients=2, objects=2, seconds=0):
            self.assertEqual(figures['transactions'], 2)
            # That of PostgreSQL is not known, and SQLite has no server.
            self.assertEqual(
                'txn_cpu_seconds' in figures, contestant is relstorages.SQLITE)

    def test_reads(self):
        with mock.patch.object(reading, 'OBJECTS', 5):
            for _, figures in self.measure(
                    reading.measure, clients=2, objects=2, access='ghosts'):
                self.assertGreater(figures['cold_per_second'], 0)
