"""I7 with real errors: strace makes a sync fail in a process that commits.

The storage, the Python below it and the system calls are as they always are;
only the answer to one sync is EIO.  Skipped where strace may not be used.
"""

import collections
import errno
import os
import shutil
import subprocess
import sys

from ..often import often
from ..support import PATIENCE
from ..support import TestCase
from ..support import commit
from ..support import oid
from . import struck

PYTHON = os.path.realpath(sys.executable)  # no script that starts another one
PROMISING = 'group-commit', 'per-commit', 'two-sync'

#: Which sync fails; strace counts those of each thread, and of files and
#: directories, by themselves.
AT_OPEN = ('fdatasync', 1), ('fdatasync', 2), ('fsync', 1)
#: Where a commit has two, one is for the data and one for the status.
AMID_COMMITS = 20, 21

BEFORE = 9999  # an object that is there before


def why_strace_cannot_be_used():
    if shutil.which('strace') is None:
        return 'strace is not installed'
    probe = subprocess.run(
        ['strace', '-f', '-qq', '-e', 'trace=none',
         '-e', 'inject=fsync:error=EIO', 'true'],
        stderr=subprocess.PIPE, text=True, timeout=PATIENCE)
    if probe.returncode:
        return f'strace does not work here: {probe.stderr.strip()}'


class RealFaults(TestCase):

    level = 2

    def setUp(self):
        super().setUp()
        if reason := why_strace_cannot_be_used():
            self.skipTest(reason)

    def strike(self, name, policy, at, threads=1, call='fdatasync'):
        """Let call number `at` fail; what the process said, word -> rest."""
        storage = self.open(name)
        self.before = commit(storage, {BEFORE: b'before'})
        storage.close()
        self.trace = self.path(f'{name}.trace')
        process = subprocess.run(
            ['strace', '-f', '-qq', '-o', self.trace,
             '-e', 'trace=fsync,fdatasync',
             '-e', f'inject={call}:error=EIO:when={at}',
             PYTHON, struck.__file__, self.path(name), policy, str(threads)],
            env={**os.environ, 'PYTHONPATH': os.pathsep.join(sys.path)},
            capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual(process.returncode, 0, process.stderr)
        said = collections.defaultdict(list)
        for line in process.stdout.splitlines():
            word, *rest = line.split()
            said[word].append(rest)
        return said

    def check_that_no_sync_follows(self):
        with open(self.trace) as trace:
            calls = trace.readlines()
        failed, = (number for number, call in enumerate(calls)
                   if '(INJECTED)' in call)
        self.assertEqual(
            [call for call in calls[failed + 1:] if 'sync(' in call], [])

    def check_what_was_kept(self, name, policy, said):
        """All that was acknowledged; and it goes on from there."""
        storage = self.open(name, durability=policy)
        self.assertEqual(storage.load(oid(BEFORE)), (b'before', self.before))
        for number, tid in said['acknowledged']:
            self.assertEqual(
                storage.load(oid(int(number))),
                (struck.content(int(number)), bytes.fromhex(tid)))
        after = commit(storage, {BEFORE: b'after'}, {BEFORE: self.before})
        self.assertEqual(storage.load(oid(BEFORE)), (b'after', after))
        storage.close()

    def test_of_a_commit(self):
        for policy in often(('group-commit', 'two-sync'), PROMISING):
            for at in often(AMID_COMMITS[policy == 'two-sync':][:1],
                            AMID_COMMITS):
                with self.subTest(policy, at=at):
                    name = f'{policy}-{at}'
                    said = self.strike(name, policy, at)
                    last, tid = said['acknowledged'][-1]
                    self.assertEqual(said['unknown'], [[str(int(last) + 1)]])
                    self.assertEqual(said['stopped'], [['0']])
                    self.assertEqual(said['reads'], [[tid]])
                    self.check_that_no_sync_follows()
                    self.check_what_was_kept(name, policy, said)

    def test_while_others_wait(self):
        for policy in often(('group-commit',), PROMISING):
            with self.subTest(policy):
                said = self.strike(policy, policy, AMID_COMMITS[0], threads=4)
                self.assertGreater(len(said['unknown']), 0)
                self.assertEqual(len(said['stopped']), 4)
                self.assertEqual(said['reads'], [
                    [max(tid for number, tid in said['acknowledged'])]])
                self.check_that_no_sync_follows()
                self.check_what_was_kept(policy, policy, said)

    def test_in_the_background(self):
        said = self.strike('interval', 'interval', AMID_COMMITS[0])
        self.assertEqual(said['stopped'], [['0']])
        [[visible]] = said['reads']
        self.assertLessEqual(visible, said['acknowledged'][-1][1])
        self.check_that_no_sync_follows()
        self.check_what_was_kept('interval', 'interval', said)

    def test_at_open(self):
        for call, at in often(AT_OPEN[:1], AT_OPEN):
            with self.subTest(call, at=at):
                name = f'{call}-{at}'
                said = self.strike(name, 'group-commit', at, call=call)
                self.assertEqual(dict(said), {'refused': [[str(errno.EIO)]]})
                self.check_what_was_kept(name, 'group-commit', said)
