"""The rooms of the package: what imports what, and how much there is in each.

A room is a directory; a module that lies directly in the package is a room of
its own.  `MAY_IMPORT` is the plan of the house.  It has every arrow that there
is, and no other; an import inside a function is an arrow like any other.
"""

import ast
import collections
import graphlib
import os
import pathlib
import re
import subprocess
import sys
import unittest

import fsyncstorage

HOME = pathlib.Path(__file__).parents[1]
ROOT = HOME / 'src' / 'fsyncstorage'
#: Where the arrows are drawn, for people.
MAP = HOME / 'docs' / 'internals' / 'index.rst'
#: There, a row of the table of rooms.
LISTED = re.compile(r'^``(\w+)/?``  ', re.MULTILINE)
DRAWN = re.compile(r'^    ([\w.]+) +-> (.+)$', re.MULTILINE)

#: In the package, and in no room.
MOST_MODULES = 10

#: From the top down.  The package itself has the public names.
MAY_IMPORT = {
    'timing': {'timing.running', 'timing.results', 'fsyncstorage', 'check',
               'commit', 'datafile'},
    'timing.running': {'timing.results', 'client', 'core', 'datafile'},
    'timing.results': set(),
    'config': {'quorum.roles', 'quorum.following', 'storage', 'metrics',
               'commit', 'errors'},
    'uris': set(),
    'fsyncpack': {'check', 'check.info', 'client', 'storage', 'format'},
    'fsynctop': {'check', 'metrics'},
    'backup': {'check', 'metrics', 'pack', 'processes', 'local', 'format',
               'wire', 'datafile'},
    'fsyncquorum': {'check', 'quorum.etcd', 'quorum.roles',
                    'quorum.beginning', 'quorum.log', 'quorum.history'},
    'check.info': {'check', 'format'},
    'check': {'storage', 'format', 'datafile', 'errors', 'version'},
    'server': {'local', 'storage', 'metrics', 'pack', 'processes', 'commit',
               'core', 'format', 'wire', 'datafile', 'histogram', 'errors',
               'version'},
    'metrics': {'pack', 'datafile', 'histogram', 'forks', 'version'},
    'fsyncstorage': {'storage', 'client', 'commit', 'version'},
    'quorum': set(),
    'quorum.etcd': {'quorum.roles', 'quorum.log', 'quorum.history', 'commit'},
    'quorum.roles': {'quorum.leading', 'quorum.following', 'quorum.log',
                     'quorum.history', 'storage', 'commit', 'datafile'},
    'quorum.beginning': {'quorum.leading', 'quorum.files', 'quorum.log',
                         'quorum.history', 'storage', 'datafile'},
    'quorum.leading': {'quorum.files', 'quorum.log', 'quorum.history', 'pack',
                       'commit', 'datafile', 'errors'},
    'quorum.following': {'quorum.files', 'quorum.log', 'quorum.history',
                         'scrub', 'storage', 'pack', 'commit', 'format',
                         'datafile', 'errors'},
    'quorum.files': {'quorum.log', 'quorum.history', 'pack', 'commit',
                     'datafile'},
    'quorum.log': {'quorum.history'},
    'quorum.history': set(),
    'storage': {'pack', 'scrub', 'processes', 'commit', 'format', 'datafile',
                'positions', 'histogram', 'forks', 'errors'},
    'pack': {'processes', 'format', 'datafile', 'positions', 'errors'},
    'scrub': {'processes', 'commit', 'format', 'datafile'},
    'processes': set(),
    'commit': {'datafile', 'allocation', 'histogram', 'errors'},
    'client': {'client.blobs', 'local', 'core', 'format', 'wire', 'positions',
               'histogram', 'errors', 'version'},
    'client.blobs': {'wire', 'forks'},
    'local': {'core', 'format', 'wire', 'datafile', 'forks'},
    'core': {'format'},
    'wire': {'format'},
    'format': {'datafile'},
    'files': set(),
    'datafile': {'allocation'},
    'allocation': set(),
    'positions': set(),
    'histogram': set(),
    'forks': set(),
    'errors': set(),
    'version': set(),
}


def _parts(path):
    parts = path.relative_to(ROOT.parent).with_suffix('').parts
    return parts[:-1] if parts[-1] == '__init__' else parts


PATHS = {'.'.join(_parts(path)): path for path in ROOT.rglob('*.py')}


def room(module):
    """Of a module, by its name."""
    parts = module.split('.')
    if PATHS[module].name != '__init__.py' and len(parts) > 2:
        parts.pop()
    return '.'.join(parts[1:]) or parts[0]


def arrows(module, text):
    """The modules of the package that this text imports, wherever in it."""
    package = module.split('.')
    if PATHS[module].name != '__init__.py':
        package.pop()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            front = package[:len(package) - node.level + 1]
            origin = '.'.join([
                *(front if node.level else []), *filter(None, [node.module])])
            # Of a module, or of a package: then it may be one of its modules.
            names = [
                name if (name := f'{origin}.{alias.name}') in PATHS
                else origin for alias in node.names]
        else:
            continue
        yield from (name for name in names if name in PATHS)


def all_arrows():
    return {module: set(arrows(module, path.read_text())) - {module}
            for module, path in PATHS.items()}


def between_rooms(imported):
    found = {room(module): set() for module in imported}
    for module, targets in imported.items():
        found[room(module)] |= set(map(room, targets)) - {room(module)}
    return found


class Rooms(unittest.TestCase):

    level = 2

    def test_the_arrows_are_those_of_the_plan(self):
        found = between_rooms(all_arrows())
        for name in found.keys() | MAY_IMPORT:
            with self.subTest(name):
                self.assertEqual(
                    sorted(found[name]), sorted(MAY_IMPORT[name]))

    def test_the_plan_has_no_circle(self):
        list(graphlib.TopologicalSorter(MAY_IMPORT).static_order())

    def test_it_is_listed_from_the_top_down(self):
        above = set()
        for name, targets in MAY_IMPORT.items():
            self.assertFalse(targets & above, name)
            above.add(name)

    def test_no_circle_between_modules(self):
        """Not in a room either.  A package is what its __init__ imports."""
        list(graphlib.TopologicalSorter(all_arrows()).static_order())

    def test_an_arrow_is_found_wherever_it_is(self):
        for text in (
                'from .. import datafile', 'from ..datafile import disk',
                'from fsyncstorage import datafile',
                'from fsyncstorage.datafile import disk',
                'import fsyncstorage.datafile',
                'def f():\n    from .. import datafile',
                'if TYPE_CHECKING:\n    from .. import datafile'):
            with self.subTest(text):
                self.assertEqual(
                    list(arrows('fsyncstorage.commit.wakeable', text)),
                    ['fsyncstorage.datafile'])

    def test_the_package_has_few_modules(self):
        self.assertLessEqual(len(list(ROOT.glob('*.py'))), MOST_MODULES)

    def test_the_map_of_the_package_names_every_room(self):
        table = MAP.read_text().partition('From the top down:')[2]
        listed = collections.Counter(LISTED.findall(
            table.partition('Imports point down')[0]))
        rooms = {name.split('.')[0] for name in MAY_IMPORT}
        self.assertEqual(
            listed, collections.Counter(rooms - {'fsyncstorage'}))

    def test_each_room_lists_its_modules(self):
        for name, path in PATHS.items():
            if path.name == '__init__.py' and path.parent != ROOT:
                text = ast.get_docstring(ast.parse(path.read_text())) or ''
                for module in path.parent.glob('[a-z]*.py'):
                    with self.subTest(name):
                        self.assertRegex(text, rf'\b{module.stem}\b')

    def test_the_documents_draw_these_arrows(self):
        """From room to room; and from part to part, if both are parts of one
        room."""
        plan = set()
        for name, targets in MAY_IMPORT.items():
            for target in targets:
                outer = _outer(name), _outer(target)
                plan.add((name, target) if outer[0] == outer[1] else outer)
        drawn = [
            (start, target)
            for start, targets in DRAWN.findall(MAP.read_text())
            for target in targets.split(', ')]
        self.assertEqual(sorted(drawn), sorted(plan))


class Starting(unittest.TestCase):

    level = 2

    def test_what_needs_no_storage_starts_without_it(self):
        for name in 'client.storage', 'pack.process', 'scrub.child', 'files':
            with self.subTest(name):
                subprocess.run([
                    sys.executable, '-c', IMPORTS_NO_STORAGE, name],
                    check=True, env=os.environ | {
                        'PYTHONPATH': os.pathsep.join(sys.path)})

    def test_a_client_imports_what_it_uses(self):
        """Not what is for a blob cache, or for local reads."""
        subprocess.run(
            [sys.executable, '-c', IMPORTS_LITTLE], check=True,
            env=os.environ | {'PYTHONPATH': os.pathsep.join(sys.path)})

    def test_the_names_of_the_package(self):
        for name in fsyncstorage.__all__:
            self.assertIn(name, dir(fsyncstorage))
            self.assertEqual(getattr(fsyncstorage, name).__name__, name)
        with self.assertRaises(AttributeError):
            fsyncstorage.NoSuchStorage


IMPORTS_NO_STORAGE = """
import importlib
import sys
importlib.import_module(f'fsyncstorage.{sys.argv[1]}')
assert 'fsyncstorage.storage' not in sys.modules
"""

IMPORTS_LITTLE = """
import sys
import fsyncstorage.client.sections
for name in 'sqlite3', 'mmap', 'ZODB.FileStorage':
    assert name not in sys.modules, name
"""


def _outer(name):
    return name.partition('.')[0]
