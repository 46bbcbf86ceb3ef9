"""What the campaigns add to a machine: a slow disk, a large file, and
a stand-in for PostgreSQL."""

import contextlib
import json
import os
import pathlib
import shutil
import sys
import tempfile
from unittest import mock

from ZODB.FileStorage import FileStorage

from fsyncstorage.check import verify
from fsyncstorage.format.window import Window
from fsyncstorage.timing.running import served
from fsyncstorage.timing.running import supervisor
from perf import contents
from perf import pack
from perf import slowdisk
from perf.peers import postgresql

from ..timing.support import Scratch


class SlowDiskTests(Scratch):

    SPEED = 1000

    def setUp(self):
        super().setUp()
        self.slept, self.synced = [], []
        self.file = self.opened('before', b'x' * 50)

    def opened(self, name, data):
        file = self.enterContext(open(
            os.path.join(self.scratch, name), 'wb', buffering=0))
        file.write(data)
        return file

    def slowed(self, *settings, is_first=True):
        disk = slowdisk.SlowDisk(self.scratch, *settings, self.slept.append)
        if is_first:
            disk.begin()
        return disk.slowed(self.synced.append)

    def test_what_was_written_since_the_last_sync(self):
        """By this process, or by another one."""
        sync = self.slowed(self.SPEED, 0.5)
        other = self.slowed(self.SPEED, 0.5, is_first=False)
        new = self.opened('new', b'x' * 100)
        for sync_it, file, more in (
                (sync, self.file, b''), (sync, self.file, b'x' * 10),
                (other, new, b''), (sync, new, b''), (sync, new, b'x' * 20),
                (other, new, b'')):
            file.write(more)
            sync_it(file.fileno())
        self.assertEqual(self.slept, [0.5, 0.51, 0.6, 0.5, 0.52, 0.5])
        self.assertEqual(len(self.synced), 6)

    def test_the_disk_as_it_is(self):
        self.slowed(None, 0)(self.file.fileno())
        self.assertEqual((self.slept, self.synced), ([], [self.file.fileno()]))


class PackTests(Scratch):

    level = 3
    OBJECTS = 2500      # the last folder is not full

    def test_packs_beside_clients(self):
        _, ours = pack.CAMPAIGNS[0].contestants
        # The process that packs is on the slow disk, too.
        directory = os.path.join(self.scratch, 'sample')
        os.mkdir(directory)
        found = supervisor.run(lambda: pack.measure(
            ours, directory, objects=self.OBJECTS, clients=2, packs=True,
            seconds=0.1, speed=None, latency=0.02, loop='asyncio'))
        self.assertGreater(found['child_peak_mb'], 1)
        built = os.path.join(
            self.scratch, f'built-{self.OBJECTS}', 'Data.fs')
        self.assertLess(found['packed_bytes'], os.path.getsize(built))
        for figure in (
                'commits', 'reads', 'max_seconds', 'reads_max_seconds',
                'pack_seconds', 'server_peak_mb'):
            self.assertGreater(found[figure], 0, figure)

    def test_the_file_is_sound(self):
        path = os.path.join(self.scratch, 'Data.fs')
        records = contents.build(path, self.OBJECTS)
        with open(path, 'rb') as file:
            report = verify.verify(Window.of_file(file.fileno())).report
        self.assertEqual(report.problems, [])
        self.assertEqual(
            (report.objects, report.records), (self.OBJECTS, records))
        with contextlib.closing(FileStorage(path, read_only=True)) as storage:
            self.assertEqual(len(storage), self.OBJECTS)
        self.assertEqual(
            [each for each in range(1, self.OBJECTS)
             if not contents.is_page(each)], [1, 1001, 2001])


#: The programs of PostgreSQL: what is told to them, and what they say.
INITDB = """\
import os, sys
arguments = dict(zip(sys.argv[1:], sys.argv[2:]))
if not os.path.exists(arguments['--pwfile']):
    sys.exit('no password')
os.mkdir(arguments['-D'])
"""
#: Leaves its process id, and its options; serves until it is told to end.
POSTGRES = """\
import json, os, signal, sys
with open(os.path.join(sys.argv[2], '..', '..', 'told'), 'w') as file:
    json.dump([os.getpid(), sys.argv[3:]], file)
print('LOG:  starting', file=sys.stderr)
print('LOG:  database system is ready to accept connections',
      file=sys.stderr, flush=True)
signal.pause()
"""
FAILING = """\
import sys
print('LOG:  starting', file=sys.stderr)
sys.exit('FATAL:  no room')
"""


class PostgreSQLTests(Scratch):

    level = 2

    def setUp(self):
        super().setUp()
        programs = self.enterContext(tempfile.TemporaryDirectory())
        self.programs = pathlib.Path(programs)
        self.write('initdb', INITDB)
        self.write('postgres', POSTGRES)
        # Also when this is root, it does not run as another user.
        for owner, name, value in [
                (postgresql, '_found', lambda one: str(self.programs / one)),
                (os, 'geteuid', lambda: 1000)]:
            self.enterContext(mock.patch.object(owner, name, value))

    def write(self, name, text):
        path = self.programs / name
        path.write_text(f'#!{sys.executable}\n{text}')
        path.chmod(0o755)

    def run_it(self):
        def in_sample():
            with served.running(
                    postgresql.serve, self.scratch, host=None,
                    settings={'max_connections': 300}) as server:
                self.assertEqual(server.usage(), {})
                return server.address

        return supervisor.run(in_sample)

    def test_it_ends_when_it_is_not_needed_any_more(self):
        self.assertRegex(
            self.run_it(), rf'^host={self.scratch}/\S+ port=5432 user=zodb'
            r' password=[0-9a-f]{64} dbname=postgres$')
        number, told = json.loads(
            pathlib.Path(self.scratch, 'told').read_text())
        self.assertIn('--max_connections=300', told)
        with self.assertRaises(ProcessLookupError):
            os.kill(number, 0)

    def test_it_does_not_start(self):
        for program in 'postgres', 'initdb':
            self.write(program, FAILING)
            with self.assertRaisesRegex(
                    supervisor.Failed,
                    r'the server died with exit code 1: .*FATAL: +no room'):
                self.run_it()
            shutil.rmtree(os.path.join(self.scratch, 'postgresql'))
