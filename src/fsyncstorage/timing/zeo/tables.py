"""The tables of `fsync-time zeo`, made from a document and nothing else."""

import functools

from rich.text import Text

from .. import pinning
from .. import tables
from ..wording import added
from ..wording import count
from . import reading

KEY = (
    f'A second: {tables.RATES_KEY} p50 and p99 are of a transaction, or of one'
    ' object that is read. 100 % of CPU is one processor.\n')


_PINNED = {
    pinning.SAME: 'server and clients on the same processor',
    pinning.ACROSS: 'server and clients on different processors',
}


def title(settings, what):
    return ', '.join([
        what, *conditions(settings), added(settings['sync_latency'])])


def conditions(settings):
    transport = 'a unix socket' if settings['socket'] else 'TCP'
    return [
        *_of_reads(settings),
        f'{settings["loop"]} over {transport}',
        *_pinned(settings)]


def _of_reads(settings):
    if 'access' in settings:
        yield f'by {reading.ACCESSES[settings["access"]]}'
    if 'objects' in settings:
        yield f'{count(settings["objects"], "object")} a transaction'


def _pinned(settings):
    if settings['pin'] != pinning.FREE:
        yield _PINNED[settings['pin']]


def show(document, console):
    tables.show_machine(document, console)
    tables.show_grids(document, console, GRIDS)
    console.print(Text(KEY.format(baseline=document['baseline']), 'dim'))
    for race in tables.races_of(document, 'read-beside-commit'):
        tables.show_table(
            console,
            title(document['races'][race]['settings'],
                  'Cold reads while another client commits'),
            tables.times_table(document, race, 'reads'))
        console.print(Text(tables.TIMES_KEY, 'dim'))


def _light_remarks(settings, figure):
    yield from tables.percentiles(figure)
    yield from _busy(figure, 'server', 'driver')
    # What no server should do.
    if wrong := figure('tids_not_rising', max):
        yield f'{count(wrong, "tid")} not rising'
    if late := figure('invalidations_late', max):
        yield f'{count(late, "invalidation")} late'


def _write_remarks(settings, figure):
    yield from tables.percentiles(figure)
    yield from _busy(figure, 'server', 'clients')


def _cold_remarks(settings, figure):
    return tables.percentiles(figure, 'cold_')


def _busy(figure, *names):
    """That of a server that is not ours or ZEO's is not known."""
    known = [f'{name} {busy:.0%}' for name in names
             if (busy := figure(f'{name}_cpu')) is not None]
    known[0] = f'CPU: {known[0]}'
    return known


def _grid(workload, what, figure, setting, noun, remarks):
    return tables.Grid(
        workload, functools.partial(title, what=what), figure, setting,
        lambda number: count(number, noun), remarks)


GRIDS = (
    _grid('light', 'Commits of light connections', 'txn_per_second',
          'connections', 'connection', _light_remarks),
    _grid('write', 'Commits', 'txn_per_second', 'clients', 'client',
          _write_remarks),
    _grid('read', 'Cold reads of objects', 'cold_per_second', 'clients',
          'client', _cold_remarks),
    _grid('read', 'Prefetches and reads of objects', 'prefetch_per_second',
          'clients', 'client', lambda settings, figure: ()),
)
