"""The tables of `fsync-time zeo`, made from a document and nothing else."""

import dataclasses
import typing

from rich.text import Text

from . import tables
from .document import figures
from .statistics import median
from .wording import added
from .wording import count
from .wording import duration

KEY = (
    'A second, and how many times {baseline} that is: the median of the'
    ' rounds, and the ratio of the medians. Below them the range of the'
    ' rounds, and of the ratios round by round. 100 % of CPU is one processor.'
    '\n')


@dataclasses.dataclass(frozen=True)
class Grid:
    """A table with a column for each number of clients."""

    workload: str
    title: str
    figure: str
    #: The setting that differs from column to column, and one of them.
    setting: str
    noun: str
    #: Called with a function that gives the median of a figure.
    remarks: typing.Callable


def _light_remarks(figure):
    yield from _percentiles(figure)
    yield f'CPU: server {figure("server_cpu"):.0%}'
    yield f'driver {figure("driver_cpu"):.0%}'
    yield from _broken(figure)


def _broken(figure):
    """What no server should do."""
    if wrong := figure('tids_not_rising', max):
        yield f'{count(wrong, "tid")} not rising'
    if late := figure('invalidations_late', max):
        yield f'{count(late, "invalidation")} late'


def _commit_remarks(figure):
    yield from _percentiles(figure)
    yield f'CPU: server {figure("server_cpu"):.0%}'
    yield f'clients {figure("clients_cpu"):.0%}'


def _percentiles(figure):
    yield f'p50 {duration(figure("p50_seconds"))}'
    yield f'p99 {duration(figure("p99_seconds"))}'


def _cold_remarks(how):
    return lambda figure: [
        f'{duration(figure(f"{how}_seconds_an_object"))} an object']


GRIDS = (
    Grid('light', 'Commits of light connections', 'txn_per_second',
         'connections', 'connection', _light_remarks),
    Grid('commit', 'Commits of stock clients', 'txn_per_second',
         'clients', 'client', _commit_remarks),
    Grid('cold', 'Cold reads by Connection.get', 'get_per_second',
         'clients', 'client', _cold_remarks('get')),
    Grid('cold', 'Cold reads from ghost to ghost', 'walk_per_second',
         'clients', 'client', _cold_remarks('walk')),
)


def show(document, console):
    tables.show_machine(document, console)
    for grid in GRIDS:
        for races in _groups(document, grid):
            tables.show_table(
                console, _title(document, races[0], grid.title),
                _table(document, races, grid))
    console.print(Text(KEY.format(baseline=document['baseline']), 'dim'))
    for race in tables.races_of(document, 'read-beside-commit'):
        tables.show_table(
            console,
            _title(document, race, 'Cold reads while another client commits'),
            tables.times_table(document, race, 'reads'))
        console.print(Text(tables.TIMES_KEY, 'dim'))


def _groups(document, grid):
    """The races that make one table."""
    groups = {}
    for race in tables.races_of(document, grid.workload):
        settings = document['races'][race]['settings']
        key = settings['loop'], settings['sync_latency']
        groups.setdefault(key, []).append(race)
    return groups.values()


def _title(document, race, what):
    settings = document['races'][race]['settings']
    transport = 'a unix socket' if settings['socket'] else 'TCP'
    return (f'{what}, {settings["loop"]} over {transport},'
            f' {added(settings["sync_latency"])}')


def _table(document, races, grid):
    table = tables.new_table()
    for race in races:
        settings = document['races'][race]['settings']
        table.add_column(
            count(settings[grid.setting], grid.noun), justify='right')
    for contestant in document['contestants']:
        table.add_row(contestant, *(
            _cell(document, race, contestant, grid) for race in races))
    return table


def _cell(document, race, contestant, grid):

    def figure(name, of_rounds=median):
        return of_rounds(figures(document, race, contestant, name))

    return tables.compared_cell(
        document, race, contestant, grid.figure, grid.remarks(figure))
