"""The campaign about ZEO: the table of 2009, on this machine.

Runs `fsync-time zeo` with the rows and columns of the post, over unix sockets
as it did: ZEO, ours, and RelStorage over PostgreSQL and SQLite where they are
installed.  Writes `zeo_2009.json` (all samples) and `zeo_2009.txt` (the
tables).  README.rst says how to read them.
"""

import sys

import running
from fsyncstorage.timing import document as documents
from fsyncstorage.timing.zeo import tables as zeotables

PARAMETERS = [
    'zeo', 'zeo', 'fsync-client', 'relstorage:postgresql', 'relstorage:sqlite',
    '--workload', 'write',
    '--workload', 'read',
    '--clients', '1,2,4,8,16',
    '--objects', '1,4,334',
    '--seconds', '1',
    '--socket',
]
ROUNDS = 3


def show_claims(document, console):
    """There is no claim, but that the table is whole."""
    gaps = [
        f'{contestant}: {figure} of {race["settings"]}'
        for number, race in enumerate(document['races'])
        for contestant in document['contestants']
        for figure in race['compared']
        if documents.result(document, number, contestant, figure) is None]
    for gap in gaps:
        console.print(f'was not measured: {gap}', soft_wrap=True)
    return not gaps


if __name__ == '__main__':
    sys.exit(running.campaign(
        'zeo_2009', __doc__, PARAMETERS, ROUNDS, zeotables.show, show_claims))
