"""What others measured long ago, for comparison.

The figures are in `history.json`, each with who measured it, when and on what.
"""

import json
import pathlib

from rich.text import Text

from fsyncstorage.timing.results import tables
from fsyncstorage.timing.results.wording import number

_ALL = json.loads(pathlib.Path(__file__).with_suffix('.json').read_text())

#: Transactions a second, by contestant: of one thread.
COMMITS_2004 = _ALL['commits_2004']

#: Seconds, by objects in a transaction, storage and number of clients: of a
#: write, and of a cold, hot and steamin read.
ZEO_2009, ZEO_2009_REMOTE = _ALL['zeo_2009'], _ALL['zeo_2009_remote']

#: A sentence with the figures.
WSGI_2009 = _ALL['wsgi_2009']


def show_files(console):
    """Requests for files a second: by size, and by what sent them."""
    for one in _ALL['files']:
        table = tables.new_table(one['year'], *(
            kilobytes(size << 10) for size in one['kilobytes']))
        for name, values in one['per_second'].items():
            table.add_row(name, *map(number, values))
        console.print(table)
        console.print(Text(f'Requests a second. {one["source"]}\n', 'dim'))


def kilobytes(size):
    """The text for a size: in 2004, sizes were no whole megabytes."""
    return f'{size >> 10:,} KB'
