"""The table of 2009: seconds that a transaction takes, by number of clients.

It has the columns and the rows of the post, and the numbers of then beside
those of now.  There is one for each number of objects in a transaction of
which both writes and reads were measured.
"""

from rich.text import Text

from .. import history
from .. import tables
from ..document import figures
from ..statistics import median
from .phrases import title

COLUMNS = ('write', 'cold', 'hot', 'steamin')

#: Of a column, and of the first one.
WIDTH, FIRST_WIDTH = 10, 8

NOTHING = (None,) * len(COLUMNS)

KEY = 'Seconds: the mean of a sample, and the median of the rounds. {source}\n'


def show(document, console):
    source = None
    for settings, reads in tables.series(document, 'read', 'clients'):
        writes = _writes(document, settings)
        clients = sorted(writes.keys() & reads.keys())
        if clients:
            historic, source = _historic(settings)
            console.print(Text(title(settings, 'A transaction'), 'bold'))
            _show(console, clients, {
                **_measured(document, clients, writes, reads),
                **historic.get(settings['objects'], {})})
    if source is not None:
        console.print(Text(KEY.format(source=source), 'dim'))


def _historic(settings):
    """What was measured then under such settings, and by whom."""
    if 'read_latency' in settings:  # no disk was read
        return {}, ''
    if 'network_delay' in settings:
        return history.ZEO_2009_REMOTE, history.ZEO_2009_REMOTE_SOURCE
    return history.ZEO_2009, history.ZEO_2009_SOURCE


def _writes(document, settings):
    """The races of writes that go with such reads, by number of clients."""
    found = {}
    for race in tables.races_of(document, 'write'):
        theirs = document['races'][race]['settings']
        if all(theirs.get(name) == value for name, value in settings.items()
               if name not in ('access', 'read_latency')):
            found[theirs['clients']] = race
    return found


def _measured(document, clients, writes, reads):
    """As the history is: by contestant and number of clients."""
    return {
        contestant: {
            number: [
                _median(document, races[number], contestant, column)
                for column in COLUMNS
                for races in [writes if column == 'write' else reads]]
            for number in clients}
        for contestant in document['contestants']}


def _median(document, race, contestant, column):
    values = figures(document, race, contestant, f'{column}_seconds')
    return median(values) if values else None


def _show(console, clients, rows):
    """As many side by side as there is room for."""
    names = list(rows)
    at_once = max(
        1, (console.width - FIRST_WIDTH) // (WIDTH * len(COLUMNS)))
    for first in range(0, len(names), at_once):
        block = names[first:first + at_once]
        lines = [
            _line('', (name.rjust(WIDTH * len(COLUMNS)) for name in block)),
            _line('clients', COLUMNS * len(block))]
        lines += [
            _line(number, (_put(value) for name in block
                           for value in rows[name].get(number, NOTHING)))
            for number in clients]
        console.print('\n'.join(lines), highlight=False, soft_wrap=True)
        console.print()


def _line(first, cells):
    return f'{first!s:{FIRST_WIDTH}}' + ''.join(
        f'{cell:>{WIDTH}}' for cell in cells)


def _put(value):
    return '-' if value is None else f'{value:.6f}'
