"""A campaign: measured, recorded, and drawn again.

Its record is `NAME.json` (all samples), `NAME.txt` (the tables and the claims)
and `pictures/NAME`.  The last two are made from the first alone, so they can
be made again at any time.

A quick run records nothing.  A run that is interrupted leaves what it has in
`NAME.json.new`.
"""

import argparse
import dataclasses
import functools
import importlib.util
import os
import sys
import typing

from rich.console import Console

from fsyncstorage.timing.results import document as documents
from fsyncstorage.timing.results import tables
from fsyncstorage.timing.running import sampling

from . import claims

QUICK_ROUNDS = 2

CAN_DRAW = importlib.util.find_spec('matplotlib') is not None

#: Columns of a text file.
WIDTH = 100


@dataclasses.dataclass(frozen=True)
class Campaign:
    """What is measured, and what is shown of it."""

    name: str
    about: str
    #: The first one is the baseline.
    contestants: typing.Sequence
    #: Called with a bool: is the run a quick one?
    races: typing.Callable
    rounds: int
    #: Called with a document: what is claimed of it.
    claims: typing.Callable = lambda document: []
    #: Called with a document and a console: prints the tables.
    show: typing.Callable = functools.partial(tables.show, questions=())
    #: The command of `fsync-time` whose races these are, if it has all of
    #: them: its report shows them, too.
    command: str | None = None
    #: Called with the contestants that take part: sentences on what was added.
    added: typing.Callable = lambda contestants: ()
    #: Called with a directory: why it cannot be measured there, or None.
    obstacle: typing.Callable = lambda directory: None

    def show_all(self, document, console):
        """Return whether all claims hold."""
        self.show(document, console)
        return claims.show(list(self.claims(document)), document, console)


def record(campaign, options):
    """Measure; the exit code: 0 when all claims hold.

    A quick run is too rough to judge them.
    """
    contestants = list(_able(campaign))
    reason = campaign.obstacle(options.directory) or (
        not contestants and 'nothing is left to measure')
    if reason:
        _complain(campaign, reason)
        return 2
    path = options.results / f'{campaign.name}.json'
    new = path.with_suffix('.json.new')
    hold = []
    code = sampling.run(
        argparse.Namespace(
            contestants=contestants, directory=options.directory,
            json=None if options.quick else os.fspath(new),
            rounds=options.rounds or (
                QUICK_ROUNDS if options.quick else campaign.rounds)),
        campaign.command or campaign.name,
        campaign.races(options.quick),
        lambda document, console: hold.append(
            campaign.show_all(document, console)),
        added=lambda: campaign.added(contestants))
    if code:
        return code
    if not options.quick:
        os.replace(new, path)
        draw(campaign, options.results)
    return 0 if options.quick or all(hold) else 1


def draw(campaign, results):
    """Make the text and the pictures of what was recorded."""
    path = results / f'{campaign.name}.json'
    document = documents.load(path)
    with open(path.with_suffix('.txt'), 'w', encoding='utf-8') as file:
        campaign.show_all(document, Console(file=file, width=WIDTH))
    if not CAN_DRAW:
        _complain(campaign, 'there is no matplotlib to draw its pictures')
        return
    from . import pictures
    for picture in pictures.of(document):
        path = results / 'pictures' / campaign.name / f'{picture.name}.png'
        path.parent.mkdir(parents=True, exist_ok=True)
        pictures.save(picture, path)


def _able(campaign):
    """Yields the contestants that are installed, and names the others."""
    for one in campaign.contestants:
        if reason := missing(one):
            _complain(campaign, f'{one.name} is left out: {reason}')
        else:
            yield one


def missing(contestant):
    """What it needs that is not installed; None for those of the package."""
    return getattr(contestant, 'missing', lambda: None)()


def _complain(campaign, message):
    print(f'perf {campaign.name}: {message}', file=sys.stderr)
