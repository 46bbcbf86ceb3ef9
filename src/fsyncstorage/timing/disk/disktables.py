"""What `fsync-time disk` shows; all of it comes from a document."""

from rich.text import Text

from fsyncstorage.commit.policies import POLICIES

from ..results import tables
from ..results.document import result
from ..results.document import values
from ..results.questions import SYNCS
from ..results.wording import number
from . import probing
from . import verdict

COMMITS_KEY = (
    'Measured with the storages themselves: small transactions, each committer'
    ' in a thread and with objects of its own; medians of the rounds.\n')

#: The number of the race between the ways to sync.
OF_SYNCS = 0


def show(document, console):
    tables.show_machine(document, console)
    tables.show_answers(document, console, SYNCS)
    tables.show_key(document, console)
    console.print(Text(f'FsyncStorage takes {document["baseline"]}.\n'))
    # Without all of the figures there is no verdict.
    found = figures(document) if document['complete'] else None
    no_disk = found and verdict.is_no_disk(found)
    if found:
        console.print(Text(f'{verdict.of_disk(found)}\n', 'bold'))
    tables.show_table(
        console, 'What that means: commits a second, by committers',
        _commits_table(document, no_disk))
    console.print(Text(COMMITS_KEY, 'dim'))
    if found:
        _show_settings(found, console)


def figures(document):
    """The figures of a complete document that the verdict needs."""
    machine = document['machine']
    return verdict.Figures(
        machine['file_system'],
        machine['load_average'] / machine['cpus'],
        *(result(document, OF_SYNCS, way, 'p50_seconds')['median']
          for way in (document['baseline'], probing.TWO_SYNCS.name)),
        {policy: {
            committers: values(
                document, race, f'fsync:{policy}', 'txn_per_second')
            for committers, race in _commits(document).items()}
         for policy in POLICIES})


def _commits_table(document, no_disk):
    races = _commits(document)
    may_lose = {f'fsync:{name}': policy.may_lose
                for name, policy in POLICIES.items()}
    table = tables.new_table('policy', *map(str, races))
    table.add_column('a power cut may take back')
    for name in document['contestants']:
        cells = [_rate(document, race, name) for race in races.values()]
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


def _commits(document):
    """The numbers of the races with commits, by number of committers."""
    return {
        race['settings']['threads']: number
        for number, race in enumerate(document['races'])
        if number != OF_SYNCS}


def _rate(document, race, contestant):
    found = result(document, race, contestant, 'txn_per_second')
    return number(found['median']) if found else ''
