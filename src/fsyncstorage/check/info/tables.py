"""The report for people: tables on standard output.

Names come from the file: they are shown without control characters, and
without the markup of rich.
"""

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..terminal import printable
from ..terminal import size_in_words
from ..terminal import without_blanks

# The width if the output is no terminal: nothing is folded.
UNFOLDED = 10_000


def show(found):
    """Print a document."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = UNFOLDED
    with without_blanks(console):
        Report(found, console).print()


class Report:

    def __init__(self, found, console):
        self.found = found
        self.console = console

    def print(self):
        self.headline()
        self.totals()
        self.classes()
        if self.found['blobs']:
            self.blobs()
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
        self.line(f'{found["file"]}: {size_in_words(found["size"])}')
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


def share(size, whole):
    return f'{100 * size / whole:.1f} %' if whole else ''
