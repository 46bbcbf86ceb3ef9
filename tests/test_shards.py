"""The runner of the tests, over modules that behave and others that do not."""

import contextlib
import io
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import unittest
from unittest import mock

from . import shard
from . import shards
from .support import PATIENCE
from .support import TestCase
from .support import Thread
from .support import until

GOOD = """
class Tests(unittest.TestCase):
    def test_one(self):
        pass
    def test_two(self):
        pass
    @unittest.skip('not today')
    def test_three(self):
        pass
"""
FAILS = """
class Tests(unittest.TestCase):
    def test_good(self):
        pass
    def test_bad(self):
        self.fail('the reason of this failure')
    def test_worse(self):
        raise Exception
"""
# Of its two layers, one has printed its totals before.
DIES = """
class Layer:
    def setUp():
        os._exit(0)
class First(unittest.TestCase):
    def test(self):
        pass
class Second(First):
    layer = Layer
"""
IS_KILLED = """
class Tests(unittest.TestCase):
    def test(self):
        os.kill(os.getpid(), signal.SIGKILL)
"""
ENDS_BADLY = """
import atexit
atexit.register(lambda: os._exit(3))
class Tests(unittest.TestCase):
    def test(self):
        pass
"""
# In a process that it starts, it takes as much as it can.
IS_BUSY = """
import subprocess, sys
BUSY = 'import time\\nwhile time.process_time() < 0.7: pass'
class Tests(unittest.TestCase):
    def test(self):
        subprocess.run([sys.executable, '-c', BUSY], check=True)
"""
IS_LONG = """
class Tests(unittest.TestCase):
    level = 3
    def test(self):
        pass
"""
# It fails with the number of this run.
TRIES_OFTEN = f"""
import sys
sys.path.append({str(shards.ROOT)!r})
from tests.often import often
class Tests(unittest.TestCase):
    def test(self):
        self.fail('tried %d times' % often(12, 3456))
"""
IS_EMPTY = """
def test_suite():
    return unittest.TestSuite()
"""
# In a session of its own, and without a parent.
LEAVES_ONE = """
class Tests(unittest.TestCase):
    def test(self):
        if not os.fork():
            os.setsid()
            if not os.fork():
                signal.pause()
            os._exit(0)
        os.wait()
"""
HANGS = """
class Tests(unittest.TestCase):
    def test(self):
        if not os.fork():
            os.setsid()
        with open(f'here-{os.getpid()}', 'w'):
            pass
        while True:
            signal.pause()
"""
IGNORES_INTERRUPTS = """
class Tests(unittest.TestCase):
    def test(self):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        with open(f'here-{os.getpid()}', 'w'):
            pass
        while True:
            signal.pause()
"""
SAYS_WHERE = """
open(f'here-{os.getpid()}', 'w').close()
"""
IMPORTS = 'import os\nimport signal\nimport unittest\n'


class Runs(TestCase):

    #: How many modules run in one process.
    together = 1

    def setUp(self):
        super().setUp()
        self.root = pathlib.Path(self.directory)
        self.root.joinpath('samples').mkdir()
        self.root.joinpath('samples', '__init__.py').touch()

    def write(self, **modules):
        for name, text in modules.items():
            self.root.joinpath('samples', f'test_{name}.py').write_text(
                IMPORTS + text)

    def write_inside(self, text):
        room = self.root / 'samples' / 'room'
        room.mkdir()
        room.joinpath('__init__.py').touch()
        room.joinpath('test_inside.py').write_text(IMPORTS + text)

    def run_them(self, *arguments):
        """The exit status, and what is printed."""
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), mock.patch.object(
                shards, 'TOGETHER', self.together):
            status = shards.main(
                ['-j', '4', *arguments], self.root, 'samples')
        self.printed = printed.getvalue()
        return status

    def said_of(self, name):
        said = re.search(
            rf'processor  samples.test_{name}: (.*)$', self.printed, re.M)
        return said[1].strip()

    @property
    def totals(self):
        return self.printed.splitlines()[-1]

    def here(self):
        """The processes that have said that they are there."""
        return {int(path.name.rpartition('-')[2])
                for path in self.root.glob('here-*')}


def runs(number):
    """Whether there is such a process that has not ended."""
    try:
        with open(f'/proc/{number}/stat') as file:
            return file.read().rpartition(') ')[2][0] != 'Z'
    except FileNotFoundError:
        return False


class TotalsTests(Runs):

    level = 2

    def test_all_is_well(self):
        self.write(good=GOOD, other=GOOD)
        self.assertEqual(self.run_them(), 0)
        self.assertEqual(self.totals, '4 passed, 0 failed, 2 skipped')
        self.assertEqual(self.said_of('other'), '3 tests, 1 skipped')

    def test_failures_are_counted_and_shown(self):
        self.write(good=GOOD, fails=FAILS)
        self.assertEqual(self.run_them(), 1)
        self.assertEqual(self.totals, '3 passed, 2 failed, 1 skipped')
        self.assertEqual(self.said_of('fails'), '3 tests, 2 FAILED')
        shown = self.printed.partition('samples.test_fails: 2 failed')[2]
        self.assertIn('the reason of this failure', shown)
        self.assertIn('Error in test test_worse', shown)
        self.assertNotIn('test_good (', self.printed)

    def test_a_module_that_cannot_be_imported(self):
        self.write(good=GOOD, broken='import nothing_of_that_name')
        self.assertEqual(self.run_them(), 1)
        self.assertRegex(self.totals, '^2 passed, [1-9] failed, 1 skipped$')
        self.assertIn('nothing_of_that_name', self.printed)

    def test_a_process_that_ends_before_its_totals(self):
        self.write(good=GOOD, dies=DIES, killed=IS_KILLED)
        self.assertEqual(self.run_them(), 1)
        self.assertEqual(self.totals, '2 passed, 2 failed, 1 skipped')
        self.assertEqual(
            self.said_of('dies'),
            '0 tests, 1 FAILED ended with status 0 and without totals')
        self.assertEqual(
            self.said_of('killed'),
            '0 tests, 1 FAILED ended with status -9 and without totals')
        # Which test that was is shown, too.
        self.assertIn(' test (samples.test_killed.Tests', self.printed)

    def test_an_error_that_the_totals_do_not_show(self):
        self.write(bad=ENDS_BADLY)
        self.assertEqual(self.run_them(), 1)
        self.assertEqual(self.totals, '1 passed, 1 failed, 0 skipped')
        self.assertEqual(
            self.said_of('bad'), '1 tests, 1 FAILED ended with status 3')

    def test_without_a_test(self):
        self.write(good=GOOD, long=IS_LONG, empty=IS_EMPTY)
        self.assertEqual(self.run_them(), 0)
        self.assertEqual(self.run_them('--all'), 1)
        self.assertEqual(self.said_of('long'), '1 tests')
        self.assertEqual(
            self.said_of('empty'),
            '0 tests, 1 FAILED no test in samples.test_empty')
        self.assertEqual(self.run_them('--all', '-t', 'test_one'), 0)
        self.assertEqual(self.totals, '1 passed, 0 failed, 0 skipped')

    def test_what_is_tried_often(self):
        self.write(often=TRIES_OFTEN)
        for options, number in ((), 12), (('--all',), 3456):
            with self.subTest(options):
                self.assertEqual(self.run_them(*options), 1)
                self.assertIn(f'tried {number} times', self.printed)

    def test_nothing_at_all(self):
        self.write(good=GOOD)
        self.assertEqual(self.run_them('-m', 'another'), 1)
        self.assertEqual(self.totals, '0 passed, 1 failed, 0 skipped')

    def test_modules_are_selected(self):
        self.write(good=GOOD, fails=FAILS)
        self.write_inside(GOOD)
        self.assertEqual(self.run_them('-m', '!fails'), 0)
        self.assertEqual(self.totals, '4 passed, 0 failed, 2 skipped')
        self.assertEqual(self.run_them('-m', 'room'), 0)
        self.assertEqual(self.totals, '2 passed, 0 failed, 1 skipped')
        self.assertEqual(
            os.listdir(self.root / 'build' / 'tests'),
            ['samples.room.test_inside.log'])

    def test_the_longest_ones_exist(self):
        found = shards.modules(shards.ROOT, 'tests', lambda module: True)
        self.assertEqual(
            [name.rpartition('.')[2]
             for name in found[:len(shards.LONGEST)]],
            list(shards.LONGEST))


class TogetherTests(Runs):

    level = 2
    together = 2

    def setUp(self):
        super().setUp()
        self.write(a=GOOD + SAYS_WHERE, b=GOOD + SAYS_WHERE,
                   c=GOOD + SAYS_WHERE)
        self.write_inside(GOOD + SAYS_WHERE)

    def test_a_few_of_a_directory_share_a_process(self):
        self.assertEqual(self.run_them(), 0)
        self.assertEqual(self.totals, '8 passed, 0 failed, 4 skipped')
        self.assertEqual(self.said_of('a to test_b'), '6 tests, 2 skipped')
        self.assertEqual(self.said_of('c'), '3 tests, 1 skipped')
        self.assertEqual(len(self.here()), 3)
        self.assertEqual(
            sorted(os.listdir(self.root / 'build' / 'tests')),
            ['samples.room.test_inside.log', 'samples.test_a_to_test_b.log',
             'samples.test_c.log'])

    def test_the_longest_ones_are_alone(self):
        with mock.patch.object(shards, 'LONGEST', ('test_b',)):
            self.assertEqual(self.run_them(), 0)
        self.assertEqual(self.said_of('b'), '3 tests, 1 skipped')
        self.assertEqual(self.said_of('a to test_c'), '6 tests, 2 skipped')

    def test_one_of_them_fails(self):
        self.write(b=FAILS)
        self.assertEqual(self.run_them(), 1)
        self.assertEqual(self.totals, '7 passed, 2 failed, 3 skipped')
        self.assertIn('samples.test_b', self.printed)

    def test_one_of_them_has_no_test(self):
        self.write(b=IS_EMPTY)
        self.assertEqual(self.run_them('--all'), 1)
        self.assertEqual(
            self.said_of('a to test_b'),
            '3 tests, 1 skipped, 1 FAILED no test in samples.test_b')

    def test_names_are_told_apart(self):
        """A process is told which modules it runs by their last names."""
        found = shards.modules(shards.ROOT, 'tests', lambda module: True)
        names = [module.rpartition('.')[2] for module in found]
        self.assertEqual(len(names), len(set(names)))


@unittest.skipUnless(os.path.isdir('/proc/self'), 'needs /proc')
class ProcessesTests(Runs):

    level = 2

    def setUp(self):
        super().setUp()
        self.addCleanup(self.end)

    def end(self):
        for number in filter(runs, self.here()):
            os.kill(number, signal.SIGKILL)

    def assertNoneLeft(self):
        # One that is killed has no environment any more before it has ended.
        until(lambda: not any(map(runs, self.here())), 'the end of all')

    def test_what_is_left_behind_is_a_failure(self):
        self.write(leaves=LEAVES_ONE)
        with mock.patch.object(shard, 'GRACE', 0.2):
            self.assertEqual(self.run_them(), 1)
        self.assertEqual(
            self.said_of('leaves'),
            '1 tests, 1 FAILED left 1 processes behind')
        self.assertEqual(self.totals, '1 passed, 1 failed, 0 skipped')

    def test_one_that_hangs_says_where(self):
        self.write(hangs=HANGS)

        def lose_patience():
            until(lambda: len(self.here()) == 2, 'both')
            shard.SILENCE = 0.1

        with mock.patch.object(shard, 'SILENCE', PATIENCE), \
                mock.patch.object(shard, 'GRACE', 0.2):
            impatience = Thread(lose_patience)
            self.assertEqual(self.run_them(), 1)
            impatience.result()
        self.assertEqual(
            self.said_of('hangs'),
            '0 tests, 1 FAILED printed nothing for 0.1 seconds')
        self.assertRegex(self.printed, r'test_hangs.py", line \d+ in test')
        self.assertEqual(self.totals, '0 passed, 1 failed, 0 skipped')
        self.assertNoneLeft()

    def test_the_processor_time_is_that_of_each(self):
        self.write(busy=IS_BUSY, good=GOOD)
        self.assertEqual(self.run_them(), 0)
        busy, good = (
            float(re.search(
                rf'([0-9.]+) s of processor  samples.test_{name}:',
                self.printed)[1]) for name in ('busy', 'good'))
        self.assertGreater(busy, good)
        self.assertGreaterEqual(busy, 0.7)

    def test_when_it_is_broken_off_nothing_is_left(self):
        self.write(hangs=HANGS, ignores=IGNORES_INTERRUPTS)
        for number in signal.SIGINT, signal.SIGTERM, signal.SIGHUP:
            with self.subTest(number):
                runner = subprocess.Popen(
                    [sys.executable, '-c', RUNNER.format(
                        root=json.dumps(str(self.root)))],
                    cwd=shards.ROOT, stdout=subprocess.PIPE, text=True)
                self.addCleanup(runner.stdout.close)
                self.addCleanup(runner.kill)
                until(lambda: len(self.here()) == 3, 'all three')
                # Again and again: impatience does not leave any.
                until(lambda: runner.send_signal(number)
                      or runner.poll() is not None, 'its end')
                self.assertEqual(runner.returncode, 128 + number)
                self.assertNoneLeft()
                for path in self.root.glob('here-*'):
                    path.unlink()


# Whoever runs the tests may have been started by nohup.
RUNNER = """
import pathlib
import signal
import sys
from tests import shards
shards.GRACE = 1
shards.TOGETHER = 1
signal.signal(signal.SIGHUP, signal.SIG_DFL)
shards.let_signals_break_off()
sys.exit(shards.main(['-j', '4'], pathlib.Path({root}), 'samples'))
"""


class SignalTests(unittest.TestCase):

    level = 2

    def test_a_background_job_does_not_ignore_them(self):
        printed = subprocess.check_output(
            ['sh', '-c', 'trap "" INT QUIT; exec "$@"', 'sh',
             sys.executable, '-c', SAY_SIGNALS], cwd=shards.ROOT, text=True)
        self.assertEqual(printed.split(), ['default_int_handler', 'SIG_DFL'])


SAY_SIGNALS = """
import signal
import tests
print(signal.getsignal(signal.SIGINT).__name__,
      signal.getsignal(signal.SIGQUIT).name)
"""
