"""What the commands print, and where: terminals, pipes, full disks."""

import contextlib
import io
import os
import subprocess
import sys
from unittest import mock

from fsyncstorage import check
from fsyncstorage.check import info

from .infocase import FiguresCase
from .infocase import record
from .infocase import write_timed

# Seconds after which a process hangs.
PATIENCE = 60
COMMANDS = {
    'fsync-check': 'fsyncstorage.check',
    'fsync-info': 'fsyncstorage.check.info'}
LONG = 'A' * 90


class OutputTests(FiguresCase):
    """Errors of standard output are no errors of the file."""

    def run_command(self, module, *options, shell='', **places):
        program = f'from {module} import main; raise SystemExit(main())'
        return subprocess.run(
            ['sh', '-c', f'"$@" {shell}', 'sh', sys.executable, '-c', program,
             self.path(), *options],
            stderr=subprocess.PIPE, text=True, timeout=PATIENCE,
            env={**os.environ, 'PYTHONPATH': os.pathsep.join(sys.path)},
            **places)

    def commands(self):
        for name, module in COMMANDS.items():
            for options in [], ['--json']:
                with self.subTest(name, options=options):
                    yield module, options

    def test_nobody_reads(self):
        for module, options in self.commands():
            reading, writing = os.pipe()
            os.close(reading)
            with open(writing, 'w') as pipe:
                done = self.run_command(module, *options, stdout=pipe)
            self.assertEqual((done.returncode, done.stderr), (141, ''))

    def test_a_full_disk(self):
        for module, options in self.commands():
            with open('/dev/full', 'w') as full:
                done = self.run_command(module, *options, stdout=full)
            self.assertEqual(done.returncode, 2)
            self.assertRegex(
                done.stderr,
                r'\A.*: standard output: No space left on device\n\Z')

    def test_closed(self):
        for module, options in self.commands():
            done = self.run_command(module, *options, shell='>&-')
            self.assertEqual((done.returncode, done.stderr), (0, ''))


class Terminal(io.TextIOWrapper):

    def isatty(self):
        return True


class WidthTests(FiguresCase):

    def setUp(self):
        super().setUp()
        write_timed(self.path('long'), (
            '2020-01-30 10:00', {0: record(LONG)}, b'/ admin', b'/site'))

    def test_nothing_is_folded_for_a_program(self):
        _, out, _ = self.run_info(path=self.path('long'))
        self.assertIn(f' module.{LONG} ', out)
        self.assertIn(f' {LONG}(0x00) ', out)

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
