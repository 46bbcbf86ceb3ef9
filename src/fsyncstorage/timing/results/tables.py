"""Tables in the terminal, made from a document alone."""

import functools
from statistics import median

from rich import box
from rich.table import Table
from rich.text import Text

from . import document as documents
from .estimates import CONFIDENCE
from .estimates import carried
from .questions import QUESTIONS
from .questions import conditions
from .wording import count
from .wording import duration
from .wording import listed
from .wording import number
from .wording import span
from .wording import times

NO_VERDICT = 'no verdict'
KEY = (
    'In a cell: the median of the rounds, how many times {baseline} that is,'
    f' and below it the range of the rounds. {NO_VERDICT.capitalize()}: the'
    ' noise of this run does not carry a difference'
    f' ({CONFIDENCE:.0%} of such measurements do not call equal ones'
    ' different); measure more rounds. us CPU is what one took of the'
    ' processors, clients and server together: noise leaves it alone most. p99'
    ' is of one, a MB is 1,048,576 bytes. --json has all that was measured.\n')

#: More do not fit into a terminal beside the names of contestants.
MOST_COLUMNS = 4

#: Syncs a commit, or commits a sync, are shown when they are not about one.
ABOUT_ONE = (0.95, 1.05)

#: Settings with the number of threads or clients that commit at a time.
COMMITTERS = 'threads', 'clients', 'connections'

#: What no server should do is shown even if it happened only once.
COUNTED = (
    ('conflicts', 'retry', 'retries'),
    ('tids_not_rising', 'tid not rising', 'tids not rising'),
    ('invalidations_late', 'invalidation late', 'invalidations late'))


def show(document, console, questions=QUESTIONS):
    """The tables of all races: by question; for races without a question, the
    figures by which contestants are compared."""
    show_machine(document, console)
    asked = {question.workload for question in questions}
    for question in questions:
        show_answers(document, console, question)
    for position, race in enumerate(document['races']):
        if race['workload'] not in asked:
            _show_columns(
                document, console,
                f'{race["workload"]}, {listed(race["settings"])}',
                'contestant',
                [(figure, position, figure) for figure in race['compared']])
    show_key(document, console)


def show_key(document, console):
    console.print(Text(KEY.format(baseline=document['baseline']), 'dim'))


def show_answers(document, console, question):
    show = functools.partial(_show_columns, document, console, put=(
        lambda value: number(value * question.scale)))
    for shared, races in documents.grouped(
            document, question.workload, [question.setting]):
        said = conditions(shared)
        if question.setting is None:
            show(f'{question.words} {question.up}, {said}', 'contestant', [
                (name, race, figure) for race in races
                for name, figure in question.figures.items()])
            continue
        for name, figure in question.figures.items():
            show(
                ' '.join(filter(None, (question.words, name, f'({said})'))),
                question.along, [
                    (question.put(_settings(document, race)[question.setting]),
                     race, figure) for race in races])


def _show_columns(document, console, title, heading, columns, put=None):
    """A column is a heading, the number of a race, and a figure."""
    for at in range(0, len(columns), MOST_COLUMNS):
        shown = columns[at:at + MOST_COLUMNS]
        _show_cells(document, console, title, heading, shown,
                    functools.partial(_cell, document, put=put))
        _show_cells(
            document, console, f'{title}: what it took', heading,
            [each for each in shown if each[-1].endswith('per_second')],
            functools.partial(_remarks, document))


def _show_cells(document, console, title, heading, columns, cell):
    """A row for each contestant that takes part."""
    table = new_table(heading, *(heading for heading, *_ in columns))
    for contestant in document['contestants']:
        cells = [cell(race, contestant, figure) for _, race, figure in columns]
        if any(cells):
            table.add_row(contestant, *cells)
    show_table(console, title, table)


def _settings(document, race):
    return document['races'][race]['settings']


def _cell(document, race, contestant, figure, put):
    """The median of a figure, its ratio and its range."""
    found = documents.result(document, race, contestant, figure)
    if found is None:
        return ''  # interrupted before it was measured
    ratio = found['ratio'] if contestant != document['baseline'] else None
    put = put or (duration if figure.endswith('seconds') else number)
    cell = Text()
    cell.append(put(found['median']), 'bold')
    if ratio:
        cell.append(f'  {verdict(ratio)}', 'cyan' if carried(ratio) else 'dim')
    cell.append(f'\n{span(put(found["min"]), put(found["max"]))}', 'dim')
    return cell


def _remarks(document, race, contestant, figure):
    """What else is known about a rate, in lines."""
    one = figure.removesuffix('per_second')
    settings = _settings(document, race)

    def known(name, of_rounds=median):
        """In older results, a setting may say what is counted now."""
        values = documents.values(document, race, contestant, name)
        return of_rounds(values.values()) if values else settings.get(name)

    said = []
    if (used := known(f'{one}cpu_seconds')) is not None:
        ratio = documents.ratio(
            document, race, contestant, f'{one}cpu_seconds')
        compared = (f' {verdict(ratio)}'
                    if ratio and contestant != document['baseline'] else '')
        said.append(f'{used * 1e6:,.0f} us CPU{compared}')
    if speed := known(f'{one}bytes_per_second'):
        said.append(f'{number(speed / (1 << 20))} MB/s')
    if took := known(f'{one}p99_seconds') or known('p99_seconds'):
        said.append(f'p99 {duration(took)}')
    said.extend(_sharing(settings, known('syncs'), known('transactions')))
    for what, noun, plural in COUNTED:
        if found := known(what, max):
            said.append(count(found, noun, plural))
    return '\n'.join(said)


def _sharing(settings, syncs, transactions):
    """How commits shared syncs, if they did, and if they waited for them."""
    few, many = ABOUT_ONE
    if syncs and transactions:
        shared = transactions / syncs
        if many < shared and waited(shared, max(
                settings.get(name, 0) for name in COMMITTERS)):
            yield f'{shared:.1f} txn/sync'
        elif shared < few:
            yield f'{1 / shared:.1f} syncs/txn'


def waited(commits_per_sync, committers):
    """If more commits than committers share a sync, some did not wait."""
    return commits_per_sync <= committers * ABOUT_ONE[1]


def verdict(ratio):
    """None of a ratio that the noise may have made."""
    return times(ratio['of_medians']) if carried(ratio) else NO_VERDICT


def show_machine(document, console):
    """The machine, and the delays that were added: above all tables."""
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
    console.print(Text(f'{document["added"]}\n'.lstrip(), 'bold'))


def rounds(document):
    """How many were measured, and how many should have been."""
    measured = max((one['round'] for one in document['samples']), default=0)
    said = count(document['rounds'], 'round')
    return said if measured == document['rounds'] else f'{measured} of {said}'


def show_table(console, title, table):
    """A table without rows is not shown."""
    if table.row_count:
        console.print(Text(title, 'bold'))
        console.print(table)
        console.print()


def new_table(heading, *numbers):
    """A table with a column of names, and columns of numbers."""
    table = Table(box=box.HORIZONTALS, pad_edge=False)
    table.add_column(heading, no_wrap=True)
    for each in numbers:
        table.add_column(each, justify='right')
    return table
