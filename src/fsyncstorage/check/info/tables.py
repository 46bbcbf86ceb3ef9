"""The report for people: tables on standard output.

Names come from the file: they are shown without control characters, and
without the markup of rich.
"""

from rich import box
from rich.bar import Bar
from rich.console import Console
from rich.table import Table
from rich.text import Text
from ZODB.utils import oid_repr

from ...format.classname import CUT_OFF
from ..terminal import printable
from .graph import MOST_STEPS

BAR = 16    # columns
# The width if the output is no terminal: nothing is folded.
UNFOLDED = 10_000


def show(found, by=None):
    """Print a document; with `by`, one part of it.

    The blanks with which rich fills up the lines are left out, so that the
    output can be compared.
    """
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = UNFOLDED
    with console.capture() as printed:
        Report(found, console).print(by)
    for line in printed.get().rstrip('\n').split('\n'):
        print(line.rstrip())


class Report:

    def __init__(self, found, console):
        self.found = found
        self.console = console

    def print(self, by):
        self.headline()
        if by is None:
            self.totals()
        for name, part in {
                'classes': self.classes, 'blobs': self.blobs,
                'largest': self.objects, 'unreachable': self.unreachable,
                'days': self.days}.items():
            if self.found[name] is not None:
                part()
            elif name == 'unreachable' and self.found['largest'] is not None:
                self.not_known()
        if self.found['damage']:
            self.damage()

    # Lines

    def line(self, text='', style=''):
        self.console.print(self.text(text, style), soft_wrap=True)

    def text(self, words, style=''):
        """Text from a file, as the terminal can show it."""
        encoding = self.console.encoding
        return Text(printable(words).encode(
            encoding, 'backslashreplace').decode(encoding), style)

    def headline(self):
        found = self.found
        since = found['since']
        self.line(f'{found["file"]}: {found["size"]:,} bytes')
        if since:
            self.line(f'Only what was written since {since} UTC')
        if found['first']:
            self.line(f'{found["transactions"]:,} transactions, from'
                      f' {found["first"]["time"]} to'
                      f' {found["last"]["time"]} UTC')
        else:
            self.line('No transactions')
        self.line(f'{found["objects"]:,} objects,'
                  f' {found["records"]:,} records')
        if found['replaced']:
            self.line('A pack has replaced the file meanwhile: these are the'
                      ' figures of the file before')
        if found['end'] < found['size'] and not found['damage']:
            self.line(
                f'{found["size"] - found["end"]:,} bytes at the end are no'
                ' finished transaction: they are being written, or the torn'
                ' tail of a crash')

    def damage(self):
        damage = self.found['damage']
        tid = f', tid {damage["tid"]}' if damage['tid'] else ''
        self.line()
        self.line(f'DAMAGED at {damage["position"]}{tid}:'
                  f' {damage["reason"]}.', 'bold red')
        self.line('Only what is before the damage is shown. fsync-check shows'
                  ' all of the damage, and can save what is sound.')

    # Tables

    def table(self, title, heading, *numbers):
        """A table with a column of names, and columns of numbers."""
        self.line()
        self.line(title, 'bold')
        made = Table(box=box.HORIZONTALS, pad_edge=False)
        made.add_column(heading, overflow='fold')
        for each in numbers:
            made.add_column(each, justify='right', overflow='fold')
        return made

    def row(self, table, name, *numbers, style=''):
        table.add_row(self.text(name), *map('{:,}'.format, numbers),
                      style=style)

    def rest(self, table, part, *names):
        """Add a row for what is not listed."""
        left = part['count'] - len(part['listed'])
        if left:
            self.row(table, f'{left:,} more',
                     *(part['others'][name] for name in names), style='dim')

    def totals(self):
        sizes = self.found['bytes']
        table = self.table(
            'What was written' if self.found['since'] else 'What is in it',
            '', 'bytes', 'share')
        for words, name in {
                'data of the current revisions': 'current',
                'data of older revisions': 'old',
                'headers of records': 'record_headers',
                'headers of transactions, users, descriptions':
                    'transactions'}.items():
            table.add_row(words, f'{sizes[name]:,}',
                          share(sizes[name], sizes['all']))
        self.console.print(table)

    def classes(self):
        part = self.found['classes']
        names = 'objects', 'current', 'records', 'all'
        table = self.table(
            'By class', 'class', 'objects', 'bytes now', 'records',
            'bytes in all')
        for each in part['listed']:
            self.row(table, each['class'], *map(each.get, names))
        self.rest(table, part, *names)
        self.console.print(table)
        if part['without_name']:
            self.line(f'{part["without_name"]:,} records are of other classes'
                      ' than the first ones: only those are listed by name.')

    def blobs(self):
        blobs = self.found['blobs']
        table = self.table('Blobs', '', 'files', 'bytes')
        for words, name in {
                'of current revisions': 'now', 'of older revisions': 'old',
                'without a record': 'orphans',
                'other files: being written, or left over': 'others'}.items():
            self.row(table, words, *blobs[name].values())
        self.console.print(table)
        for line in self.about_blobs(blobs):
            self.line(line)
        part = blobs['classes']
        if part['listed']:
            table = self.table(
                'Current blobs, by the class of what refers to them',
                'class', 'files', 'bytes')
            for each in part['listed']:
                self.row(table, each['class'], each['files'], each['bytes'])
            self.rest(table, part, 'files', 'bytes')
            self.console.print(table)

    def about_blobs(self, blobs):
        for each in blobs['orphans_listed']:
            yield f'orphan: {each["file"]}'
        if blobs['packed']:
            yield ('A pack is under way, or was killed: files without a record'
                   ' may be those that it removes.')
        if blobs['without_file']:
            yield (f'{blobs["without_file"]:,} records of blobs have no file:'
                   ' run fsync-check --blobs')
        if not blobs['some_belong'] and (
                blobs['without_file'] or blobs['orphans']['files']):
            yield ('No file belongs to a record: is this the blob directory of'
                   ' another database?')
        for each in blobs['unread']['listed']:
            yield f'could not be read: {each["file"]}: {each["reason"]}'
        left = blobs['unread']['count'] - len(blobs['unread']['listed'])
        if left:
            yield f'and {left:,} more that could not be read'

    # Objects

    def objects(self):
        largest, most = self.found['largest'], self.found['most_revised']
        self.object_table(
            'The largest objects, with all their revisions', largest)
        self.object_table('The objects that were written most often', most)
        self.paths_from_root([*largest, *most])

    def object_table(self, title, rows):
        if not rows:
            return
        table = self.table(title, 'object', 'revisions', 'bytes now',
                           'bytes in all')
        for each in rows:
            self.row(table, step(each), each['revisions'], each['current'],
                     each['all'])
        self.console.print(table)

    def paths_from_root(self, rows):
        """The path of each object, listed once."""
        ways = {short(row['oid']): way(row) for row in rows}
        if not any(row['reached'] for row in rows):
            return
        self.line()
        self.line('How they are reached from the root', 'bold')
        grid = Table.grid(padding=(0, 2))
        grid.add_column(overflow='fold')
        grid.add_column(overflow='fold')
        for oid, words in ways.items():
            grid.add_row(f' {oid}', self.text(words))
        self.console.print(grid)

    def unreachable(self):
        part = self.found['unreachable']
        since = ' that was written since' if self.found['since'] else ''
        if not part['objects']:
            self.line()
            self.line(
                f'Every object{since} can be reached from the root.')
            return
        table = self.table(
            'Objects that cannot be reached from the root', 'class',
            'objects', 'bytes now')
        for each in part['classes']['listed']:
            self.row(table, each['class'], each['objects'], each['current'])
        self.rest(table, part['classes'], 'objects', 'current')
        if part['classes']['count'] > 1:
            self.row(table, 'together', part['objects'], part['current'])
        self.console.print(table)
        self.line(f'With old revisions, {part["all"]:,} bytes: a pack removes'
                  ' them.')

    def not_known(self):
        self.line()
        self.line(
            'Which objects cannot be reached from the root is not known:'
            + (' the file is damaged.' if self.found['damage']
               else f' {self.found["unread"]:,} records could not be read, and'
               ' may refer to any.' if self.found['unread']
               else ' there is no root.'))

    # Days

    def days(self):
        part = self.found['days']
        left = part['count'] - len(part['listed'])
        table = self.table(
            f'The last {len(part["listed"]):,} of {part["count"]:,} days'
            if left else 'By day', 'day', 'transactions', 'records', 'bytes')
        most = max((each['all'] for each in part['listed']), default=0)
        if not self.console.options.ascii_only:
            table.add_column('', width=BAR)
        for each in part['listed']:
            cells = [Text(each['day']), *(
                f'{each[name]:,}' for name in (
                    'transactions', 'records', 'all'))]
            table.add_row(*cells, *(
                [Bar(most, 0, each['all'], width=BAR)]
                if len(table.columns) > len(cells) else []))
        self.console.print(table)


def share(size, whole):
    return f'{100 * size / whole:.1f} %' if whole else ''


def short(oid):
    """As ZODB shows it in its errors."""
    return oid_repr(bytes.fromhex(oid))


def step(row):
    """An object, without the module of its class."""
    name = row['class']
    last = name.removesuffix(CUT_OFF).rpartition('.')[2]
    if name.endswith(CUT_OFF):
        last += CUT_OFF
    return f'{last}({short(row["oid"])})'


def way(row):
    if not row['reached']:
        return 'unknown' if row['reached'] is None else 'not reached'
    if row['path'] is None:
        return f'by a path of more than {MOST_STEPS:,} objects'
    steps = [step(each) for each in row['path']]
    if row['path_left_out']:
        half = len(steps) // 2
        steps[half:half] = [f'({row["path_left_out"]:,} more)']
    return ' > '.join(steps)
