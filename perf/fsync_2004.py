"""The campaign about fsync: the experiment of 2004, on this machine.

Runs `fsync-time commits` with the parameters of the recorded results, and
then compares what was measured with what the project claims.  Writes
`fsync_2004.json` (all samples) and `fsync_2004.txt` (the tables and the
claims).  README.rst says how to read them.
"""

import sys

import claims
import running
from fsyncstorage.timing import tables
from fsyncstorage.timing.wording import added
from fsyncstorage.timing.wording import count
from fsyncstorage.timing.wording import times

PARAMETERS = [
    'commits',
    '--threads', '1,8,16',
    '--sync-latency', '0,1ms,5ms',
    '--shared',
    '--readers',
]
ROUNDS = 9


GROUP, STOCK = 'fsync:group-commit', 'filestorage'
NONE, STOCK_WITHOUT = 'fsync:none', 'filestorage:no-fsync'


def ratio(contestant, baseline, threads, sync_latency, at_least):
    """A contestant commits at least so many times what another does."""
    return claims.Claim(
        f'{contestant} against {baseline}, {count(threads, "thread")},'
        f' {added(sync_latency)}',
        'commits', {'threads': threads, 'sync_latency': sync_latency,
                    'shared': False},
        contestant, against=baseline, at_least=at_least)


def load_time(contestant, **limit):
    """The slowest loads stay under, or reach, a limit."""
    return claims.Claim(
        f'{contestant}: p99 of loadBefore while others commit',
        'loads', {}, contestant, 'p99_seconds', **limit)


CLAIMS = [
    ratio(GROUP, STOCK, 1, 0.0, at_least=0.95),
    ratio(GROUP, STOCK, 1, 0.001, at_least=0.95),
    ratio(GROUP, STOCK, 1, 0.005, at_least=0.95),
    ratio(GROUP, STOCK, 16, 0.0, at_least=1.4),
    ratio(GROUP, STOCK, 16, 0.001, at_least=4),
    ratio(GROUP, STOCK, 16, 0.005, at_least=8),
    ratio(NONE, STOCK_WITHOUT, 1, 0.0, at_least=0.97),
    ratio(NONE, STOCK_WITHOUT, 16, 0.0, at_least=0.97),
    load_time(GROUP, under=0.002),
    # Not ours, but the reason for the one above.
    load_time(STOCK, at_least=0.050),
]

#: How much of what is possible without any sync is reached with them.
SHARE = ratio(GROUP, NONE, 16, 0.0, at_least=0)


def show_claims(document, console):
    hold = claims.show(CLAIMS, document, console)
    share = SHARE.measured(document)
    if share is not None:
        console.print(f'{SHARE.words}: {times(share)}', highlight=False)
    return hold


if __name__ == '__main__':
    sys.exit(running.campaign(
        'fsync_2004', __doc__, PARAMETERS, ROUNDS, tables.show_commits,
        show_claims))
