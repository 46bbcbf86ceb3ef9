"""The runner of the tests, over modules that behave and others that do not."""

import contextlib
import io
import os
import pathlib
import re
from unittest import mock

from . import shards
from .support import TestCase

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
SAMPLES = {
    'good': GOOD,
    'fails': """
class Tests(unittest.TestCase):
    def test_good(self):
        pass
    def test_bad(self):
        self.fail('the reason of this failure')
    def test_worse(self):
        raise Exception
""",
    'is_killed': """
class Tests(unittest.TestCase):
    def test(self):
        os.kill(os.getpid(), signal.SIGKILL)
""",
    'has_a_bad_thread': """
import threading
class Tests(unittest.TestCase):
    def test(self):
        thread = threading.Thread(target=lambda: 1 / 0)
        thread.start()
        thread.join()
""",
    'forgets_a_file': """
class Tests(unittest.TestCase):
    def test(self):
        open(__file__)
""",
    'broken': 'import nothing_of_that_name',
    'is_empty': """
def test_suite():
    return unittest.TestSuite()
""",
}
SAID = {
    'good': '3 tests, 1 skipped',
    'fails': '3 tests, 2 FAILED',
    'is_killed': '0 tests, 1 FAILED ended with status -9 and without totals',
    'is_empty': '0 tests',
}
# They fail with the number of this run.
TRIES_OFTEN = f"""
import sys
sys.path.append({str(shards.ROOT)!r})
from tests.often import often
class Tests(unittest.TestCase):
    def test(self):
        self.fail('tried %d times' % often(12, 3456, at_check=7))
class Long(unittest.TestCase):
    level = 3
    def test(self):
        pass
"""
IMPORTS = 'import os\nimport signal\nimport unittest\n'


class Runs(TestCase):

    level = 2

    def setUp(self):
        super().setUp()
        self.root = pathlib.Path(self.directory)
        self.root.joinpath('samples').mkdir()
        self.root.joinpath('samples', '__init__.py').touch()

    def write(self, **modules):
        for name, text in modules.items():
            self.root.joinpath('samples', f'test_{name}.py').write_text(
                IMPORTS + text)

    def run_them(self, *arguments, together=1):
        """The exit status; what is printed is kept."""
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), \
                mock.patch.object(shards, 'TOGETHER', together):
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


class Totals(Runs):

    def test_whatever_is_wrong_is_a_failure_by_name(self):
        self.write(**SAMPLES)
        self.assertEqual(self.run_them('--at-level', '2'), 1)
        for name, said in SAID.items():
            with self.subTest(name):
                self.assertEqual(self.said_of(name), said)
        self.assertIn('Exception in thread', self.said_of('has_a_bad_thread'))
        self.assertIn('unclosed file', self.said_of('forgets_a_file'))
        self.assertIn('nothing_of_that_name', self.printed)
        self.assertEqual(
            self.printed.splitlines()[-2], '1 skipped: not today')
        self.assertEqual(self.totals, '5 passed, 6 failed, 1 skipped')
        # A failure is shown, and the test in which a process was killed; what
        # went well is not.
        shown = self.printed.partition('samples.test_fails: 2 failed')[2]
        self.assertIn('the reason of this failure', shown)
        self.assertIn(' test (samples.test_is_killed.Tests', self.printed)
        self.assertNotIn('test_good (', self.printed)

    def test_levels(self):
        self.write(often=TRIES_OFTEN)
        for options, tests, number in (
                ((), 1, 7), (('--at-level', '2'), 1, 12),
                (('--all',), 2, 3456)):
            with self.subTest(options):
                self.assertEqual(self.run_them(*options), 1)
                self.assertIn(f'tried {number} times', self.printed)
                self.assertEqual(
                    self.said_of('often'), f'{tests} tests, 1 FAILED')

    def test_with_all_a_module_without_tests_fails(self):
        self.write(good=GOOD, is_empty=SAMPLES['is_empty'])
        self.assertEqual(self.run_them('--all', together=2), 1)
        self.assertEqual(
            self.said_of('good to test_is_empty'),
            '3 tests, 1 skipped, 1 FAILED no test in samples.test_is_empty')
        self.assertEqual(self.run_them('--all', '-t', 'test_one'), 0)
        self.assertEqual(self.totals, '1 passed, 0 failed, 0 skipped')

    def test_modules_are_selected(self):
        self.write(good=GOOD, fails=SAMPLES['fails'])
        self.assertEqual(self.run_them('-m', '!fails'), 0)
        self.assertEqual(self.totals, '2 passed, 0 failed, 1 skipped')
        self.assertEqual(
            os.listdir(self.root / 'build' / 'tests'),
            ['samples.test_good.log'])
        self.assertEqual(self.run_them('-m', 'another'), 1)
        self.assertEqual(self.totals, '0 passed, 1 failed, 0 skipped')

    def test_a_few_share_a_process_and_the_longest_ones_do_not(self):
        modules = ['samples.test_a', 'samples.test_b', 'samples.test_c']
        with mock.patch.object(shards, 'LONGEST', ('test_b',)):
            self.assertEqual(
                shards.groups(modules, level=2),
                [['samples.test_b'], ['samples.test_a', 'samples.test_c']])
            self.assertEqual(shards.groups(modules, level=1), [modules])

    def test_names(self):
        """A process is told by their last names which modules it runs; the
        longest ones exist."""
        found = shards.modules(shards.ROOT, 'tests', lambda module: True)
        names = [module.rpartition('.')[2] for module in found]
        self.assertEqual(len(names), len(set(names)))
        self.assertEqual(
            names[:len(shards.LONGEST)], list(shards.LONGEST))
