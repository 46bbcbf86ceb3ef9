"""The campaign about fsync: the experiment of 2004, on this machine.

Runs `fsync-time commits` with the parameters of the recorded results, and
then compares what was measured with what the project claims.  Writes
`fsync_2004.json` (all samples) and `fsync_2004.txt` (the tables and the
claims).  README.rst says how to read them.
"""

import argparse
import dataclasses
import pathlib
import sys

from rich import box
from rich.console import Console
from rich.table import Table

from fsyncstorage.timing import document as documents
from fsyncstorage.timing import main
from fsyncstorage.timing import tables
from fsyncstorage.timing.wording import added
from fsyncstorage.timing.wording import count
from fsyncstorage.timing.wording import milliseconds
from fsyncstorage.timing.wording import times

RESULTS = pathlib.Path(__file__).with_name('results')

PARAMETERS = [
    'commits',
    '--threads', '1,8,16',
    '--sync-latency', '0,1ms,5ms',
    '--shared',
    '--readers',
]
ROUNDS = '9'


@dataclasses.dataclass
class Ratio:
    """A contestant commits at least so many times what another does."""

    contestant: str
    baseline: str
    threads: int
    sync_latency: float
    at_least: float

    def __str__(self):
        return (f'{self.contestant} against {self.baseline},'
                f' {count(self.threads, "thread")},'
                f' {added(self.sync_latency)}')

    def measured(self, document):
        race = find_race(
            document, 'commits', threads=self.threads,
            sync_latency=self.sync_latency, shared=False)
        if race is None:
            return None
        ratio = documents.ratio(
            document, race, self.contestant, self.baseline, 'txn_per_second')
        return ratio and ratio['of_medians']

    def holds(self, document):
        measured = self.measured(document)
        return measured is not None and measured >= self.at_least

    def claimed(self):
        return f'at least {times(self.at_least)}'

    put = staticmethod(times)


@dataclasses.dataclass
class LoadTime:
    """The slowest loads of a contestant stay under, or reach, a limit."""

    contestant: str
    limit: float
    under: bool

    def __str__(self):
        return f'{self.contestant}: p99 of loadBefore while others commit'

    def measured(self, document):
        race = find_race(document, 'loads')
        found = race is not None and documents.result(
            document, race, self.contestant, 'p99_seconds')
        return found['median'] if found else None

    def holds(self, document):
        measured = self.measured(document)
        return measured is not None and self.under == (measured < self.limit)

    def claimed(self):
        word = 'under' if self.under else 'at least'
        return f'{word} {self.put(self.limit)}'

    @staticmethod
    def put(seconds):
        return f'{milliseconds(seconds)} ms'


GROUP, STOCK = 'fsync:group-commit', 'filestorage'
NONE, STOCK_WITHOUT = 'fsync:none', 'filestorage:no-fsync'

CLAIMS = [
    Ratio(GROUP, STOCK, 1, 0.0, at_least=0.95),
    Ratio(GROUP, STOCK, 1, 0.001, at_least=0.95),
    Ratio(GROUP, STOCK, 1, 0.005, at_least=0.95),
    Ratio(GROUP, STOCK, 16, 0.0, at_least=1.4),
    Ratio(GROUP, STOCK, 16, 0.001, at_least=4),
    Ratio(GROUP, STOCK, 16, 0.005, at_least=8),
    Ratio(NONE, STOCK_WITHOUT, 1, 0.0, at_least=0.97),
    Ratio(NONE, STOCK_WITHOUT, 16, 0.0, at_least=0.97),
    LoadTime(GROUP, 0.002, under=True),
    # Not ours, but the reason for the one above.
    LoadTime(STOCK, 0.050, under=False),
]

#: How much of what is possible without any sync is reached with them.
SHARE = Ratio(GROUP, NONE, 16, 0.0, at_least=0)


def find_race(document, workload, **settings):
    for number, race in enumerate(document['races']):
        if race['workload'] == workload and (
                settings.items() <= race['settings'].items()):
            return number
    return None


def show_claims(document, console):
    table = Table(box=box.HORIZONTALS, pad_edge=False)
    table.add_column('claim')
    table.add_column('claimed', justify='right')
    table.add_column('measured', justify='right')
    table.add_column('holds')
    for claim in CLAIMS:
        measured = claim.measured(document)
        table.add_row(
            str(claim), claim.claimed(),
            '-' if measured is None else claim.put(measured),
            'yes' if claim.holds(document) else 'NO')
    console.print(table)
    share = SHARE.measured(document)
    if share is not None:
        console.print(f'{SHARE}: {times(share)}', highlight=False)


def run(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        '--directory', default='.', metavar='DIR',
        help='measure the disk that this is on (default: the current one)')
    parser.add_argument(
        '--results', default=RESULTS, type=pathlib.Path, metavar='DIR',
        help='write the results here (default: perf/results)')
    parser.add_argument(
        '--rounds', default=ROUNDS, metavar='N',
        help=f'how often each is measured (default: {ROUNDS})')
    parser.add_argument(
        '--quick', action='store_true',
        help='short samples: to try the script, not to record')
    options = parser.parse_args(argv)
    options.results.mkdir(parents=True, exist_ok=True)
    json = options.results / 'fsync_2004.json'
    code = main.main([
        *PARAMETERS, '--directory', options.directory, '--json', str(json),
        *(['--quick'] if options.quick else ['--rounds', options.rounds])])
    if code:
        return code
    document = documents.load(json)
    show_claims(document, Console())
    with open(json.with_suffix('.txt'), 'w', encoding='utf-8') as file:
        console = Console(file=file, width=100)
        tables.show_commits(document, console)
        show_claims(document, console)
    return 0 if all(claim.holds(document) for claim in CLAIMS) else 1


if __name__ == '__main__':
    sys.exit(run())
