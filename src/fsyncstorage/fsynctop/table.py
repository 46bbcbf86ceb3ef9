"""What clients did between two answers, on a terminal: as many rows as fit,
and as many columns as fit.

The busiest come first.  Before them, clients that hold objects for long, even
if they do little else; then clients that wait for objects, as the first ones
may be the reason.

Texts come from peers: they are printed without control characters, and without
the markup of rich.
"""

import functools
from collections.abc import Callable
from collections.abc import Iterator
from typing import Any
from typing import NamedTuple

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from ..check.terminal import printable

#: The clients, by the names of their storages: as the server has written them.
Answer = dict[str, dict[str, Any]]
Client = dict[str, Any]

# Seconds: no commit should hold its objects for longer.
LONG = 1.0
# The counts of a client, by the headings of their rates.
_RATES = {'req/s': 'messages', 'in/s': 'received', 'out/s': 'sent',
          'loads/s': 'loads', 'com/s': 'commits', 'conf/s': 'conflicts'}
# Terminals with this many columns have room for all that is known.
WIDE = 120
# Lines in addition to the rows: two above the table, its heading with a rule,
# and the line about what is left out.
_OTHER_LINES = 6


class Row(NamedTuple):

    storage: str
    client: Client
    #: By the names of the counts, per second.  None: they are not known yet.
    rates: dict[str, float] | None

    @property
    def name(self) -> str:
        return printable(
            f'{self.client["label"]} {self.client["address"]}'.strip())

    @property
    def transaction(self) -> dict[str, Any] | None:
        """The one that has held its objects for longest; if none holds any,
        one that waits."""
        return next(iter(self.client['transactions']), None)

    @property
    def held(self) -> float:
        """Seconds for which this transaction has held its objects."""
        first = self.transaction
        return first['seconds'] if first and first['holds'] else 0.0

    @property
    def waited(self) -> float:
        return max((each['seconds'] for each in self.client['transactions']
                    if not each['holds']), default=0.0)

    @property
    def order(self) -> tuple[float, ...]:
        return (self.held if self.held >= LONG else 0.0,
                self.waited if self.waited >= LONG else 0.0,
                self.rates['messages'] if self.rates else 0.0,
                self.client['messages'])


def rows(now: Answer, before: Answer) -> list[Row]:
    found = []
    for name, storage in now.items():
        known = {client['number']: client for client in before.get(
            name, {'clients': ()})['clients']}
        found += [Row(name, client, _rates(client, known.get(
            client['number']))) for client in storage['clients']]
    return sorted(found, key=lambda row: row.order, reverse=True)


def _rates(now: Client, before: Client | None) -> dict[str, float] | None:
    """Differences of counts, divided by the difference of the ages of the
    client: so it does not matter how long the answers were under way."""
    if before is None or before['address'] != now['address']:
        # (After a restart, the server may give the same number to another.)
        return None
    seconds = now['seconds'] - before['seconds']
    if seconds <= 0:
        return None
    return {name: max(0, now[name] - before[name]) / seconds
            for name in _RATES.values()}


def picture(where: str, found: list[Row], left_out: int, width: int,
            height: int | None) -> Group:
    """All that is shown; if `height` is given, in at most that many lines."""
    most = len(found) if height is None else max(1, height - _OTHER_LINES)
    hidden = max(0, len(found) - most) + left_out
    parts: list[Table | Text] = [
        Text(line, style, no_wrap=True, overflow='ellipsis')
        for line, style in (_headline(where, found, left_out),
                            _longest_hold(found, left_out))]
    parts.append(_table(found[:most], width >= WIDE))
    if hidden:
        parts.append(Text(f'and {hidden:,} more'))
    return Group(*parts)


def _headline(where: str, found: list[Row], left_out: int) -> tuple[str, str]:
    requests, commits, conflicts = (
        rate(sum(row.rates[name] for row in found if row.rates))
        for name in ('messages', 'commits', 'conflicts'))
    return (f'{where}: {_number(len(found) + left_out, "client")},'
            f' {requests} requests/s, {commits} commits/s,'
            f' {conflicts} conflicts/s', '')


def _number(number: int, of: str) -> str:
    return f'{number:,} {of}{"s" * (number != 1)}'


def _longest_hold(found: list[Row], left_out: int) -> tuple[str, str]:
    # (A client that is left out cannot hold objects for longer: a server lists
    # first the clients that hold objects for longest.)
    if not found or found[0].held < LONG:
        return 'no objects are held for long', ''
    holding = found[0]
    # (They may wait for these objects, or for something else: that is not
    # known.)
    waiting = sum(row.waited > 0 for row in found
                  if row.storage == holding.storage)
    return (f'{holding.name} holds {_objects(holding)} for'
            f' {duration(holding.held)}; {_number(waiting, "client")}'
            f'{" or more" if left_out else ""} waiting in all', 'bold yellow')


def _columns(found: list[Row], is_wide: bool) -> Iterator[
        tuple[str, Callable[[Row], str], dict[str, Any]]]:
    """Of each: its heading, the text for a row, and options of rich."""
    number = {'justify': 'right'}
    # (rich cuts a cell that has no room.)
    yield 'client', lambda row: row.name, {'ratio': 3, 'min_width': 12}
    if len({row.storage for row in found}) > 1:
        yield 'storage', lambda row: row.storage, {'max_width': 12}
    if is_wide:
        yield ('version', lambda row: row.client['version'] or 'of ZEO',
               {'max_width': 14})
        yield ('reads', lambda row: (
            'locally' if row.client['reads_locally'] else ''), {})
    yield 'age', lambda row: duration(row.client['seconds']), number
    for heading, name in _RATES.items():
        if is_wide or name != 'loads':
            yield heading, functools.partial(_rate, name), number
    yield 'objects', _held, {'ratio': 3, 'min_width': 12}


def _rate(name: str, row: Row) -> str:
    return rate(row.rates[name]) if row.rates else ''


def _table(found: list[Row], is_wide: bool) -> Table:
    columns = list(_columns(found, is_wide))
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, expand=True,
                  show_edge=False, padding=(0, 1, 0, 0))
    for heading, _, options in columns:
        table.add_column(heading, no_wrap=True, **options)
    for row in found:
        table.add_row(*(Text(printable(cell(row))) for _, cell, _ in columns),
                      style='bold' if row.held >= LONG else '')
    return table


def _objects(row: Row) -> str:
    first = row.transaction
    assert first is not None
    number, oids = first['objects'], ', '.join(map(printable, first['oids']))
    more = ', ...' if number > len(first['oids']) else ''
    return _number(number, 'object') + (f' ({oids}{more})' if oids else '')


def _held(row: Row) -> str:
    first = row.transaction
    if first is None:
        return ''
    since = duration(first['seconds'])
    if not first['holds']:
        return f'{since} {first["state"]}'
    return f'{since} holds {_objects(row)}'


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
