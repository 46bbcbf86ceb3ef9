"""The tables of `fsync-time files`, made from a document and nothing else."""

from rich.text import Text

from .. import history
from .. import tables
from ..document import figures
from ..document import result
from ..statistics import median
from ..wording import duration
from ..wording import number
from . import memory

KEY = (
    'Files a second: the median of the rounds, below it their range.'
    f' {tables.RATIO_KEY} A KB is 1,024 bytes, a MB 1,048,576.\n')

WAYS = {
    'warm': 'Warm: one file, which was sent before',
    'cold': 'Cold: files that the blob cache does not have yet',
}

TIMES_KEY = 'The median of the rounds, below it their range.\n'

MEMORY_KEY = (
    'The most that a process had in memory while files were sent, what it'
    ' shares with others included: the median of the rounds.\n')

HISTORY_KEY = 'Requests a second. {source}\n'


def show(document, console):
    tables.show_machine(document, console)
    for _, races in tables.series(document, 'files', 'size'):
        for way, title in WAYS.items():
            _show(document, console, races, title, _speed(way))
        console.print(Text(KEY.format(baseline=document['baseline']), 'dim'))
        _show(document, console, races,
              'Until the first byte of a cold file', _first_byte)
        console.print(Text(TIMES_KEY, 'dim'))
        _show_memory(document, console, races)
        console.print(Text(MEMORY_KEY, 'dim'))
    for heading, sizes, rows, source in history.FILES:
        table = _table([size << 10 for size in sizes], heading)
        for name, values in rows.items():
            table.add_row(name, *map(number, values))
        console.print(table)
        console.print(Text(HISTORY_KEY.format(source=source), 'dim'))


def _show(document, console, races, title, cell):
    table = _table(races)
    for name in document['contestants']:
        cells = [cell(document, race, name) for race in races.values()]
        if any(cells):  # it takes part
            table.add_row(name, *cells)
    tables.show_table(console, title, table)


def _table(sizes, heading='contestant'):
    table = tables.new_table(heading)
    for size in sizes:
        table.add_column(f'{size >> 10:,} KB', justify='right')
    return table


def _speed(way):

    def cell(document, race, contestant):
        return tables.compared_cell(
            document, race, contestant, f'{way}_per_second',
            remarks(document, race, contestant))

    def remarks(document, race, contestant):
        bytes_ = figures(
            document, race, contestant, f'{way}_bytes_per_second')
        yield f'{_megabytes(median(bytes_))}/s'

    return cell


def _first_byte(document, race, contestant):
    found = result(document, race, contestant, 'first_byte_seconds')
    if found is None:
        return ''
    return (f'{duration(found["median"])}\n'
            f'{duration(found["min"])}-{duration(found["max"])}')


def _show_memory(document, console, races):
    table = _table(races, 'process')
    for contestant in document['contestants']:
        for role in memory.ROLES:
            cells = [_memory(document, race, contestant, role)
                     for race in races.values()]
            if any(cells):
                table.add_row(f'{contestant}, {role}', *cells)
    tables.show_table(console, 'Memory', table)


def _memory(document, race, contestant, role):
    found = figures(document, race, contestant, memory.figure(role))
    return _megabytes(median(found)) if found else ''


def _megabytes(bytes_):
    return f'{number(bytes_ / (1 << 20))} MB'
