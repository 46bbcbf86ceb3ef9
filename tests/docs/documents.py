"""The pages of the documents, run: what they tell to type works as written.

A manuel: it finds the literal blocks of a page, and runs them in their order,
in a scratch directory of the page (scratch).  A block is

``console``
    commands behind ``$ ``, and what each prints, where ``...`` stands for
    anything.  A command that ends with ``&`` goes on until the page ends, or
    until a `kill` of the page; what is shown is waited for.
``python``
    a program.
``none`` or ``text``
    a configuration, if there are sections in it (``<zeo>``): it is read with
    the schema of its kind; and otherwise something to look at.

With a caption it is also the file of that name; such a program is not run
here, but by a command of the page.  A block is not run with this directly
behind it: ``.. not run by the tests: WHY``.
"""

import dataclasses
import re
import textwrap

import manuel
import manuel.testing

from .scratch import ROOT
from .scratch import Scratch
from .scratch import Wrong
from .scratch import has_sections

PAGES = sorted([
    ROOT / 'CONTRIBUTING.rst', ROOT / 'README.rst',
    *ROOT.glob('docs/**/*.rst')])

# Whatever else a page shows, as a look at it is all that can be done.
SHOWN = ('', 'none', 'text', 'ini', 'json', 'nginx')

_BLOCK = re.compile(r"""
    ^(?P<indent>\ *)\.\.\ code-block::\ *(?P<language>\S*)\n
    (?P<options>((?P=indent)\ +:.*\n)*)
    (?P<text>(\n|(?P=indent)\ \ \ .*\n)+)
    ((?P=indent)\.\.\ not\ run\ by\ the\ tests:\ (?P<not_run>.*)\n)?
    """, re.MULTILINE | re.VERBOSE)
_CAPTION = re.compile(r':caption: (.*)')


@dataclasses.dataclass
class Block:

    language: str
    text: str
    caption: str | None
    not_run: str | None

    @classmethod
    def of(cls, match):
        caption = _CAPTION.search(match['options'])
        return cls(
            match['language'], textwrap.dedent(match['text']).strip('\n'),
            caption and caption[1], match['not_run'])

    def run(self, scratch):
        if self.caption:
            scratch.write(self.caption, self.text)
        if self.language == 'console':
            scratch.session(self.text + '\n')
        elif self.language == 'python':
            if not self.caption:
                scratch.program(self.text)
        elif self.language not in SHOWN:
            raise Wrong(f'a block in {self.language!r}: nobody can run that')
        elif has_sections(self.text):
            scratch.read_configuration(self.text)
        elif re.search(r'^\$ ', self.text, re.MULTILINE):
            raise Wrong('commands, but it is no console')


class Manuel(manuel.Manuel):

    def __init__(self):
        super().__init__([_parse], [_evaluate], [_format])


def _parse(document):
    for region in document.find_regions(_BLOCK):
        document.claim_region(region)
        region.parsed = Block.of(region.start_match)


def _evaluate(region, document, names):
    if region.parsed and not region.parsed.not_run:
        try:
            region.parsed.run(names['self'].scratch)
        except Wrong as wrong:
            region.evaluated = str(wrong)


def _format(document):
    for region in document:
        if region.evaluated:
            region.formatted = (
                f'{document.location}, line {region.lineno}:\n'
                f'{region.evaluated}\n')


class PageCase(manuel.testing.TestCase):

    def setUp(self):
        self.scratch = Scratch()
        self.addCleanup(self.scratch.close)


def page_suite(path):
    # Names of its own, for manuel puts the test case there.
    return manuel.testing.TestSuite(
        Manuel(), str(path), TestCase=PageCase, globs={})


def blocks(path):
    return [Block.of(match) for match in _BLOCK.finditer(path.read_text())]
