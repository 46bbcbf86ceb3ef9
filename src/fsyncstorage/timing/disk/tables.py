"""What `fsync-time disk` shows, made from a document and nothing else."""

from rich.text import Text

from fsyncstorage.durability import POLICIES

from .. import tables
from ..document import result
from ..document import values
from ..wording import duration
from ..wording import number
from . import probing
from . import verdict

SYNCS_KEY = (
    f'Each writes {len(probing.RECORD)} bytes and waits until they are on the'
    ' disk. p50, p90 and p99 are medians of the rounds, max is the longest of'
    ' all. FsyncStorage takes {own}.\n')

COMMITS_KEY = (
    'Measured with the storages themselves: small transactions, each committer'
    ' in a thread and with objects of its own; medians of the rounds.\n')

SETTINGS_KEY = (
    '~ marks what the noise does not carry: take it for no difference. A'
    ' single round carries nothing.\n')

#: Which of a figure's rounds is shown, by heading.
_SHOWN = {'p50': 'median', 'p90': 'median', 'p99': 'median', 'max': 'max'}


def show(document, console):
    tables.show_machine(document, console)
    tables.show_table(
        console, 'What it takes to write and sync', _syncs_table(document))
    own = document['baseline']
    console.print(Text(SYNCS_KEY.format(own=own), 'dim'))
    # Without all of the figures there is no verdict.
    found = figures(document) if document['complete'] else None
    no_disk = found and verdict.is_no_disk(found)
    if found:
        console.print(Text(f'{verdict.of_disk(found)}\n', 'bold'))
    if found and not no_disk and not verdict.of_noise(found):
        console.print(Text(f'{verdict.of_company(found)}\n'))
    tables.show_table(
        console, 'What that means: commits a second, by committers',
        _commits_table(document, no_disk))
    console.print(Text(COMMITS_KEY, 'dim'))
    if found:
        _show_settings(found, console)


def figures(document):
    """Those of a complete document that the verdict needs."""
    own, two = document['baseline'], probing.TWO_SYNCS.name
    machine = document['machine']
    races = _races(document, 'sync', 'place')

    def sync(place, way, figure='p50_seconds'):
        return result(document, races[place], way, figure)['median']

    return verdict.Figures(
        machine['file_system'],
        machine['load_average'] / machine['cpus'],
        sync(probing.APPEND, own),
        sync(probing.APPEND, two),
        sync(probing.BESIDE, own),
        sync(probing.BESIDE, own, 'write_p50_seconds'),
        {policy: {
            committers: values(
                document, race, f'fsync:{policy}', 'txn_per_second')
            for committers, race in _races(
                document, 'commits', 'threads').items()}
         for policy in POLICIES})


def _syncs_table(document):
    table = tables.new_table('way', *_SHOWN)
    for place, race in _races(document, 'sync', 'place').items():
        table.add_row(Text(place, 'bold'))
        for way in document['contestants']:
            cells = [
                _cell(document, race, way, f'{heading}_seconds', duration,
                      of_rounds)
                for heading, of_rounds in _SHOWN.items()]
            if any(cells):
                table.add_row(f'  {way}', *cells)
    return table


def _commits_table(document, no_disk):
    races = _races(document, 'commits', 'threads')
    may_lose = {f'fsync:{name}': policy.may_lose
                for name, policy in POLICIES.items()}
    table = tables.new_table('policy', *map(str, races))
    table.add_column('a power cut may take back')
    for name in document['contestants']:
        cells = [_cell(document, race, name, 'txn_per_second', number)
                 for race in races.values()]
        if any(cells):
            table.add_row(
                name, *cells, 'anything: this is no disk' if no_disk
                else may_lose.get(name, ''))  # stock is there to compare
    return table


def _show_settings(found, console):
    if noise := verdict.of_noise(found):
        console.print(Text(f'{noise}\n', 'bold'))
        return
    table = tables.new_table('setting')
    table.add_column('why')
    for setting, why in verdict.settings(found).items():
        table.add_row(setting, why)
    tables.show_table(console, 'Settings to choose here', table)
    console.print(Text(SETTINGS_KEY, 'dim'))


def _races(document, workload, setting):
    """The numbers of the races with this workload, by a setting."""
    return {
        race['settings'][setting]: number
        for number, race in enumerate(document['races'])
        if race['workload'] == workload}


def _cell(document, race, contestant, figure, wording, of_rounds='median'):
    found = result(document, race, contestant, figure)
    return wording(found[of_rounds]) if found else ''
