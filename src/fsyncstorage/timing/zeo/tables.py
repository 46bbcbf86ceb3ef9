"""The tables of `fsync-time zeo`, made from a document and nothing else."""

import dataclasses
import typing

from rich.text import Text

from .. import tables
from ..document import figures
from ..statistics import median
from ..wording import count
from ..wording import duration
from .phrases import title

KEY = (
    'A second: the median of the rounds, below it their range.'
    f' {tables.RATIO_KEY} p50 and p99 are of a transaction, or of one object'
    ' that is read. 100 % of CPU is one processor.\n')

@dataclasses.dataclass(frozen=True)
class Grid:
    """A table with a column for each number of clients."""

    workload: str
    title: str
    figure: str
    #: The setting that differs from column to column, and one of them.
    setting: str
    noun: str
    #: Called with a function that gives the median of a figure, or None.
    remarks: typing.Callable


def _light_remarks(figure):
    yield from _percentiles(figure)
    yield from _cpu(figure, 'server', 'driver')
    yield from _broken(figure)


def _broken(figure):
    """What no server should do."""
    if wrong := figure('tids_not_rising', max):
        yield f'{count(wrong, "tid")} not rising'
    if late := figure('invalidations_late', max):
        yield f'{count(late, "invalidation")} late'


def _write_remarks(figure):
    yield from _percentiles(figure)
    yield from _cpu(figure, 'server', 'clients')


def _cold_remarks(figure):
    return _percentiles(figure, 'cold_')


def _percentiles(figure, prefix=''):
    yield f'p50 {duration(figure(f"{prefix}p50_seconds"))}'
    yield f'p99 {duration(figure(f"{prefix}p99_seconds"))}'


def _cpu(figure, *whose):
    """That of a server that is not ours or ZEO's is not known."""
    known = [(who, figure(f'{who}_cpu')) for who in whose]
    known = [f'{who} {cpu:.0%}' for who, cpu in known if cpu is not None]
    known[0] = f'CPU: {known[0]}'
    return known


GRIDS = (
    Grid('light', 'Commits of light connections', 'txn_per_second',
         'connections', 'connection', _light_remarks),
    Grid('write', 'Commits', 'txn_per_second',
         'clients', 'client', _write_remarks),
    Grid('read', 'Cold reads of objects', 'cold_per_second',
         'clients', 'client', _cold_remarks),
    Grid('read', 'Prefetches and reads of objects', 'prefetch_per_second',
         'clients', 'client', lambda figure: ()),
)


def show(document, console):
    tables.show_machine(document, console)
    for grid in GRIDS:
        for shared, races in tables.series(
                document, grid.workload, grid.setting):
            tables.show_table(
                console, title(shared, grid.title),
                _table(document, races, grid))
    console.print(Text(KEY.format(baseline=document['baseline']), 'dim'))
    for race in tables.races_of(document, 'read-beside-commit'):
        tables.show_table(
            console,
            title(document['races'][race]['settings'],
                  'Cold reads while another client commits'),
            tables.times_table(document, race, 'reads'))
        console.print(Text(tables.TIMES_KEY, 'dim'))


def _table(document, races, grid):
    table = tables.new_table()
    for number in races:
        table.add_column(count(number, grid.noun), justify='right')
    for contestant in document['contestants']:
        cells = [_cell(document, race, contestant, grid)
                 for race in races.values()]
        if any(cells):  # it takes part
            table.add_row(contestant, *cells)
    return table


def _cell(document, race, contestant, grid):

    def figure(name, of_rounds=median):
        values = figures(document, race, contestant, name)
        return of_rounds(values) if values else None

    return tables.compared_cell(
        document, race, contestant, grid.figure, grid.remarks(figure))
