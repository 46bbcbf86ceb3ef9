"""Reports and errors, in words."""

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text
from ZEO.Exceptions import ServerException
from ZODB.POSException import POSKeyError

from ..check.terminal import printable
from ..check.terminal import without_blanks
from ..format.classes import BLOB

# Most classes that are listed.
MOST_ROWS = 20
# Below this share of a pack, the remaining time cannot be estimated.
_TOO_EARLY = 0.02


def of_error(error):
    if isinstance(error, POSKeyError):
        return (f'an object refers to {error}, which is not there; nothing was'
                ' changed, and fsync-check --refs shows where')
    if isinstance(error, ServerException) and len(error.args) == 2:
        # The name of the class, and its arguments.
        name, arguments = error.args
        if isinstance(arguments, (list, tuple)) and arguments:
            return str(arguments[-1])
        return f'the server refuses: {name} {arguments or ""}'.rstrip()
    return str(error) or type(error).__name__


def of_pack(found):
    if found['outcome'] == 'packed':
        yield (f'{found["path"]}: packed from {found["before"]:,} to'
               f' {found["after"]:,} bytes in {duration(found["seconds"])}')
    elif found['outcome'] is None:  # a server that is not ours
        yield f'{found["path"]}: packed'
    else:
        yield f'{found["path"]}: nothing can be freed'


def of_status(found):
    path, pack, last = found['path'], found['pack'], found['last']
    if pack:
        left = ''
        if pack['share'] > _TOO_EARLY:
            seconds = pack['seconds'] * (1 / pack['share'] - 1)
            left = f'; about {duration(seconds)} left'
        yield (f'{path}: a pack is under way, in the phase {pack["phase"]!r};'
               f' {pack["share"]:.0%} in {duration(pack["seconds"])}{left}')
    else:
        yield f'{path}: no pack is under way'
    if last:
        ago = f'{duration(last["ago"])} ago'
        if last['outcome'] == 'packed':
            yield (f'the last one ended {ago}: packed from'
                   f' {last["before"]:,} to {last["after"]:,} bytes in'
                   f' {duration(last["seconds"])}')
        elif last['outcome'] == 'nothing':
            yield f'the last one ended {ago}: nothing could be freed'
        else:
            yield (f'the last one ended {ago}, and nothing was changed:'
                   f' {last["outcome"]}')
    if found['forecast']:
        yield 'a dry run is under way'


def of_forecast(found):
    """The lines of a forecast, above the table."""
    old, freed = found['old_size'], found['freed']
    yield (f'{found["path"]}: a pack would free {freed:,} of {old:,} bytes'
           f' ({100 * freed / old:.1f} %), and take about'
           f' {duration(found["seconds"])}')
    if found['objects']:
        yield (f'{found["objects"]:,} objects go that nothing in this file'
               ' refers to')
    if found['blobs'] is not None:
        yield (f'{found["blobs"]:,} blobs with {found["blob_bytes"]:,} bytes'
               ' would go')
    elif any(row['class'] == BLOB for row in found['rows']):
        yield ('Blobs are among what would go, and their files would stay: no'
               ' blob directory was given (--blobs for a file, blob-dir for a'
               ' server)')
    needed, free = found['needed'], found['free']
    if needed:
        yield f'It needs room for {needed:,} bytes' + (
            '' if free is None else f', and {free:,} are free'
            if needed <= free else f'. ONLY {free:,} ARE FREE')


def show_forecast(found):
    for line in of_forecast(found):
        print(printable(line))
    if found['rows']:
        show_table(found)


def show_table(found):
    console = Console(highlight=False)
    table = Table(box=box.HORIZONTALS, pad_edge=False)
    table.add_column('class', overflow='fold')
    for heading in 'objects', 'records', 'bytes':
        table.add_column(heading, justify='right', no_wrap=True)
    rows = [[row['class'], row['objects'], row['records'], row['bytes']]
            for row in found['rows']]
    if len(rows) > MOST_ROWS:
        others = rows[MOST_ROWS - 1:]
        rows[MOST_ROWS - 1:] = [['(others)', *map(sum, zip(*(
            figures for _, *figures in others)))]]
    rows.append(
        ['(headers of transactions)', None, None, found['transactions']])
    rows.append(['together', found['objects'], found['records'],
                 found['freed']])
    for name, *figures in rows:
        table.add_row(Text(printable(name)), *(
            '' if each is None else f'{each:,}' for each in figures))
    with without_blanks(console):
        console.print('What would be freed, by class')
        console.print(table)


def duration(seconds):
    if seconds < 10:
        return f'{seconds:.1f} s'
    if seconds < 120:
        return f'{seconds:.0f} s'
    if seconds < 7200:
        return f'{seconds / 60:.0f} min'
    return f'{seconds / 3600:.1f} h'
