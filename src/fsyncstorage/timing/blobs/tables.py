"""The tables of `fsync-time blobs`, made from a document and nothing else."""

from rich.text import Text

from .. import tables
from ..wording import count
from ..wording import number
from ..wording import size
from ..zeo.tables import title

KEY = (
    f'Blobs a second: {tables.RATES_KEY} p50 and p99 are of one blob. A MB is'
    ' 1,048,576 bytes.\n')


def show(document, console):
    tables.show_machine(document, console)
    tables.show_grids(document, console, GRIDS)
    console.print(Text(KEY.format(baseline=document['baseline']), 'dim'))


def _grid(workload, way, what):

    def remarks(settings, figure):
        speed = figure(f'{way}_bytes_per_second') / (1 << 20)
        yield f'{number(speed)} MB/s'
        yield from tables.percentiles(figure, f'{way}_')

    return tables.Grid(
        workload,
        lambda shared: title(
            shared, f'{what}, {count(shared["clients"], "client")}'),
        f'{way}_per_second', 'size', size, remarks)


GRIDS = (
    _grid('blob-read', 'cold', 'Cold reads: the blob cache is empty'),
    _grid('blob-read', 'cached',
          'Cached reads: the file is in the blob cache'),
    _grid('blob-read', 'direct',
          'Direct reads: the file is where the storage has it'),
    _grid('blob-write', 'write', 'Commits of a new blob'),
)
