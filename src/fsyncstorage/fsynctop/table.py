"""Rows on a terminal: as many as fit, and as many columns as fit.

Texts come from peers: they are printed without control characters, and without
the markup of rich.
"""

from collections.abc import Callable
from typing import Any
from typing import NamedTuple

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from ..check.terminal import printable
from .rows import LONG
from .rows import Row
from .rows import total

# Terminals with this many columns have room for all that is known.
WIDE = 120
# Lines in addition to the rows: two above the table, its heading with a rule,
# and the line about what is left out.
_OTHER_LINES = 6


def picture(where: str, found: list[Row], left_out: int, width: int,
            height: int | None) -> Group:
    """All that is shown; if `height` is given, in at most that many lines."""
    most = len(found)
    if height is not None:
        most = min(most, max(1, height - _OTHER_LINES))
    hidden = len(found) - most + left_out
    parts: list[Table | Text] = [
        Text(line, style, no_wrap=True, overflow='ellipsis')
        for line, style in (_headline(where, found, left_out),
                            _longest_hold(found, left_out))]
    parts.append(_table(found[:most], width >= WIDE))
    if hidden:
        parts.append(Text(f'and {hidden:,} more'))
    return Group(*parts)


def _headline(where: str, found: list[Row], left_out: int) -> tuple[str, str]:
    return (f'{where}: {_clients(len(found) + left_out)},'
            f' {rate(total(found, "messages"))} requests/s,'
            f' {rate(total(found, "commits"))} commits/s,'
            f' {rate(total(found, "conflicts"))} conflicts/s', '')


def _clients(number: int) -> str:
    return f'{number:,} client{"s" * (number != 1)}'


def _longest_hold(found: list[Row], left_out: int) -> tuple[str, str]:
    # (A client that is left out cannot hold objects for longer: a server lists
    # first the clients that hold objects for longest.)
    holding = max(found, key=lambda row: row.held, default=None)
    if holding is None or holding.held < LONG:
        return 'no objects are held for long', ''
    # (They may wait for these objects, or for something else: that is not
    # known.)
    waiting = sum(row.waited > 0 for row in found
                  if row.storage == holding.storage)
    return (f'{_name(holding)} holds {_objects(holding)} for'
            f' {duration(holding.held)}; {_clients(waiting)}'
            f'{" or more" if left_out else ""} waiting in all', 'bold yellow')


class _Column(NamedTuple):

    heading: str
    cell: Callable[[Row], str]
    #: Options of the column of rich; None: it has numbers.
    options: dict[str, Any] | None = None


def _columns(wide: bool, several: bool) -> list[_Column]:
    """`several`: there are several storages."""
    def rates(heading: str, name: str) -> _Column:
        return _Column(heading, lambda row: (
            '' if row.rates is None else rate(row.rates[name])))

    columns = [_Column('client', _name if wide else _short_name,
                       {'ratio': 3, 'min_width': 12})]
    if several:
        columns.append(_Column(
            'storage', lambda row: row.storage, {'max_width': 12}))
    if wide:
        columns += [
            _Column('version', lambda row: row.client['version'] or 'of ZEO',
                    {'max_width': 14}),
            _Column('reads', lambda row: (
                'locally' if row.client['reads_locally'] else ''), {})]
    columns += [
        _Column('age', lambda row: duration(row.client['seconds'])),
        rates('req/s', 'messages'), rates('in/s', 'received'),
        rates('out/s', 'sent')]
    if wide:
        columns.append(rates('loads/s', 'loads'))
    columns += [rates('com/s', 'commits'), rates('conf/s', 'conflicts')]
    if wide:
        columns += [
            _Column('commits', lambda row: f'{row.client["commits"]:,}'),
            _Column('conflicts', lambda row: f'{row.client["conflicts"]:,}')]
    columns.append(_Column('objects', lambda row: _held(row, wide),
                           {'ratio': 3 if wide else 2, 'min_width': 12}))
    return columns


def _table(found: list[Row], wide: bool) -> Table:
    columns = _columns(wide, len({row.storage for row in found}) > 1)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, expand=True,
                  show_edge=False, padding=(0, 1, 0, 0))
    for each in columns:
        options: dict[str, Any] = (
            {'justify': 'right'} if each.options is None
            else {'overflow': 'ellipsis', **each.options})
        table.add_column(each.heading, no_wrap=True, **options)
    for row in found:
        table.add_row(*(Text(printable(each.cell(row))) for each in columns),
                      style='bold' if row.held >= LONG else '')
    return table


def _name(row: Row) -> str:
    client = row.client
    return printable(f'{client["label"]} {client["address"]}'.strip())


def _short_name(row: Row) -> str:
    return row.client['label'] or row.client['address']


def _objects(row: Row) -> str:
    first = row.transaction
    assert first is not None
    number, oids = first['objects'], ', '.join(map(printable, first['oids']))
    more = ', ...' if number > len(first['oids']) else ''
    return (f'{number:,} object{"s" * (number != 1)}'
            + (f' ({oids}{more})' if oids else ''))


def _held(row: Row, wide: bool) -> str:
    first = row.transaction
    if first is None:
        return ''
    since = duration(first['seconds'])
    if not first['holds']:
        return f'{since} {first["state"] if wide else "waits"}'
    others = (len(row.client['transactions']) - 1
              + row.client['transactions_left_out'])
    return (f'{since} holds {_objects(row) if wide else first["objects"]}'
            + (f', and {others:,} more' if others else ''))


def rate(number: float) -> str:
    """A number per second, in three or four characters."""
    for unit in '', 'k', 'M':
        if number < 9.95:
            return f'{number:.1f}{unit}' if number else '0'
        if number < 999.5:
            return f'{number:.0f}{unit}'
        number /= 1000
    return f'{number:.0f}G'


def duration(seconds: float) -> str:
    if seconds < 99.95:
        return f'{seconds:.1f}s'
    if seconds < 5940:
        return f'{seconds / 60:.0f}m'
    if seconds < 48 * 3600:
        return f'{seconds / 3600:.0f}h'
    return f'{seconds / 86400:,.0f}d'
