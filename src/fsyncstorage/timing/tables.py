"""Tables in the terminal, made from a document and nothing else.

What one command shows is in its `tables`; here is what they share.
"""

import dataclasses
import typing

from rich import box
from rich.table import Table
from rich.text import Text

from . import document as documents
from . import quiet
from .statistics import CONFIDENCE
from .statistics import carried
from .statistics import median
from .wording import count
from .wording import duration
from .wording import milliseconds
from .wording import number
from .wording import times

RATIO_KEY = (
    'How many times {baseline} that is: the ratio of the medians, below it the'
    f' interval that holds the true one in {CONFIDENCE:.0%} of such'
    ' measurements. ~ marks a ratio that the noise does not carry: take it for'
    ' no difference, or measure more rounds. us CPU is what one took of the'
    ' processors, clients and server together: noise leaves it alone most.')

RATES_KEY = f'the median of the rounds, below it their range. {RATIO_KEY}'

TIMES_KEY = 'Milliseconds: the median of the rounds, below it their range.'

#: Syncs a commit, or commits a sync, are worth a line when they are not one.
ABOUT_ONE = (0.95, 1.05)


@dataclasses.dataclass(frozen=True)
class Grid:
    """A table of rates, with a column for each value of a setting."""

    workload: str
    #: Called with the settings that all columns share.
    title: typing.Callable
    #: The rate that is shown.
    figure: str
    setting: str
    #: Called with a value of the setting.
    heading: typing.Callable
    #: Called with the settings of a race and a function that gives the median
    #: of one of its figures, or None: what else there is to say.
    remarks: typing.Callable = lambda settings, figure: ()
    #: How the rate is put; None: as usual.
    put: typing.Callable | None = None


def show_grids(document, console, grids):
    for grid in grids:
        for shared, races in series(document, grid.workload, grid.setting):
            show_table(console, grid.title(shared),
                       _grid_table(document, grid, races))


def _grid_table(document, grid, races):
    table = new_table()
    for value in races:
        table.add_column(grid.heading(value), justify='right')
    for contestant in document['contestants']:
        cells = [_grid_cell(document, grid, race, contestant)
                 for race in races.values()]
        if any(cells):  # it takes part
            table.add_row(contestant, *cells)
    return table


def _grid_cell(document, grid, race, contestant):

    def figure(name, of_rounds=median):
        values = documents.figures(document, race, contestant, name)
        return of_rounds(values) if values else None

    return compared_cell(
        document, race, contestant, grid.figure, grid.remarks(
            document['races'][race]['settings'], figure), grid.put)


def percentiles(figure, prefix=''):
    yield f'p50 {duration(figure(f"{prefix}p50_seconds"))}'
    yield f'p99 {duration(figure(f"{prefix}p99_seconds"))}'


def races_of(document, workload):
    """The numbers of the races with this workload."""
    return [number for number, race in enumerate(document['races'])
            if race['workload'] == workload]


def series(document, workload, setting):
    """Races that differ in one setting: what they share, and they by it."""
    return [
        (shared, {document['races'][race]['settings'][setting]: race
                  for race in races})
        for shared, races in documents.grouped(document, workload, [setting])]


def show_machine(document, console):
    """What was measured on, and what was added: above everything else."""
    machine = document['machine']
    packages = ', '.join(
        f'{name} {version}' for name, version in machine['packages'].items())
    console.print(Text(
        f'{machine["cpus"]} CPUs ({machine["cpu_model"]}),'
        f' {machine["system"]} {machine["architecture"]}\n'
        f'{machine["python"]}, {packages}\n'
        f'Disk: {machine["file_system"]}; one sync takes'
        f' {duration(machine["sync_p50_seconds"])} (median)\n'
        f'{rounds(document)} after a warm-up; load average before the start'
        f' {machine["load_average"]:.1f}'))
    console.print(Text(
        f'{document["added"]} {quiet.warning(document)}'.rstrip(), 'bold'))
    console.print()


def show_figures(document, console, put=None):
    """All that contestants are compared by, of races that are not known."""
    show_machine(document, console)
    for position, race in enumerate(document['races']):
        table = new_table()
        for figure in race['compared']:
            table.add_column(figure, justify='right')
        for contestant in document['contestants']:
            table.add_row(contestant, *(
                compared_cell(
                    document, position, contestant, figure, put=put)
                for figure in race['compared']))
        show_table(console, ', '.join([race['workload'], *(
            f'{name} {value}' for name, value in race['settings'].items())]),
            table)


def rounds(document):
    """How many there are, and how many there should have been."""
    measured = max((one['round'] for one in document['samples']), default=0)
    said = count(document['rounds'], 'round')
    return said if measured == document['rounds'] else f'{measured} of {said}'


def compared_cell(
        document, race, contestant, figure, remarks=(), put=None):
    """The median of a figure, its ratio and ranges, and what else to say.

    A rate has the processor time of one below it.
    """
    found = documents.result(document, race, contestant, figure)
    if found is None:
        return ''  # interrupted before it was measured
    ratio = found['ratio'] if contestant != document['baseline'] else None
    put = put or (duration if figure.endswith('seconds') else number)
    cell = Text()
    cell.append(put(found['median']), 'bold')
    small = [_range(found, put)]
    if ratio:
        cell.append(f'  {times_or_noise(ratio)}',
                    'cyan' if carried(ratio) else 'dim')
        if ratio['interval']:
            small.append('-'.join(map(times, ratio['interval'])))
    if figure.endswith('per_second'):
        small.extend(_cpu_of_one(document, race, contestant, figure))
    small.extend(remarks)
    for line in small:
        cell.append(f'\n{line}', 'dim')
    return cell


def _cpu_of_one(document, race, contestant, figure):
    """That of all clients and the server; and how many times the baseline."""
    figure = figure.replace('per_second', 'cpu_seconds')
    used = documents.figures(document, race, contestant, figure)
    if used:
        ratio = documents.ratio(
            document, race, contestant, document['baseline'], figure)
        compared = (f' {times_or_noise(ratio)}'
                    if ratio and contestant != document['baseline'] else '')
        yield f'{median(used) * 1e6:,.0f} us CPU{compared}'


def mark(ratio):
    """Of one that the noise may have made."""
    return '' if carried(ratio) else '~'


def times_or_noise(ratio):
    return f'{mark(ratio)}{times(ratio["of_medians"])}'


def times_table(document, race, what):
    """How long each of them took; `what` is the figure that counts them."""
    table = new_table()
    for heading in ('p50', 'p99', 'max', what):
        table.add_column(heading, justify='right')
    for contestant in document['contestants']:
        counted = documents.figures(document, race, contestant, what)
        if counted:
            cells = [
                documents.result(document, race, contestant, figure)
                for figure in document['races'][race]['compared']]
            table.add_row(
                contestant, *map(_times_cell, cells),
                f'{median(counted):,.0f}')
    return table


def _times_cell(found):
    cell = Text()
    cell.append(milliseconds(found['median']), 'bold')
    cell.append(f'\n{_range(found, milliseconds)}', 'dim')
    return cell


def _range(found, wording):
    return f'{wording(found["min"])}-{wording(found["max"])}'


def show_table(console, title, table):
    """Nothing where nobody takes part."""
    if table.row_count:
        console.print(Text(title, 'bold'))
        console.print(table)
        console.print()


def new_table(heading='contestant'):
    table = Table(box=box.HORIZONTALS, pad_edge=False)
    table.add_column(heading, no_wrap=True)
    return table
