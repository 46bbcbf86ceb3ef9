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

from ..terminal import printable

BAR = 16    # columns


def show(found, by=None):
    """Print a document; with `by`, one part of it.

    Without the blanks with which rich fills the lines, so that they can be
    compared.
    """
    console = Console(highlight=False)
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
                'days': self.days, 'users': self.users, 'paths': self.paths,
                }.items():
            if self.found[name] is not None:
                part()
        if self.found['damage']:
            self.damage()

    # Lines

    def line(self, text='', style=''):
        self.console.print(self.text(text, style), soft_wrap=True)

    def text(self, words, style=''):
        """Words of a file as the terminal can show them."""
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
        self.line('What is shown is what comes before. fsync-check shows all'
                  ' of the damage, and can save what is sound.')

    # Tables

    def table(self, title, heading, *numbers):
        """A table with a column of names, and columns of numbers."""
        self.line()
        self.line(title, 'bold')
        made = Table(box=box.HORIZONTALS, pad_edge=False)
        made.add_column(heading, overflow='fold')
        for each in numbers:
            made.add_column(each, justify='right', no_wrap=True)
        return made

    def row(self, table, name, *numbers, style=''):
        table.add_row(self.text(name), *map('{:,}'.format, numbers),
                      style=style)

    def rest(self, table, part, *names):
        """The row of what is not listed."""
        left = part['count'] - len(part['listed'])
        if left:
            self.row(table, f'{left:,} more',
                     *(part['others'][name] for name in names), style='dim')

    def totals(self):
        sizes = self.found['bytes']
        table = self.table('What is in it', '', 'bytes', 'share')
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

    def blobs(self):
        blobs = self.found['blobs']
        table = self.table('Blobs', '', 'files', 'bytes')
        for words, name in {
                'of current revisions': 'now', 'of older revisions': 'old',
                'orphans, without a record': 'orphans'}.items():
            self.row(table, words, *blobs[name].values())
        self.console.print(table)
        for each in blobs['orphans_listed']:
            self.line(f'orphan: {each["file"]}')
        if blobs['without_file']:
            self.line(f'{blobs["without_file"]:,} records of blobs have no'
                      ' file: run fsync-check --blobs')
        part = blobs['classes']
        if part['listed']:
            table = self.table(
                'Current blobs, by the class of what refers to them',
                'class', 'files', 'bytes')
            for each in part['listed']:
                self.row(table, each['class'], each['files'], each['bytes'])
            self.rest(table, part, 'files', 'bytes')
            self.console.print(table)

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
        """Once of each object."""
        ways = {short(row['oid']): row['path'] and way(row) for row in rows}
        if not any(ways.values()):
            return
        self.line()
        self.line('How they are reached from the root', 'bold')
        grid = Table.grid('object', 'way', padding=(0, 2))
        for oid, words in ways.items():
            grid.add_row(f' {oid}', self.text(words or 'not reached'))
        self.console.print(grid)

    def unreachable(self):
        part = self.found['unreachable']
        if not part['objects']:
            self.line()
            self.line('Every object can be reached from the root.')
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
        if self.found['unread']:
            self.line(
                f'Or fewer: {self.found["unread"]:,} records could not be'
                ' read, and may refer to some of them.')

    # Days and writers

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

    def users(self):
        self.writers('By user', 'user', self.found['users'])

    def paths(self):
        self.writers('By path, the first word of the description', 'path',
                     self.found['paths'])

    def writers(self, title, kind, part):
        names = 'transactions', 'records', 'all'
        table = self.table(title, kind, 'transactions', 'records', 'bytes')
        for each in part['listed']:
            self.row(table, each[kind], *map(each.get, names))
        self.rest(table, part, *names)
        self.console.print(table)


def share(size, whole):
    return f'{100 * size / whole:.1f} %' if whole else ''


def short(oid):
    """As ZODB shows it in its errors."""
    return oid_repr(bytes.fromhex(oid))


def step(row):
    """An object, without the module of its class."""
    return f'{row["class"].rpartition(".")[2]}({short(row["oid"])})'


def way(row):
    steps = [step(each) for each in row['path']]
    if row['path_left_out']:
        half = len(steps) // 2
        steps[half:half] = [f'({row["path_left_out"]:,} more)']
    return ' > '.join(steps)
