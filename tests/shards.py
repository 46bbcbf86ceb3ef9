"""Runs the test modules side by side: python -m tests.shards [options]

A process runs one of the `LONGEST` modules, or a few others that are in one
directory: to start one for each of them took a tenth of the whole processor
time.  There are three more at a time than there are processors (``-j`` says
another number): while one waits, for a server that starts, a disk that syncs
or a time that is over, it leaves its processor to another.  The options are
those of zope.testrunner, and select modules and tests as they do there.

It promises:

- The totals are those that the runs print when they end, added up.  Whatever
  they do not show (`shard`) is a failure by name; with ``--all``, so is a
  module that has no test.
- When the run is broken off, no process is left.
- What is skipped is counted by its reason, in the lines before the last one.

Each process has a log in ``build/tests``.  A line says how long it took, and
how much time of processors, with all that it started and waited for.  The last
line counts the tests: "N passed, N failed, N skipped".
"""

import collections
import itertools
import os
import pathlib
import re
import shutil
import signal
import sys
import time

from zope.testrunner.filter import build_filtering_func
from zope.testrunner.options import get_options

from .shard import GRACE
from .shard import Shard

ROOT = pathlib.Path(__file__).parent.parent

# They are begun first, the longest one first, so that none of them is left
# alone at the end.
LONGEST = (
    'test_conformance_client',
    'test_conformance_zeo',
    'test_conformance_filestorage',
    'test_process',
    'test_commit_cuts',
    'test_crash_images',
    'test_conformance_pair',
    'test_documents',
)

# Of the others, at most so many run in one process; twice as many at level 1.
TOGETHER = 12

BREAKING = signal.SIGINT, signal.SIGTERM, signal.SIGHUP
came = []   # the number of the one that breaks off the run

_NAME_OF_A_TEST = re.compile(r' \S.*\)( \(skipped: .*)?( \([0-9.]+ s\))?$')
_SKIPPED = re.compile(r' \(skipped: (.*)\)(?: \([0-9.]+ s\))?$', re.MULTILINE)


def run(shards, processes, ended):
    """Run them all, or until it is broken off; call this with each that has
    ended."""
    waiting, running = list(reversed(shards)), []
    try:
        while (waiting or running) and not came:
            while waiting and len(running) < processes:
                running.append(waiting.pop())
                running[-1].start()
            time.sleep(0.05)
            for shard in [each for each in running if not each.goes_on()]:
                running.remove(shard)
                ended(shard)
    finally:
        end_early(running)


def end_early(shards):
    for shard in shards:
        shard.interrupt()
    deadline = time.monotonic() + GRACE
    for shard in shards:
        shard.end(deadline)


def modules(root, package, accept):
    """The names of those that are wanted, the longest ones first."""
    found = []
    for path in root.joinpath(package).rglob('test_*.py'):
        module = '.'.join(path.relative_to(root).with_suffix('').parts)
        if accept(module):
            found.append(module)

    def rank(module):
        name = module.rpartition('.')[2]
        return LONGEST.index(name) if name in LONGEST else len(LONGEST)

    return sorted(
        found, key=lambda module: (rank(module), module.rpartition('.')))


def groups(modules, level):
    """What runs in one process each, in this order: the larger ones first, so
    that what is left at the end is small.  At level 1 no module is long."""
    alone = [each for each in modules
             if level > 1 and each.rpartition('.')[2] in LONGEST]
    others, found = [each for each in modules if each not in alone], []
    together = TOGETHER if level > 1 else 2 * TOGETHER
    for _, some in itertools.groupby(
            others, key=lambda module: module.rpartition('.')[0]):
        some = list(some)
        found += [some[begin:begin + together]
                  for begin in range(0, len(some), together)]
    found.sort(key=len, reverse=True)
    return [[each] for each in alone] + found


def tell(shard):
    said = (f'{shard.seconds:7.1f} s {shard.cpu_seconds:6.1f} s of processor'
            f'  {shard.name}: {shard.totals.tests} tests')
    if shard.totals.skipped:
        said += f', {shard.totals.skipped} skipped'
    if shard.failed:
        said += f', {shard.failed} FAILED {shard.trouble}'
    print(said, flush=True)


def show(shard):
    """Of one that failed: its failures, or how it came to its end."""
    lines = shard.text.splitlines()
    if not shard.trouble:
        lines = [each for each in lines if not _NAME_OF_A_TEST.match(each)]
    rule = '=' * 79
    print(f'\n{rule}\n{shard.name}: {shard.failed} failed {shard.trouble}'
          f'\n{rule}')
    print('\n'.join(lines[-400:]))


def summary(shards):
    """Print the totals; the exit status."""
    passed, failed, skipped = (
        sum(shard.totals.passed for shard in shards),
        sum(shard.failed for shard in shards),
        sum(shard.totals.skipped for shard in shards))
    reasons = collections.Counter()
    for shard in shards:
        reasons.update(_SKIPPED.findall(shard.text))
    for reason, number in reasons.most_common():
        print(f'{number} skipped: {reason}')
    if not passed + failed + skipped:
        print('There was no test to run.')
        failed = 1
    print(f'{passed} passed, {failed} failed, {skipped} skipped')
    return 1 if failed else 0


def main(arguments, root=ROOT, package='tests'):
    options = get_options(
        ['tests.shards', *arguments], ['-j', str(os.cpu_count() + 3)])
    if options.fail:
        return 1
    whole = options.all and options.test == ['.'] and not options.layer
    logs = root / 'build' / 'tests'
    shutil.rmtree(logs, ignore_errors=True)
    logs.mkdir(parents=True)
    wanted = modules(root, package, build_filtering_func(options.module))
    shards = [Shard(each, arguments, root, logs)
              for each in groups(wanted, options.at_level)]
    print(f'{len(wanted)} modules in {len(shards)} processes,'
          f' {options.processes} at a time; their logs are in {logs}',
          flush=True)

    def ended(shard):
        if whole and shard.without_tests:
            shard.is_wrong(f'no test in {" ".join(shard.without_tests)}')
        tell(shard)

    run(shards, options.processes, ended)
    if came:
        print('broken off', flush=True)
        return 128 + came[0]
    for shard in shards:
        if shard.failed:
            show(shard)
    return summary(shards)


def let_signals_break_off():
    for number in BREAKING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _broken_off)


def _broken_off(number, frame):
    # No exception: it could come between the start of a process and the note
    # of it.  Impatience changes nothing.
    came.append(number)
    for each in BREAKING:
        signal.signal(each, signal.SIG_IGN)


def let_bytecode_be_kept():
    """Hundreds of processes would compile the same modules otherwise."""
    os.environ.pop('PYTHONDONTWRITEBYTECODE', None)


if __name__ == '__main__':
    let_signals_break_off()
    let_bytecode_be_kept()
    sys.exit(main(sys.argv[1:]))
