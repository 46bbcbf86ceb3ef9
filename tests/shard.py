"""Modules of tests that share a process, of a zope.testrunner.

Its result is what the run prints when it ends.  What that does not show is
trouble: the run ended without totals, or with an error that they do not have;
it left processes behind, which are ended; it printed an exception that nobody
caught in a thread, or that something was not closed; or it printed nothing for
`SILENCE` seconds.  Such a run hangs: it shows where its threads are, and is
ended.
"""

import dataclasses
import os
import re
import resource
import subprocess
import sys
import time

from .marked import Marked

SILENCE = 120       # seconds, for a test of `make check` and `make test`
SILENCE_OF_ALL = 1200
GRACE = 10          # seconds for what should end by itself

_COUNTS = r'(\d+) failures, (\d+) errors and (\d+) skipped in '
_RAN = re.compile(r'^  Ran (\d+) tests with ' + _COUNTS, re.MULTILINE)
_TOTAL = re.compile(r'^Total: (\d+) tests, ' + _COUNTS, re.MULTILINE)
# (asyncio of Python 3.10 says "unclosed" of a TLS connection that its peer has
# ended: that is left out.)
_BESIDE = re.compile(
    r'Exception (?:in thread|ignored in) .*'
    r'|ResourceWarning: unclosed (?!transport <asyncio\.sslproto\.).*')
_ALL_WERE_RUN = 'Tearing down left over layers:'


@dataclasses.dataclass
class Totals:

    tests: int = 0
    failures: int = 0
    errors: int = 0
    skipped: int = 0

    @property
    def failed(self):
        return self.failures + self.errors

    @property
    def passed(self):
        # Of one test, several parts (subTest) may fail.
        return max(self.tests - self.failed - self.skipped, 0)


def totals_of(log):
    """What a run has printed at its end, or None."""
    ran, total = _RAN.findall(log), _TOTAL.findall(log)
    if not total and len(ran) == 1 and _ALL_WERE_RUN in log:
        total = ran     # with a single layer, there is no other line
    return Totals(*map(int, total[-1])) if total else None


def used_by_those_that_ended():
    """Seconds of processor time of all that this process has waited for, and
    of what those have waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Shard:
    """The run of modules that are in one directory."""

    def __init__(self, modules, arguments, root, logs):
        first, last = modules[0], modules[-1].rpartition('.')[2]
        self.name = first if len(modules) == 1 else f'{first} to {last}'
        self._modules = modules
        self.totals = Totals()
        self.trouble = ''       # what the totals do not show
        self._ended = None
        self.cpu_seconds = 0.0
        package = first.rpartition('.')[0]
        names = '|'.join(each.rpartition('.')[2] for each in modules)
        self._command = [
            sys.executable, '-u', '-X', 'faulthandler',
            '-m', 'zope.testrunner', '--path=.', '-k', '-vvv', *arguments,
            '-s', package, '--tests-pattern', f'^({names})$', '-j', '1']
        self._runs_all = '--all' in arguments
        self._root = root
        self._log = logs / (self.name.replace(' ', '_') + '.log')

    def start(self):
        self._output = self._log.open('w+', errors='replace')
        self._size = 0
        self._begun = self._heard = time.monotonic()
        self._program = Marked(
            self._command, cwd=self._root, stdout=self._output,
            stderr=subprocess.STDOUT)

    def goes_on(self):
        """Look after it; false when it has ended, with all that it started."""
        now, used = time.monotonic(), used_by_those_that_ended()
        if self._program.status is None:
            self._listen(now)
            return True
        if self._ended is None:
            self._ended = now
            self.cpu_seconds = used_by_those_that_ended() - used
        left = self._program.left()
        if left and now < self._ended + GRACE:
            return True
        self._close()
        self._judge()
        if left:
            self.is_wrong(f'left {len(left)} processes behind')
            self._program.kill()
        return False

    def _listen(self, now):
        size = os.fstat(self._output.fileno()).st_size
        silence = SILENCE_OF_ALL if self._runs_all else SILENCE
        if size != self._size:
            self._size, self._heard = size, now
        elif now > self._heard + silence:
            self.is_wrong(f'printed nothing for {silence} seconds')
            self._program.abort(GRACE)

    def _judge(self):
        totals, status = totals_of(self.text), self._program.status
        if totals is None:
            self.is_wrong(f'ended with status {status} and without totals')
            return
        self.totals = totals
        if status and not totals.failed:
            self.is_wrong(f'ended with status {status}')
        if beside := _BESIDE.search(self.text):
            self.is_wrong(f'printed {beside[0]!r}')

    def is_wrong(self, what):
        self.trouble = self.trouble or what

    def interrupt(self):
        self._program.interrupt()

    def end(self, deadline):
        self._program.wait(max(deadline - time.monotonic(), 0))
        self._program.kill()
        self._close()

    def _close(self):
        self._output.seek(0)
        self.text = self._output.read()
        self._output.close()

    @property
    def without_tests(self):
        """The modules of which no test was run."""
        if self.totals.tests and len(self._modules) == 1:
            return []  # a suite may have tests that are named otherwise
        return [each for each in self._modules if f'({each}.' not in self.text]

    @property
    def seconds(self):
        return self._ended - self._begun

    @property
    def failed(self):
        return self.totals.failed + bool(self.trouble)
