"""What `fsync-time commits` shows, made from a document and nothing else."""

from rich.text import Text

from .. import tables
from ..wording import added
from ..wording import count
from ..wording import duration

KEY = f'Transactions a second: {tables.RATES_KEY}\n'


def show(document, console):
    tables.show_machine(document, console)
    tables.show_grids(document, console, [GRID])
    console.print(Text(KEY.format(baseline=document['baseline']), 'dim'))
    for race in tables.races_of(document, 'loads'):
        tables.show_table(
            console, _loads_title(document['races'][race]['settings']),
            tables.times_table(document, race, 'loads'))
        console.print(Text(tables.TIMES_KEY, 'dim'))


def _title(settings):
    tree = 'One shared tree' if settings['shared'] else 'One tree a thread'
    amount = (  # recorded ones may have a number
        count(settings['transactions'], 'transaction')
        if 'transactions' in settings else duration(settings['seconds']))
    return f'{tree}, {added(settings["sync_latency"])} ({amount} a sample)'


def _remarks(settings, figure):
    """How the syncs were shared, and the conflicts: if there is a point."""
    syncs = figure('syncs')
    # Recorded ones may have the number in the settings alone.
    transactions = settings.get('transactions') or figure('transactions')
    few, many = tables.ABOUT_ONE
    if syncs and transactions / syncs > many:
        yield f'{transactions / syncs:.1f} txn/sync'
    elif syncs and transactions / syncs < few:
        yield f'{syncs / transactions:.1f} syncs/txn'
    if conflicts := figure('conflicts'):
        yield f'{conflicts:,.0f} retries'


GRID = tables.Grid(
    'commits', _title, 'txn_per_second', 'threads',
    lambda threads: count(threads, 'thread'), _remarks)


def _loads_title(settings):
    return (
        f'loadBefore while {settings["committers"]} threads commit,'
        f' {added(settings["sync_latency"])}')
