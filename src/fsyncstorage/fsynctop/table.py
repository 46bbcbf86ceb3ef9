"""Rows on a terminal: as many as fit, and as many columns as fit.

Texts come from peers: they are printed without control characters, and without
the markup of rich.
"""

from rich import box
from rich.console import Console
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
        _headline(where, found, left_out), _longest_hold(found, left_out),
        _table(found[:most], width)]
    if hidden:
        parts.append(Text(f'and {hidden:,} more'))
    return Group(*parts)


def _headline(where: str, found: list[Row], left_out: int) -> Text:
    number = len(found) + left_out
    return Text(
        f'{where}: {_clients(number)},'
        f' {rate(total(found, "messages"))} requests/s,'
        f' {rate(total(found, "commits"))} commits/s,'
        f' {rate(total(found, "conflicts"))} conflicts/s',
        no_wrap=True, overflow='ellipsis')


def _clients(number: int) -> str:
    return f'{number:,} client{"s" * (number != 1)}'


def _longest_hold(found: list[Row], left_out: int) -> Text:
    # (A client that is left out cannot hold objects for longer: a server lists
    # first the clients that hold objects for longest.)
    holding = max(found, key=lambda row: row.held, default=None)
    if holding is None or holding.held < LONG:
        return Text('no objects are held for long')
    # (They may wait for these objects, or for something else: that is not
    # known.)
    waiting = sum(row.waited > 0 for row in found
                  if row.storage == holding.storage)
    return Text(
        f'{_name(holding)} holds {_objects(holding)} for'
        f' {duration(holding.held)}; {_clients(waiting)}'
        f'{" or more" if left_out else ""} waiting in all',
        style='bold yellow', no_wrap=True, overflow='ellipsis')


def _table(found: list[Row], width: int) -> Table:
    wide = width >= WIDE
    several = len({row.storage for row in found}) > 1
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, expand=True,
                  show_edge=False, padding=(0, 1, 0, 0))
    table.add_column('client', no_wrap=True, overflow='ellipsis', ratio=3,
                     min_width=12)
    if several:
        table.add_column('storage', no_wrap=True, overflow='ellipsis',
                         max_width=12)
    if wide:
        table.add_column('version', no_wrap=True, overflow='ellipsis',
                         max_width=14)
        table.add_column('reads', no_wrap=True)
    for heading in ('age', 'req/s', 'in/s', 'out/s',
                    *(['loads/s'] if wide else []), 'com/s', 'conf/s'):
        table.add_column(heading, justify='right', no_wrap=True)
    if wide:
        for heading in 'commits', 'conflicts':
            table.add_column(heading, justify='right', no_wrap=True)
    table.add_column('objects', no_wrap=True, overflow='ellipsis',
                     ratio=3 if wide else 2, min_width=12)
    for row in found:
        table.add_row(*_cells(row, wide, several),
                      style='bold' if row.held >= LONG else '')
    return table


def _cells(row: Row, wide: bool, several: bool) -> list[Text]:
    client, rates = row.client, row.rates
    cells = [_name(row) if wide else _short_name(row)]
    if several:
        cells.append(printable(row.storage))
    if wide:
        cells += [printable(client.version or 'of ZEO'), _reads(row)]
    cells.append(duration(client.seconds))
    cells += ([''] * (6 if wide else 5) if rates is None else [
        rate(rates.messages), rate(rates.received), rate(rates.sent),
        *([rate(rates.loads)] if wide else []),
        rate(rates.commits), rate(rates.conflicts)])
    if wide:
        cells += [f'{client.commits:,}', f'{client.conflicts:,}']
    cells.append(_held(row, wide))
    return [Text(cell) for cell in cells]


def _name(row: Row) -> str:
    return printable(f'{row.client.label} {row.client.address}'.strip())


def _short_name(row: Row) -> str:
    return printable(row.client.label or row.client.address)


def _reads(row: Row) -> str:
    return 'locally' if row.client.reads_locally else ''


def _objects(row: Row) -> str:
    first = row.transaction
    assert first is not None
    oids = ', '.join(map(printable, first.oids))
    more = ', ...' if first.objects > len(first.oids) else ''
    return (f'{first.objects:,} object{"s" * (first.objects != 1)}'
            + (f' ({oids}{more})' if oids else ''))


def _held(row: Row, wide: bool) -> str:
    first = row.transaction
    if first is None:
        return ''
    since = duration(first.seconds)
    if not first.holds:
        return f'{since} {printable(first.state) if wide else "waits"}'
    others = (len(row.client.transactions) - 1
              + row.client.transactions_left_out)
    return (f'{since} holds {_objects(row) if wide else first.objects}'
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


def print_once(where: str, found: list[Row], left_out: int) -> None:
    """Print it once, without trailing blanks, if it cannot be redrawn."""
    console = Console(highlight=False)
    with console.capture() as printed:
        console.print(picture(where, found, left_out, console.width, None))
    for line in printed.get().rstrip('\n').split('\n'):
        print(line.rstrip())
