"""What the scripts here share: the options, and a recorded run.

A run leaves `NAME.json` (all samples) and `NAME.txt` (the tables and the
claims) among the results.  `campaign` is one of a command of the timing
driver, `measure` one of races that a script chooses, `run` one of a script
that brings a measurement of its own; for those there is also a way to fill a
storage with many objects.
"""

import argparse
import dataclasses
import pathlib

from rich import box
from rich.console import Console
from rich.table import Table
from ZODB.Connection import TransactionMetaData
from ZODB.utils import p64
from ZODB.utils import z64

from fsyncstorage.timing import document as documents
from fsyncstorage.timing import main
from fsyncstorage.timing import session
from fsyncstorage.timing import tables

AT_ONCE = 100  # objects in a transaction
OBJECT_SIZE = 1000

RESULTS = pathlib.Path(__file__).with_name('results')
QUICK_ROUNDS = 2


@dataclasses.dataclass
class Ratio:
    """In one race, a figure of a contestant is at most so many times that of
    the baseline."""

    race: int
    contestant: str
    figure: str
    at_most: float

    def holds(self, document):
        return self.measured(document)['of_medians'] <= self.at_most

    def measured(self, document):
        return documents.ratio(
            document, self.race, self.contestant, document['baseline'],
            self.figure)


def _options(doc, rounds):
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument(
        '--directory', default='.', metavar='DIR',
        help='measure the disk that this is on (default: the current one)')
    parser.add_argument(
        '--results', default=RESULTS, type=pathlib.Path, metavar='DIR',
        help='write the results here (default: perf/results)')
    parser.add_argument(
        '--rounds', type=int, metavar='N',
        help=f'how often each is measured (default: {rounds})')
    parser.add_argument(
        '--quick', action='store_true',
        help='little work: to try the script, not to record')
    options = parser.parse_args()
    options.results.mkdir(parents=True, exist_ok=True)
    return options


def campaign(name, doc, parameters, rounds, show, show_claims):
    """Run a command of the timing driver; 0 when all claims hold.

    `show(document, console)` prints the tables; `show_claims` prints what is
    claimed of them, and returns whether it holds.
    """
    options = _options(doc, rounds)
    json = options.results / f'{name}.json'
    code = main.main([
        *parameters, '--directory', options.directory, '--json', str(json),
        *(['--quick'] if options.quick
          else ['--rounds', str(options.rounds or rounds)])])
    if code:
        return code
    return _concluded(json, show, show_claims)


def measure(name, doc, contestants, races, rounds, show, show_claims):
    """Run these races; 0 when all claims hold.

    The first contestant is the baseline; `races` is called with whether a
    quick run was asked for.
    """
    options = _options(doc, rounds)
    options.rounds = options.rounds or (
        QUICK_ROUNDS if options.quick else rounds)
    options.repeats, options.plot, options.pyperf = 1, None, None
    options.contestants = contestants
    options.baseline = contestants[0]
    options.json = options.results / f'{name}.json'
    code = session.run(
        options, name, lambda options, sync: races(options.quick), show)
    return code or _concluded(options.json, show, show_claims)


def _concluded(json, show, show_claims):
    """Write the text beside the JSON; 0 when all claims hold."""
    document = documents.load(json)
    hold = show_claims(document, Console())
    with open(json.with_suffix('.txt'), 'w', encoding='utf-8') as file:
        console = Console(file=file, width=100)
        show(document, console)
        show_claims(document, console)
    return 0 if hold else 1


def run(name, doc, contestants, races, claims, rounds, unit):
    """Like `measure`, with tables of all figures, and claims of `Ratio`s.

    Figures are shown in units of so many seconds: (1e-3, 'ms').
    """
    def show(document, console):
        tables.show_machine(document, console)
        for number, race in enumerate(document['races']):
            console.print(table(document, number, race, unit))

    def show_claims(document, console):
        for claim in claims:
            _show_claim(document, claim, console)
        return all(claim.holds(document) for claim in claims)

    return measure(
        name, doc, contestants, races, rounds, show, show_claims)


def table(document, number, race, unit):
    """All figures of a race."""
    settings = ', '.join(
        f'{name} {value}' for name, value in race['settings'].items())
    shown = Table(box=box.HORIZONTALS, pad_edge=False, title_justify='left',
                  title=f'{race["workload"]}: {settings}')
    shown.add_column('contestant')
    for figure in race['compared']:
        shown.add_column(f'{figure}, {unit[1]}', justify='right')
    for contestant in document['contestants']:
        shown.add_row(contestant, *(
            _cell(documents.result(document, number, contestant, figure), unit)
            for figure in race['compared']))
    return shown


def _cell(found, unit):
    median, least, most = (
        f'{found[name] / unit[0]:.4g}' for name in ('median', 'min', 'max'))
    return f'{median}\n{least}-{most}'


def _show_claim(document, claim, console):
    measured = claim.measured(document)
    console.print(
        f'{claim.figure} of {claim.contestant}, race {claim.race}:'
        f' {measured["of_medians"]:.3f} times that of'
        f' {document["baseline"]} (rounds {measured["min"]:.3f} to'
        f' {measured["max"]:.3f}), claimed at most {claim.at_most}:'
        f' {"holds" if claim.holds(document) else "DOES NOT HOLD"}',
        highlight=False, soft_wrap=True)


def fill(storage, first, number):
    """Make so many objects, straight in the storage, from that oid on."""
    for begin in range(first, first + number, AT_ONCE):
        store(storage, range(begin, begin + AT_ONCE))


def store(storage, numbers):
    """Commit new data of the objects with these numbers."""
    transaction = TransactionMetaData()
    storage.tpc_begin(transaction)
    for number in numbers:
        try:
            serial = storage.getTid(p64(number))
        except KeyError:
            serial = z64
        storage.store(p64(number), serial, b'x' * OBJECT_SIZE, '', transaction)
    storage.tpc_vote(transaction)
    storage.tpc_finish(transaction)
