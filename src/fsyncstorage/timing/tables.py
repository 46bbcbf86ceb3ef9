"""The tables in the terminal, made from a document and nothing else."""

from rich import box
from rich.table import Table
from rich.text import Text

from . import quiet
from .document import figures
from .document import ratio
from .document import result
from .statistics import CONFIDENCE
from .statistics import carried
from .statistics import median
from .wording import added
from .wording import count
from .wording import duration
from .wording import milliseconds
from .wording import number
from .wording import size
from .wording import times

RATIO_KEY = (
    'How many times {baseline} that is: the ratio of the medians, below it the'
    f' interval that holds the true one in {CONFIDENCE:.0%} of such'
    ' measurements. ~ marks a ratio that the noise does not carry: take it for'
    ' no difference, or measure more rounds.')

COMMITS_KEY = (
    'Transactions a second: the median of the rounds, below it their range.'
    f' {RATIO_KEY}')

TIMES_KEY = 'Milliseconds: the median of the rounds, below it their range.'

#: Syncs a commit, or commits a sync, are worth a line when they are not one.
ABOUT_ONE = (0.95, 1.05)


def show_commits(document, console):
    show_machine(document, console)
    for races in _commits_groups(document):
        show_table(console, _commits_title(document, races),
                   _commits_table(document, races))
    key = COMMITS_KEY.format(baseline=document['baseline'])
    console.print(Text(f'{key}\n', 'dim'))
    for race in races_of(document, 'loads'):
        show_table(console, _loads_title(document, race),
                   times_table(document, race, 'loads'))
        console.print(Text(TIMES_KEY, 'dim'))


def show_machine(document, console):
    """What was measured on, and what was added: above everything else."""
    machine = document['machine']
    packages = ', '.join(
        f'{name} {version}' for name, version in machine['packages'].items())
    console.print(Text(
        f'{machine["cpus"]} CPUs ({machine["cpu_model"]}),'
        f' {machine["system"]} {machine["architecture"]}\n'
        f'{machine["python"]}, {packages}\n'
        f'Disk: {machine["file_system"]}; one sync takes'
        f' {duration(machine["sync_p50_seconds"])} (median)\n'
        f'{rounds(document)} after a warm-up; load average before the start'
        f' {machine["load_average"]:.1f}'))
    console.print(Text(
        f'{document["added"]} {quiet.warning(document)}'.rstrip(), 'bold'))
    console.print()


def show_figures(document, console, put=None):
    """All that contestants are compared by, of races that are not known."""
    show_machine(document, console)
    for position, race in enumerate(document['races']):
        table = new_table()
        for figure in race['compared']:
            table.add_column(figure, justify='right')
        for contestant in document['contestants']:
            table.add_row(contestant, *(
                compared_cell(
                    document, position, contestant, figure, put=put)
                for figure in race['compared']))
        show_table(console, ', '.join([race['workload'], *(
            f'{name} {value}' for name, value in race['settings'].items())]),
            table)


def rounds(document):
    repeats = document.get('repeats', 1)
    measured = max((one['rounds'] for one in document['results']), default=0)
    return (
        f'{measured} of ' if measured < document['rounds'] else '') + count(
            document['rounds'], 'round') + (
                f' of {repeats} samples each' if repeats > 1 else '')


def races_of(document, workload):
    """The numbers of the races with this workload."""
    return [
        index for index, race in enumerate(document['races'])
        if race['workload'] == workload
    ]


def series(document, workload, setting):
    """Races that differ in one setting: what they share, and they by it."""
    found = []
    for race in races_of(document, workload):
        shared = dict(document['races'][race]['settings'])
        value = shared.pop(setting)
        for others, races in found:
            if others == shared:
                races[value] = race
                break
        else:
            found.append((shared, {value: race}))
    return found


def _commits_groups(document):
    """The races that make one table: they differ in their threads only."""
    groups = {}
    for race in races_of(document, 'commits'):
        settings = document['races'][race]['settings']
        key = (settings['shared'], settings.get('size'),
               settings['sync_latency'])
        groups.setdefault(key, []).append(race)
    return groups.values()


def _commits_title(document, races):
    settings = document['races'][races[0]]['settings']
    tree = 'One shared tree' if settings['shared'] else 'One tree a thread'
    amount = (
        count(settings['transactions'], 'transaction')
        if 'transactions' in settings else duration(settings['seconds']))
    more = (f', {size(settings["size"])} more a transaction'
            if 'size' in settings else '')
    return (
        f'{tree}{more}, {added(settings["sync_latency"])}'
        f' ({amount} a sample)')


def _commits_table(document, races):
    settings = [document['races'][race]['settings'] for race in races]
    table = new_table()
    for setting in settings:
        table.add_column(count(setting['threads'], 'thread'), justify='right')
    for contestant in document['contestants']:
        row = [_commits_cell(document, race, contestant) for race in races]
        if any(row):  # else it could not be slowed
            table.add_row(contestant, *row)
    return table


def _commits_cell(document, race, contestant):
    return compared_cell(
        document, race, contestant, 'txn_per_second',
        _remarks(document, race, contestant))


def compared_cell(
        document, race, contestant, figure, remarks=(), put=None):
    """The median of a figure, its ratio and ranges, and what else to say.

    A rate has the processor time of one below it.
    """
    found = result(document, race, contestant, figure)
    if found is None:
        return ''  # interrupted before it was measured
    times_baseline = found['ratio']
    compared = times_baseline and contestant != document['baseline']
    put = put or (duration if figure.endswith('seconds') else number)
    cell = Text()
    cell.append(put(found['median']), 'bold')
    if compared:
        cell.append(*_ratio(times_baseline))
    small = [_range(found, put)]
    if compared and times_baseline['interval']:
        small.append('-'.join(map(times, times_baseline['interval'])))
    if figure.endswith('per_second'):
        small.extend(_cpu_of_one(document, race, contestant, figure))
    small.extend(remarks)
    for line in small:
        cell.append(f'\n{line}', 'dim')
    return cell


def _ratio(found):
    return (f'  {times_or_noise(found)}',
            'cyan' if carried(found) else 'dim')


def times_or_noise(ratio):
    """How many times; with a mark, if the noise may have made it."""
    mark = '' if carried(ratio) else '~'
    return f'{mark}{times(ratio["of_medians"])}'


def _cpu_of_one(document, race, contestant, figure):
    """That of all clients and the server; and how many times the baseline."""
    figure = figure.replace('per_second', 'cpu_seconds')
    used = figures(document, race, contestant, figure)
    if used:
        said = f'{median(used) * 1e6:,.0f} us CPU'
        compared = ratio(
            document, race, contestant, document['baseline'], figure)
        if compared and contestant != document['baseline']:
            said += ' ' + times_or_noise(compared)
        yield said


def _range(found, wording):
    return f'{wording(found["min"])}-{wording(found["max"])}'


def _remarks(document, race, contestant):
    """How the syncs were shared, and the conflicts: if there is a point."""
    syncs = median(figures(document, race, contestant, 'syncs'))
    transactions = (
        document['races'][race]['settings'].get('transactions')
        or median(figures(document, race, contestant, 'transactions')))
    few, many = ABOUT_ONE
    if syncs and transactions / syncs > many:
        yield f'{transactions / syncs:.1f} txn/sync'
    elif syncs and transactions / syncs < few:
        yield f'{syncs / transactions:.1f} syncs/txn'
    conflicts = median(figures(document, race, contestant, 'conflicts'))
    if conflicts:
        yield f'{conflicts:,.0f} retries'


def _loads_title(document, race):
    settings = document['races'][race]['settings']
    return (
        f'loadBefore while {settings["committers"]} threads commit,'
        f' {added(settings["sync_latency"])}')


def times_table(document, race, what):
    """How long each of them took; `what` is the figure that counts them."""
    table = new_table()
    for heading in ('p50', 'p99', 'max', what):
        table.add_column(heading, justify='right')
    for contestant in document['contestants']:
        counted = figures(document, race, contestant, what)
        if counted:
            table.add_row(
                contestant,
                *(_times_cell(result(document, race, contestant, figure))
                  for figure in document['races'][race]['compared']),
                f'{median(counted):,.0f}')
    return table


def _times_cell(found):
    cell = Text()
    cell.append(milliseconds(found['median']), 'bold')
    cell.append(f'\n{_range(found, milliseconds)}', 'dim')
    return cell


def show_table(console, title, table):
    """Nothing where nobody takes part."""
    if table.row_count:
        console.print(Text(title, 'bold'))
        console.print(table)
        console.print()


def new_table(heading='contestant'):
    table = Table(box=box.HORIZONTALS, pad_edge=False)
    table.add_column(heading, no_wrap=True)
    return table
