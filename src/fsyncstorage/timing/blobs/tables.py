"""The tables of `fsync-time blobs`, made from a document and nothing else."""

from rich.text import Text

from .. import tables
from ..document import figures
from ..statistics import median
from ..wording import count
from ..wording import duration
from ..wording import number
from ..wording import size
from ..zeo.phrases import title

KEY = (
    'Blobs a second: the median of the rounds, below it their range.'
    f' {tables.RATIO_KEY} p50 and p99 are of one blob. A MB is 1,048,576'
    ' bytes.\n')

#: Workload, way, and what a table of them is called.
TITLES = (
    ('blob-read', 'cold', 'Cold reads: the blob cache is empty'),
    ('blob-read', 'cached', 'Cached reads: the file is in the blob cache'),
    ('blob-read', 'direct',
     'Direct reads: the file is where the storage has it'),
    ('blob-write', 'write', 'Commits of a new blob'),
)


def show(document, console):
    tables.show_machine(document, console)
    for workload, way, what in TITLES:
        for shared, races in tables.series(document, workload, 'size'):
            clients = count(shared['clients'], 'client')
            tables.show_table(
                console, title(shared, f'{what}, {clients}'),
                _table(document, races, way))
    console.print(Text(KEY.format(baseline=document['baseline']), 'dim'))


def _table(document, races, way):
    table = tables.new_table()
    for bytes_ in races:
        table.add_column(size(bytes_), justify='right')
    for contestant in document['contestants']:
        cells = [_cell(document, race, contestant, way)
                 for race in races.values()]
        if any(cells):  # it takes part
            table.add_row(contestant, *cells)
    return table


def _cell(document, race, contestant, way):
    return tables.compared_cell(
        document, race, contestant, f'{way}_per_second',
        _remarks(document, race, contestant, way))


def _remarks(document, race, contestant, way):

    def figure(name):
        return median(figures(document, race, contestant, f'{way}_{name}'))

    yield f'{number(figure("bytes_per_second") / (1 << 20))} MB/s'
    yield f'p50 {duration(figure("p50_seconds"))}'
    yield f'p99 {duration(figure("p99_seconds"))}'
