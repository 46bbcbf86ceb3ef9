"""The command `fsync-time commits`: what a durable commit costs.

It repeats the experiment that Tim Peters made in 2004 on stock FileStorage and
on each policy of FsyncStorage, by number of threads and by what is added to
each sync.
"""

from .. import arguments
from .. import custom
from .. import wording
from ..contestants import CONTESTANTS
from . import committing
from . import loading
from . import tables

THREADS = [1, 8, 16]

#: Unless told otherwise, a sample has as many transactions as one sync each
#: lets through in about so many seconds, within bounds: threads must commit
#: often enough to meet, and on a fast disk more rounds tell more than longer
#: samples do.
SAMPLE_SECONDS, QUICK_SAMPLE_SECONDS = 3.0, 0.5
MOST_TRANSACTIONS, QUICK_MOST_TRANSACTIONS = 2500, 500
LEAST_A_THREAD = 10
#: And with large transactions as many as these bytes have room for.
MOST_BYTES, QUICK_MOST_BYTES = 200_000_000, 20_000_000

READERS_LATENCY = 0.05
READERS_SECONDS, QUICK_READERS_SECONDS = 3.0, 1.0

DESCRIPTION = """\
Measure what a durable commit costs on this disk.

Threads commit transactions that each set one key of an IIBTree, as fast as
they can, as in the experiment that Tim Peters posted to zodb-dev in 2004. Each
contestant is measured in turn, round by round, each time in a new process on
an empty directory. The table shows commits a second, median and range of the
rounds, and how many times the baseline that is, with an interval; and what a
commit takes of the processors.
"""

EPILOG = """\
examples:
  fsync-time commits --quick
  fsync-time commits --directory /srv/zeo --json commits.json
  fsync-time commits filestorage fsync:group-commit --sync-latency 0,1ms,5ms
  fsync-time commits --size 0,10KB,1MB --seconds 2
  fsync-time commits filestorage mine=etc/storage.conf
"""


def add_to(commands):
    parser = arguments.add_measuring(
        commands, 'commits',
        'what a durable commit costs, by policy and number of threads',
        DESCRIPTION, CONTESTANTS, EPILOG)
    parser.add_argument(
        '--threads', type=arguments.counts, default=THREADS, metavar='N,...',
        help='measure with so many threads at a time (default: 1,8,16)')
    parser.add_argument(
        '--size', type=arguments.sizes, default=[0], metavar='SIZE,...',
        help='each transaction also stores an object with so many bytes, like'
             ' 0,10KB,1MB (default: 0, which is none, as in 2004)')
    amount = parser.add_mutually_exclusive_group()
    amount.add_argument(
        '--transactions', type=arguments.positive, metavar='N',
        help='transactions a sample, shared out among its threads (default:'
             f' about {SAMPLE_SECONDS:.0f} seconds of syncs, at most'
             f' {MOST_TRANSACTIONS}; they were 10000 in 2004)')
    amount.add_argument(
        '--seconds', type=arguments.seconds, metavar='TIME',
        help='instead: how long a sample lasts, like 2s')
    parser.add_argument(
        '--shared', action='store_true',
        help='also measure with one tree that all threads share, where'
             ' conflicts happen and retries count')
    parser.add_argument(
        '--readers', action='store_true',
        help='also measure how long a load takes in another thread while'
             f' {loading.COMMITTERS} threads commit and each sync takes'
             f' {wording.duration(READERS_LATENCY)} more')
    parser.set_defaults(run=lambda options: run(parser, options))


def run(parser, options):
    arguments.complete(parser, options)
    most_threads = max(options.threads)
    if options.transactions and options.transactions < most_threads:
        parser.error(
            f'--transactions {options.transactions} is not enough for'
            f' {most_threads} threads')
    if options.shared and most_threads == 1:
        parser.error('--shared needs more than one thread')
    return custom.run(options, 'commits', races, tables.show)


def races(options, sync_seconds):
    found = [
        committing.race(
            threads=threads,
            **_amount(options, sync_seconds + sync_latency, size),
            sync_latency=sync_latency,
            shared=shared,
        )
        for shared in ([False, True] if options.shared else [False])
        for size in options.size
        for sync_latency in options.sync_latency
        for threads in options.threads
        # One thread alone shares its tree with nobody.
        if threads > 1 or not shared
    ]
    if options.readers:
        found.append(loading.race(
            committers=loading.COMMITTERS,
            seconds=(
                QUICK_READERS_SECONDS if options.quick else READERS_SECONDS),
            sync_latency=READERS_LATENCY,
        ))
    return found


def _amount(options, sync_seconds, size):
    """How much a sample has to do; settings of a race."""
    # Without a size, settings are what they were in 2004.
    amount = {'size': size} if size else {}
    if options.seconds:
        return {'seconds': options.seconds, **amount}
    number = transactions(options, sync_seconds, size)
    return {'transactions': number, **amount}


def transactions(options, sync_seconds, size=0):
    """How many a sample has when one sync takes so long."""
    if options.transactions:
        return options.transactions
    seconds, most, most_bytes = (
        (QUICK_SAMPLE_SECONDS, QUICK_MOST_TRANSACTIONS, QUICK_MOST_BYTES)
        if options.quick
        else (SAMPLE_SECONDS, MOST_TRANSACTIONS, MOST_BYTES))
    if size:
        most = min(most, most_bytes // size)
    least = LEAST_A_THREAD * max(options.threads)
    return max(least, min(most, round(seconds / sync_seconds)))
