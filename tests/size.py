"""How large is each room, and may it be so large?  python -m tests.size

Every file of code that git has belongs to one room: the one that has the
longest matching path in `ceilings.txt`.  (A path that ends in `/*` has the
files of a directory, and none of the directories in it.)  Rows whose names
begin with `all-` add rooms up, but for those that begin with `in-work`: what
grows beside a room whose place it will take.

Lines count all of a file, with comments and empty lines.  For the package,
tokens are printed beside them: a room that has fewer lines and the same tokens
was made denser, and not simpler.

It fails where a room is above its ceiling, and where a directory of code
belongs to no room.  A ceiling is raised only in a commit that lowers another
one by as much, and says why.
"""

import io
import pathlib
import re
import subprocess
import sys
import tokenize
import typing

HOME = pathlib.Path(__file__).parents[1]
CEILINGS = pathlib.Path(__file__).with_name('ceilings.txt')

CODE = '.py', '.c', '.h', '.js', '.css', '.html', '.xml', '.zcml', '.go'
#: In the tests, texts are code: they are run.
TEXTS_OF_TESTS = '.txt', '.rst', '.test'
WORDS = '.rst'
#: Python tokens that are layout, or for people.
NOT_COUNTED = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT,
    tokenize.DEDENT, tokenize.ENCODING, tokenize.ENDMARKER}


class Row(typing.NamedTuple):
    name: str
    #: Lines, or words of documents, at most; None: they are only shown.
    ceiling: int | None
    paths: tuple[str, ...]

    @property
    def is_sum(self) -> bool:
        return self.name.startswith('all-')

    @property
    def is_in_work(self) -> bool:
        return self.name.startswith('in-work')

    def fit(self, path: str) -> int:
        """The length of the longest path of this row that has that file; 0 if
        there is none."""
        directory = path.rpartition('/')[0]
        return max((len(each) for each in self.paths if each in (
            path, directory + '/*') or path.startswith(each + '/')), default=0)


class Size:

    def __init__(self):
        self.lines = self.tokens = 0


def rows(text):
    """The rows of `ceilings.txt`: a name, a ceiling, paths."""
    for line in text.splitlines():
        words = line.partition('#')[0].split()
        if words:
            name, ceiling, *paths = words
            yield Row(name, None if ceiling == '-' else int(ceiling),
                      tuple(paths))


def tracked():
    return subprocess.run(
        ['git', 'ls-files'], cwd=HOME, check=True, text=True,
        stdout=subprocess.PIPE).stdout.splitlines()


def is_code(path):
    return path.endswith(CODE) or (
        path.startswith('tests/') and path.endswith(TEXTS_OF_TESTS)
        and path != 'tests/ceilings.txt')


def room_of(path, table):
    return max((row for row in table if not row.is_sum and row.fit(path)),
               key=lambda row: row.fit(path), default=None)


def tokens(path, text):
    if not path.endswith('.py'):
        return len(re.findall(r'\w+|[^\w\s]', text))
    return sum(token.type not in NOT_COUNTED
               for token in tokenize.generate_tokens(
                   io.StringIO(text).readline))


def measured(paths, table):
    """Row -> Size; and the directories of code that belong to no room."""
    sizes = {row: Size() for row in table}
    homeless = set()
    for path in paths:
        is_text = path.startswith('docs/') and path.endswith(WORDS)
        if not (is_text or is_code(path)) or not (HOME / path).is_file():
            continue  # (git may not know yet that it was removed)
        text = (HOME / path).read_text()
        room = room_of(path, table)
        if room is None:
            homeless.add(str(pathlib.PurePath(path).parent))
            continue
        sums = [] if room.is_in_work else [
            row for row in table if row.is_sum and row.fit(path)]
        for row in [room, *sums]:
            if is_text:
                sizes[row].lines += len(text.split())
            else:
                sizes[row].lines += text.count('\n')
                if path.startswith('src/'):
                    sizes[row].tokens += tokens(path, text)
    return sizes, sorted(homeless)


def report(sizes, table):
    """Lines for people: rooms, and after each group of them its sum."""
    yield f'{"room":<20}{"lines":>8}{"ceiling":>9}{"tokens a line":>15}'
    for row in table:
        size = sizes[row]
        per_line = (f'{size.tokens / size.lines:15.2f}' if size.tokens else '')
        ceiling = '' if row.ceiling is None else f'{row.ceiling:,}'
        mark = '' if row.ceiling is None or size.lines <= row.ceiling else (
            f'  above by {size.lines - row.ceiling:,}')
        yield f'{row.name:<20}{size.lines:8,}{ceiling:>9}{per_line}{mark}'


def main():
    table = list(rows(CEILINGS.read_text()))
    sizes, homeless = measured(tracked(), table)
    for line in report(sizes, table):
        print(line)
    above = [row.name for row in table if row.ceiling is not None
             and sizes[row].lines > row.ceiling]
    for room in above:
        print(f'{room} is above its ceiling')
    for directory in homeless:
        print(f'{directory} belongs to no room of tests/ceilings.txt')
    return 1 if above or homeless else 0


if __name__ == '__main__':
    sys.exit(main())
