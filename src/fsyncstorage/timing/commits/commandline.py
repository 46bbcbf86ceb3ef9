"""The command `fsync-time commits`: what a durable commit costs.

It repeats the experiment of Tim Peters of 2004, on stock FileStorage and on
each policy of FsyncStorage, by number of threads and by what is added to each
sync.
"""

from ..options import arguments
from ..options.contestants import CONTESTANTS
from ..results import wording
from . import committing

SECONDS = arguments.Default(2.0, 0.5)

READERS_LATENCY = 0.05

DESCRIPTION = """\
Measure what a durable commit costs on this disk.

Threads commit transactions that each set one key of an IIBTree, as fast as
they can, as in the experiment that Tim Peters posted to zodb-dev in 2004. Each
contestant is measured in turn, round by round, each time in a new process on
an empty directory. The table shows commits a second, median and range of the
rounds, and how many times the baseline that is, with an interval; and what a
commit takes of the processors.
"""


def add_to(commands):
    parser = arguments.add_measuring(
        commands, 'commits',
        'what a durable commit costs, by policy and number of threads',
        DESCRIPTION, CONTESTANTS,
        'filestorage mine=etc/storage.conf --sync-latency 0,1ms', races)
    parser.add_argument(
        '--threads', type=arguments.several(arguments.positive),
        default=[1, 8, 16], metavar='N,...',
        help='how many threads commit at a time (default: 1,8,16)')
    parser.add_argument(
        '--seconds', type=arguments.seconds, default=SECONDS, metavar='TIME',
        help='how long a sample lasts (default: %(default)s)')
    parser.add_argument(
        '--shared', action='store_true',
        help='also measure with one tree that all threads share, where'
             ' conflicts happen and retries count')
    parser.add_argument(
        '--readers', action='store_true',
        help='also measure how long a load takes in another thread while'
             f' {committing.COMMITTERS} threads commit and each sync takes'
             f' {wording.duration(READERS_LATENCY)} more')


def races(options):
    found = [
        committing.race(
            threads=threads, seconds=options.seconds,
            sync_latency=sync_latency, shared=shared)
        for shared in ([False, True] if options.shared else [False])
        for sync_latency in options.sync_latency
        for threads in options.threads
        # A single thread has no other thread to share its tree with.
        if threads > 1 or not shared
    ]
    if options.readers:
        found.append(committing.beside_race(
            committers=committing.COMMITTERS, seconds=options.seconds,
            sync_latency=READERS_LATENCY))
    return found
