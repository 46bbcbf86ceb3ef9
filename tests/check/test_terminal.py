"""What the commands print, and where: terminals, pipes, full disks."""

import contextlib
import importlib
import importlib.metadata
import io
import os
import subprocess
import sys
import unittest
from unittest import mock

import fsyncstorage
from fsyncstorage import check
from fsyncstorage.check import info

from ..support import run_command
from .infocase import InfoCase
from .infocase import record
from .infocase import write_timed

# Seconds after which a process hangs.
PATIENCE = 60
COMMANDS = {
    'fsync-backup': 'fsyncstorage.backup.commandline',
    'fsync-check': 'fsyncstorage.check',
    'fsync-info': 'fsyncstorage.check.info',
    'fsync-pack': 'fsyncstorage.fsyncpack',
    'fsync-quorum': 'fsyncstorage.fsyncquorum',
    'fsync-time': 'fsyncstorage.timing.main',
    'fsync-top': 'fsyncstorage.fsynctop'}
LONG = 'A' * 90


def run_process(start, module, *arguments, stdout=subprocess.PIPE):
    return subprocess.run(
        [sys.executable, '-c', f'{start}; from {module} import main;'
         ' raise SystemExit(main())', *arguments],
        stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=PATIENCE,
        env={**os.environ, 'PYTHONPATH': os.pathsep.join(sys.path)})


class Versions(unittest.TestCase):

    level = 2

    def test_each_command_says_it(self):
        for name, module in COMMANDS.items():
            main = importlib.import_module(module).main
            self.assertEqual(
                run_command(main, '--version'),
                (0, f'{name} {fsyncstorage.__version__}\n', ''))
        self.assertEqual(fsyncstorage.__version__,
                         importlib.metadata.version('fsyncstorage'))


class OutputTests(InfoCase):
    """Errors of standard output are no errors of the file."""

    level = 2

    def setUp(self):
        super().setUp()
        write_timed(self.path(), ('2020-01-30', {0: record('Root')}))

    def test_nobody_reads(self):
        reading, writing = os.pipe()
        os.close(reading)
        with open(writing, 'w') as pipe:
            done = run_process(
                'pass', COMMANDS['fsync-check'], self.path(), stdout=pipe)
        self.assertEqual((done.returncode, done.stderr), (141, ''))

    def test_a_full_disk(self):
        said, full = io.StringIO(), open('/dev/full', 'w')
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(
                full):
            self.assertEqual(check.main([self.path()]), 2)
        self.assertRegex(
            said.getvalue(),
            r'\A.*: standard output: No space left on device\n\Z')
        with contextlib.suppress(OSError):  # it tries once more
            full.close()

    def test_closed(self):
        with contextlib.redirect_stdout(None):
            self.assertEqual(check.main([self.path()]), 0)


class WithoutRich(InfoCase):
    """What an operator needs in the night works; the rest says what it needs.
    """

    level = 2

    def ends(self, code, command, *arguments):
        done = run_process('import sys; sys.modules["rich"] = None',
                           COMMANDS[command], *arguments)
        self.assertEqual((done.returncode, done.stderr), (
            code, code and f"{command}: its tables need rich: pip install"
            " 'fsyncstorage[commands]'\n" or ''))

    def test_what_needs_it_and_what_does_not(self):
        write_timed(self.path(), ('2020-01-30', {0: record('Root')}))
        self.ends(0, 'fsync-check', self.path())
        self.ends(0, 'fsync-info', self.path(), '--json')
        self.ends(2, 'fsync-info', self.path())
        self.ends(0, 'fsync-pack', self.path(), '--dry-run', '--json')
        self.ends(2, 'fsync-pack', self.path(), '--dry-run')
        self.ends(0, 'fsync-pack', self.path(), '--days', '0')
        self.ends(2, 'fsync-top', '1')
        self.ends(2, 'fsync-time', 'disk')


class Terminal(io.TextIOWrapper):

    def isatty(self):
        return True


class WidthTests(InfoCase):

    def setUp(self):
        super().setUp()
        write_timed(self.path('long'), ('2020-01-30', {0: record(LONG)}))

    def test_nothing_is_folded_for_a_program(self):
        _, out, _ = self.run_info(path=self.path('long'))
        self.assertIn(f' module.{LONG} ', out)

    def test_numbers_are_whole_on_a_narrow_terminal(self):
        for main in check.main, info.main:
            for encoding in 'ascii', 'utf-8':
                written = io.BytesIO()
                terminal = Terminal(written, encoding)
                with (mock.patch.dict(os.environ, COLUMNS='30', TERM='xterm'),
                      contextlib.redirect_stdout(terminal)):
                    self.assertEqual(main([self.path('long')]), 0)
                self.assertNotIn('…', written.getvalue().decode(encoding))
                terminal.detach()
