"""What the documents and the code say of each other is there: invariants and
their tests, words and their modules, figures and what was recorded."""

import ast
import functools
import re
import unittest

from fsyncstorage.timing.results import document as documents
from perf import fsync_2004
from perf import plone
from perf import zeo
from perf.claims import Claim

from .documents import PAGES
from .documents import ROOT

PACKAGE = ROOT / 'src' / 'fsyncstorage'
ROOMS = [path.parent.name for path in PACKAGE.glob('*/__init__.py')]
INTERNALS = ROOT / 'docs' / 'internals'
INVARIANTS = INTERNALS / 'invariants.rst'
GLOSSARY = INTERNALS / 'glossary.rst'
README = ROOT / 'README.rst'
PICTURE = ROOT / 'docs' / 'images' / 'commits.svg'
RESULTS = ROOT / 'perf' / 'results'

_DEFINED = re.compile(r'^I(\d+): ', re.MULTILINE)
# `I12\n` is a number in a pickle.
_CITED = re.compile(r'\bI(\d+)(?=_|\b)(?!\\)')
_TEST = re.compile(r'``(test_\w+)\.(\w+)(?:\.(\w+))?``')
_WORD = re.compile(r'^    (\S.*)\n((?:     +\S.*\n)+)', re.MULTILINE)
_AT_HOME = re.compile(r'\(``([\w./]+)``\)\n$')
# (A constant is one of a module, by the name of the module alone.)
_IN_A_ROOM = re.compile(rf'``((?:{"|".join(ROOMS)})\.[a-z]\w*(?:\.\w+)*)``')
_TEST_MODULE = re.compile(r'``(test_\w+)[.`]')
_LISTED = re.compile(r'^\t@echo "make ([\w-]+)', re.MULTILINE)
# The line above and below the heads of a simple table, and below its rows.
_RULE = re.compile(r'^=+(?: +=+)+$', re.MULTILINE)

#: The first cell of a row on the front pages -> the result, its workload and
#: settings, the figure, and the contestants of the columns.
FIGURES = {
    'commits/s, 16 threads, syncs of 5 ms': (
        'claims', 'commits', {'threads': 16, 'sync_latency': 0.005},
        'txn_per_second', [fsync_2004.STOCK, None, fsync_2004.GROUP]),
    'a read beside commits, syncs of 50 ms': (
        'claims', 'loads', {}, 'p99_seconds',
        [fsync_2004.STOCK, None, fsync_2004.GROUP]),
    'commits/s, 16 processes, a fast disk': (
        'zeo_2009', 'write', {'clients': 16, 'objects': 1},
        'txn_per_second', [zeo.STOCK, zeo.POSTGRESQL.name, zeo.OURS]),
    'cold objects/s, 16 processes': (
        'zeo_2009', 'read', {'clients': 16, 'objects': 334},
        'cold_per_second', [zeo.STOCK, zeo.POSTGRESQL.name, zeo.OURS]),
    'the same, with ``local-reads``': (
        'zeo_2009', 'read', {'clients': 16, 'objects': 334},
        'cold_per_second', [None, None, zeo.LOCAL]),
    'pages/s of Plone 6.2': (
        'plone', 'plone', {}, 'pages_per_second',
        [plone.STOCK.name, None, plone.OURS.name]),
    'edits/s of Plone 6.2': (
        'plone', 'plone', {}, 'edits_per_second',
        [plone.STOCK.name, None, plone.OURS.name]),
}


class Invariants(unittest.TestCase):

    level = 2

    def setUp(self):
        _, *parts = _DEFINED.split(INVARIANTS.read_text())
        #: Number -> what is said of it.
        self.defined = dict(zip(parts[::2], parts[1::2]))

    def test_each_that_is_cited_is_defined(self):
        cited = {}
        for path in (*(ROOT / 'src').rglob('*.py'),
                     *(ROOT / 'tests').rglob('*.py'), *PAGES):
            for number in _CITED.findall(path.read_text()):
                cited.setdefault(number, path.name)
        self.assertIn('12', cited)
        for number, name in cited.items():
            with self.subTest(f'I{number}, in {name}'):
                self.assertIn(number, set(self.defined))

    def test_each_has_tests_or_is_not_built(self):
        for number, text in self.defined.items():
            with self.subTest(f'I{number}'):
                self.assertNotEqual(
                    bool(_TEST.search(text)), '*Not built yet*' in text)

    def test_the_tests_are_there(self):
        for module, case, method in _TEST.findall(INVARIANTS.read_text()):
            with self.subTest(f'{module}.{case}.{method}'):
                path, = (ROOT / 'tests').rglob(f'{module}.py')
                names = _classes(path)
                self.assertIn(case, set(names))
                if method:
                    self.assertIn(method, names[case])


class Glossary(unittest.TestCase):

    level = 2

    def test_each_word_has_a_module(self):
        words = _WORD.findall(GLOSSARY.read_text())
        self.assertGreater(len(words), 50)
        for word, text in words:
            with self.subTest(word):
                found = _AT_HOME.search(text)
                self.assertTrue(found, text)
                self.assertTrue(_is_module(found[1]), found[1])


class Names(unittest.TestCase):

    level = 2

    def test_what_is_in_a_room_is_there(self):
        """A module, or what it has; no room is left out."""
        self.check(_IN_A_ROOM, self._has)

    def test_test_modules_are_there(self):
        self.check(_TEST_MODULE, lambda name: any(
            (ROOT / 'tests').rglob(f'{name}.py')))

    def check(self, pattern, is_there):
        found = {(path.name, name) for path in INTERNALS.glob('*.rst')
                 for name in pattern.findall(path.read_text())}
        self.assertGreater(len(found), 20)
        for page, name in sorted(found):
            with self.subTest(name, page=page):
                self.assertTrue(is_there(name))

    @staticmethod
    def _has(name):
        module, _, inner = name.rpartition('.')
        return _is_module(name) or _is_module(module) and re.search(
            rf'\b{inner}\b', _module(module).read_text())

    def test_each_test_module_says_what_it_is_for(self):
        for path in (ROOT / 'tests').rglob('test_*.py'):
            with self.subTest(path.stem):
                self.assertRegex(path.read_text(), r'\Ar?"""\S')


class Targets(unittest.TestCase):

    level = 2

    def test_the_page_has_those_that_make_help_lists(self):
        listed = _LISTED.findall((ROOT / 'Makefile').read_text())
        page = (ROOT / 'docs' / 'install.rst').read_text()
        self.assertEqual(re.findall(r'^``make ([\w-]+)``', page, re.M), listed)


@unittest.skipUnless(
    list(RESULTS.glob('*.json')), 'an sdist has no recorded samples')
class FrontPage(unittest.TestCase):
    """Its figures are those that were recorded."""

    level = 2

    def test_figures(self):
        table = rows(README.read_text())
        self.assertEqual(set(table), set(FIGURES))
        for words, (name, workload, settings, figure, columns) in (
                FIGURES.items()):
            recorded = documents.load(RESULTS / f'{name}.json')
            for contestant, cell in zip(columns, table[words], strict=True):
                with self.subTest(words, contestant=contestant):
                    self.assertEqual(cell, contestant and printed(
                        Claim('', workload, settings, contestant,
                              figure).measured(recorded), cell) or '')

    def test_its_picture(self):
        stock, _, ours = next(iter(rows(README.read_text()).values()))
        picture = PICTURE.read_text()
        self.assertEqual(
            re.findall(r'>([\d,]+)</text>', picture), [stock, ours])
        self.assertIn(
            f'FileStorage {stock}, fsyncstorage {ours}.', README.read_text())
        shown = [int(each) for each in re.findall(
            r'<rect .*width="(\d+)"', picture)]
        there = [int(each.replace(',', '')) for each in (stock, ours)]
        self.assertAlmostEqual(
            shown[1] / shown[0], there[1] / there[0], delta=0.2)


def rows(text):
    """The first cells of the first simple table of a page -> the others."""
    rules = list(_RULE.finditer(text))[:3]
    spans = [each.span() for each in re.finditer('=+', rules[0][0])]
    lines = text[rules[1].end():rules[2].start()].strip('\n').split('\n')
    cells = [[line[begin:end].strip() for begin, end in spans]
             for line in lines]
    return {first: others for first, *others in cells}


def printed(value, as_there):
    """A figure in the unit, and with the decimals, of a cell."""
    number, _, unit = as_there.partition(' ')
    decimals = len(number.partition('.')[2])
    text = f'{value * 1e3 if unit == "ms" else value:,.{decimals}f}'
    return ' '.join(filter(None, (text, unit)))


@functools.cache
def _classes(path):
    """Name -> names of its methods."""
    return {
        node.name: {each.name for each in node.body
                    if isinstance(each, ast.FunctionDef)}
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef)}


def _is_module(name):
    """A path from the root, or a dotted name below the package."""
    return (ROOT / name if '/' in name else _module(name)).is_file()


def _module(name):
    return PACKAGE / (name.replace('.', '/') + '.py')
