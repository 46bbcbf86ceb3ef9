"""The tables of `fsync-time wsgi`, made from a document and nothing else."""

from rich.text import Text

from .. import history
from .. import statistics
from .. import tables
from ..document import figures
from ..document import values
from ..statistics import median
from ..wording import count
from ..wording import duration
from ..wording import number
from ..wording import times
from ..zeo.phrases import title

FIGURE = 'requests_per_second'

KEY = (
    'Requests a second: the median of the rounds, below it their range.'
    f' {tables.RATIO_KEY} 1 x 4 is one process with 4 threads. p50 and p99'
    ' are of one request. Clients make a connection for each request, and'
    ' share the processors with the servers: 100 % of CPU is one of them.')

#: What tells one column from the next.
LAYOUT = 'server', 'processes', 'threads'


def show(document, console):
    tables.show_machine(document, console)
    for shared, races in _grouped(document):
        tables.show_table(
            console, title(shared, _requests(shared)),
            _table(document, shared, races))
    key = KEY.format(baseline=document['baseline'])
    console.print(Text(f'{key}\n{history.WSGI_2009_SOURCE}\n', 'dim'))


def _grouped(document):
    """What the races of a table share, and they by their layouts."""
    found = []
    for race in tables.races_of(document, 'wsgi'):
        shared = dict(document['races'][race]['settings'])
        layout = tuple(shared.pop(name) for name in LAYOUT)
        if not found or found[-1][0] != shared:
            found.append((shared, {}))
        found[-1][1][layout] = race
    return found


def _requests(settings):
    written = (f', {settings["write"]} % of them writes'
               if settings['write'] else '')
    return f'{count(settings["concurrency"], "request")} at a time{written}'


def _table(document, shared, races):
    table = tables.new_table()
    for server, processes, threads in races:
        table.add_column(f'{server}\n{processes} x {threads}', justify='right')
    first = next(iter(races.values()))
    for contestant in document['contestants']:
        cells = [_cell(document, race, first, contestant)
                 for race in races.values()]
        if any(cells):  # it could be slowed
            table.add_row(contestant, *cells)
    historic = history.WSGI_2009.get(shared['concurrency'])
    if historic and not shared['write']:
        table.add_row('2009', *(
            number(historic[processes]) if processes in historic else ''
            for server, processes, threads in races))
    return table


def _cell(document, race, first, contestant):

    def figure(name):
        return median(figures(document, race, contestant, name))

    def remarks():
        yield f'p50 {duration(figure("p50_seconds"))}'
        yield f'p99 {duration(figure("p99_seconds"))}'
        yield f'clients: {figure("loaders_cpu"):.0%} CPU'
        if race != first:
            yield from _beside_first(document, race, first, contestant)

    return tables.compared_cell(
        document, race, contestant, FIGURE, remarks())


def _beside_first(document, race, first, contestant):
    ratio = statistics.ratio(
        values(document, race, contestant, FIGURE),
        values(document, first, contestant, FIGURE))
    if ratio:
        mark = '' if statistics.carried(ratio) else '~'
        yield f'{mark}{times(ratio["of_medians"])} column 1'
