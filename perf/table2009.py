"""The table of 2009: seconds that a transaction takes, by number of clients.

It has the columns and the rows of the post, and shows the post's numbers below
those that were measured now.  There is one table for each number of objects in
a transaction for which both writes and reads were measured.
"""

from statistics import median

from rich.text import Text

from fsyncstorage.timing.results import tables
from fsyncstorage.timing.results.document import grouped
from fsyncstorage.timing.results.document import values
from fsyncstorage.timing.results.questions import conditions

from . import history
from . import questions

COLUMNS = ('write', 'cold', 'hot', 'steamin')

KEY = 'Seconds: the mean of a sample, and the median of the rounds. {source}\n'


def show_zeo(document, console):
    """Show it below the tables of `fsync-time zeo`."""
    questions.show(document, console)
    show(document, console)


def show(document, console):
    source = None
    for settings, reads in _by_clients(document, 'read'):
        place = {name: value for name, value in settings.items()
                 if name != 'access'}
        for theirs, writes in _by_clients(document, 'write'):
            clients = sorted(writes.keys() & reads.keys())
            if clients and place.items() <= theirs.items():
                then = history.ZEO_2009
                source = then['source']
                tables.show_table(
                    console, f'A transaction, {conditions(settings)}', _table(
                        clients, _measured(document, writes, reads),
                        then['seconds'].get(str(settings['objects']), {})))
    if source is not None:
        console.print(Text(KEY.format(source=source), 'dim'))


def _by_clients(document, workload):
    """Pairs: settings that races share, and races by number of clients."""
    return [
        (shared, {document['races'][race]['settings']['clients']: race
                  for race in races})
        for shared, races in grouped(document, workload, ['clients'])]


def _measured(document, writes, reads):
    """Figures in the form of the history: by contestant and clients."""
    return {
        contestant: {
            str(number): [
                _median(document, writes[number], contestant, 'write'),
                *(_median(document, reads[number], contestant, column)
                  for column in COLUMNS[1:])]
            for number in writes.keys() & reads.keys()}
        for contestant in document['contestants']}


def _median(document, race, contestant, column):
    found = values(document, race, contestant, f'{column}_seconds')
    return median(found.values()) if found else None


def _table(clients, *measured):
    """One storage below the other, with a row for each number of clients."""
    table = tables.new_table('clients', *COLUMNS)
    for rows in measured:
        for name, of_name in rows.items():
            table.add_row(Text(name, 'bold'))
            for number in clients:
                if seconds := of_name.get(str(number)):
                    table.add_row(f'  {number}', *(
                        '-' if value is None else f'{value:.6f}'
                        for value in seconds))
    return table
