"""Every command and every configuration in the documents works as written,
every log line is explained, and what is not run says so."""

import ast
import collections
import re
import unittest

from ..quorum import etcdcluster
from .documents import PAGES
from .documents import ROOT
from .documents import blocks
from .documents import page_suite

#: Why blocks are not run.
REASONS = {
    'it needs Plone',
    'they need a container engine',
    'they need a package index',
    'they need certificates',
    'they need root',
    'they take minutes',
}

#: Pages that are run where there is etcd.
NEED_ETCD = {'quorum.rst'}

#: Pages that take long: what their commands do, other tests show.
AT_LEVEL_3 = {
    'backup.rst', 'check.rst', 'info.rst', 'install.rst', 'metrics.rst',
    'moving.rst', 'operate.rst', 'pack.rst', 'timing.rst', 'top.rst',
    'zope.rst'}

# What `fsync-time` says is not in the log of a site.
SOURCES = [path for path in (ROOT / 'src').rglob('*.py')
           if 'timing' not in path.parts]
LOG_PAGE = ROOT / 'docs' / 'log.rst'

_LOG_ENTRY = re.compile(r'^``(.*)``(?: \(.*\))?\n    ', re.MULTILINE)
_OTHER_BLOCK = re.compile(r'^(?! *\.\. ).*::$', re.MULTILINE)
_RECORDED_PICTURE = re.compile(
    r'^ *\.\. image:: (?:\.\./)*(perf/.*)$', re.MULTILINE)
_PLACEHOLDER = re.compile(r'%[\d.]*\w')
_LEVELS = {'warning', 'error', 'critical', 'exception', 'log'}


class Marks(unittest.TestCase):

    level = 2

    def test_what_is_not_run_says_why(self):
        reasons = collections.Counter(
            block.not_run for page in PAGES for block in blocks(page))
        run = reasons.pop(None)
        self.assertLessEqual(set(reasons), REASONS)
        print(f'  {run} blocks of the documents are run or read;'
              f' {sum(reasons.values())} are not')

    def test_each_block_is_found(self):
        """One behind a paragraph that ends with `::` would not be."""
        for page in PAGES:
            with self.subTest(page.name):
                text = page.read_text()
                self.assertEqual(
                    len(blocks(page)), text.count('.. code-block::'))
                self.assertEqual(_OTHER_BLOCK.findall(text), [])


class Pictures(unittest.TestCase):

    level = 2

    def test_the_sdist_has_those_that_are_shown(self):
        """Else the documents could not be built from it."""
        manifest = (ROOT / 'MANIFEST.in').read_text().split()
        shown = {name for page in PAGES
                 for name in _RECORDED_PICTURE.findall(page.read_text())}
        self.assertTrue(shown)
        self.assertLessEqual(shown, set(manifest))


class LogLines(unittest.TestCase):

    level = 2

    def test_each_is_explained(self):
        explained = {entry: re.compile(_pattern(entry), re.DOTALL)
                     for entry in _LOG_ENTRY.findall(LOG_PAGE.read_text())}
        nodes = [node for path in SOURCES
                 for node in ast.walk(ast.parse(path.read_text()))]
        for text in filter(None, map(_logged, nodes)):
            with self.subTest(text):
                self.assertTrue(
                    any(each.fullmatch(text) for each in explained.values()))
        texts = set(filter(None, map(_text, nodes)))
        for entry, pattern in explained.items():
            with self.subTest(entry):
                self.assertTrue(any(map(pattern.fullmatch, texts)))


def _logged(node):
    """The words of a log line of WARNING or above, if the node logs one."""
    if not (isinstance(node, ast.Call) and isinstance(
            node.func, ast.Attribute) and node.func.attr in _LEVELS):
        return None
    if ast.unparse(node.func.value) not in ('logger', 'self'):
        return None
    said = [ast.unparse(each) for each in node.args]
    by_default = node.func.attr == 'log' and len(said) == 1
    if 'logging.INFO' in said or by_default:
        return None
    return next(filter(None, map(_text, node.args)), None)


def _text(argument):
    """With `...` for what is filled in; None, if it has no words."""
    if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
        text = _PLACEHOLDER.sub('...', argument.value)
    elif isinstance(argument, ast.JoinedStr):
        text = ''.join(
            part.value if isinstance(part, ast.Constant) else '...'
            for part in argument.values)
    else:
        return None
    return text if re.search(r'\w', text) else None


def _pattern(entry):
    return '.*'.join(map(re.escape, entry.split('...')))


def test_suite():
    suite = unittest.TestSuite()
    for case in Marks, Pictures, LogLines:
        suite.addTest(unittest.defaultTestLoader.loadTestsFromTestCase(case))
    for page in PAGES:
        if page.name in NEED_ETCD and etcdcluster.program() is None:
            print(f'  {page.name} is not run: {etcdcluster.WITHOUT}')
        elif any(block.not_run is None for block in blocks(page)):
            of_page = page_suite(page)
            of_page.level = 3 if page.name in AT_LEVEL_3 else 2
            suite.addTest(of_page)
    return suite
