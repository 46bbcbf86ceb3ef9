"""The pictures of a document; they need matplotlib, which is an extra.

A picture answers one of the `questions`.  It has panels that differ in one
thing: the figure that is shown, or what was added to the syncs.  A panel has
the contestants, by number of threads or clients, or by size.  Races that
differ in more than that are in pictures of their own.

A contestant has the same colour and the same mark in all of them.  The texts
can be read in a picture of 1200 pixels, and on a phone.
"""

import itertools
import textwrap
import typing

from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from matplotlib.ticker import NullFormatter

from . import document as documents
from . import tables
from .estimates import spread
from .questions import QUESTIONS
from .questions import conditions
from .wording import added
from .wording import duration

#: The width of a picture; its height depends on what is in it.
WIDTH, PIXELS = 6.5, 1200
#: Heights, in inches, of a panel and of a line of text.
_PANEL, _LINE = 2.7, 0.2
#: Characters in a line: of the question, and of the conditions below.
_QUESTION, _SMALL = 56, 100
#: Panels, and contestants of the legend, side by side.
_SIDE_BY_SIDE = 2

_STYLE = {
    'axes.axisbelow': True,
    'axes.grid': True,
    'axes.spines.right': False,
    'axes.spines.top': False,
    'axes.titlesize': 9,
    'figure.titlesize': 13,
    'figure.titleweight': 'bold',
    'figure.labelsize': 10,
    'grid.color': '#e4e4e4',
    'legend.frameon': False,
    'legend.title_fontsize': 8,
    # Texts stay texts: that makes small files.  Where the font is missing,
    # another one is shown.
    'svg.fonttype': 'none',
    # The same picture is the same file each time.
    'svg.hashsalt': 'fsync-time',
}

#: The axis is logarithmic above this ratio of the largest value to the
#: smallest one.
_LOGARITHMIC = 40


class Picture(typing.NamedTuple):
    #: The name of its files, without an ending.
    name: str
    question: typing.Any
    #: What all races in it share, and what is written below it.
    conditions: str
    footer: str
    #: Points (place, median, low, high) by contestant, by title of the panel.
    panels: dict
    #: How each contestant of the document is drawn.
    looks: dict


def of(document, questions=QUESTIONS):
    """All pictures of a document, without those that would be empty."""
    return [picture for question in questions
            for picture in _pictures(document, question)]


def _pictures(document, question):
    inside = {question.setting, *documents.AMOUNTS}
    if question.alike:
        inside.add('sync_latency')
    groups = documents.grouped(document, question.workload, inside)
    differing = [
        name for name in dict.fromkeys(key for one, _ in groups for key in one)
        if len({one.get(name) for one, _ in groups}) > 1]
    for shared, races in groups:
        panels = {}
        for title, points in _points(document, question, races):
            series = panels.setdefault(title, {})
            for contestant, point in points.items():
                series.setdefault(contestant, []).append(point)
        if panels := {title: series for title, series in panels.items()
                      if series}:
            yield Picture(
                '-'.join([question.name, *(
                    _slug(name, shared[name]) for name in differing
                    if shared.get(name))]),
                question, conditions(shared), _footer(document), panels,
                looks_of(document['contestants']))


def _points(document, question, races):
    """Yields the title of a panel, and the points of a race in it."""
    for title, figure in question.figures.items():
        for race in sorted(races, key=lambda race: _place(
                document, question, race)):
            settings = document['races'][race]['settings']
            place = _place(document, question, race)
            points = {}
            for contestant in document['contestants']:
                values = documents.values(document, race, contestant, figure)
                found = spread(values.values()) if values else None
                # Those that did not wait for a sync share none.
                if found and (figure != 'commits_per_sync' or tables.waited(
                        found['median'], place)):
                    points[contestant] = (place, *(
                        value * question.scale for value in found.values()))
            yield title or added(settings.get('sync_latency', 0.0)), points


def _place(document, question, race):
    return document['races'][race]['settings'].get(question.setting, 0)


def _slug(name, value):
    if value is True:
        return name
    text = value if isinstance(value, str) else f'{value} {name}'
    return text.replace(' ', '-')


def _footer(document):
    machine = document['machine']
    # The first sentence is about the syncs, which the conditions have, too.
    _, _, others = document['added'].partition('. ')
    return ' '.join(filter(None, (
        f'{tables.rounds(document)}: median and range.', others,
        f'{machine["cpus"]} CPUs ({machine["cpu_model"]}),'
        f' {machine["system"]}, {machine["file_system"]}: one sync takes'
        f' {duration(machine["sync_p50_seconds"])}.',
        documents.warning(document), document['began'][:10])))


def looks_of(contestants):
    """How to draw each, for matplotlib; marks are for the colour-blind."""
    return {
        name: dict(color=f'C{number % 10}', marker=mark, label=name)
        for number, (name, mark) in enumerate(zip(
            contestants, itertools.cycle('oXs^DPv')))}


def save(picture, form, target):
    """Draw a picture into a file; `target` is a path or a file object."""
    with rc_context(_STYLE):
        draw(picture).savefig(
            target, format=form, dpi=PIXELS / WIDTH,
            metadata={'Date': None} if form == 'svg' else None)


def draw(picture):
    """Panels side by side, with the contestants along an axis."""
    question = picture.question
    title = textwrap.fill(question.words, _QUESTION)
    below = textwrap.wrap(
        f'{picture.conditions}. {picture.footer}'.lstrip('. '), _SMALL)
    columns = min(_SIDE_BY_SIDE, len(picture.panels))
    rows = -(-len(picture.panels) // columns)
    figure = Figure(layout='constrained')
    axes = list(figure.subplots(
        rows, columns, squeeze=False, sharey=question.alike).flat)
    lines = {}
    for (words, series), axis in zip(picture.panels.items(), axes):
        axis.set_title(words, loc='left')
        lines.update(_draw_panel(picture, series, axis))
        _scale(axis, picture.panels.values() if question.alike else [series])
    number = len(picture.panels)
    for axis in axes[number:]:
        axis.remove()
    for axis in axes[number - columns:number]:
        axis.set_xlabel(question.along)
    names = [name for name in picture.looks if name in lines]
    figure.suptitle(title)
    figure.supylabel(question.up)
    figure.legend(
        [lines[name] for name in names], names, ncols=_SIDE_BY_SIDE,
        loc='outside lower center', title='\n'.join(below))
    figure.set_size_inches(WIDTH, rows * _PANEL + _LINE * (
        2 * title.count('\n') + 4 + len(below)
        + -(-len(names) // _SIDE_BY_SIDE)))
    return figure


def _draw_panel(picture, series, axis):
    """Return a line of each contestant, for the legend."""
    lines = {}
    places = sorted({point[0] for points in series.values()
                     for point in points})
    for order, (contestant, points) in enumerate(series.items()):
        # A little apart, so that ranges do not hide each other.
        apart = (order - (len(series) - 1) / 2) * 0.05
        lines[contestant] = axis.errorbar(
            [places.index(place) + apart for place, *_ in points],
            [median for _, median, _, _ in points],
            [[median - low for _, median, low, _ in points],
             [high - median for _, median, _, high in points]],
            markersize=5, capsize=2, linewidth=1.4, elinewidth=0.9,
            **picture.looks[contestant])
    put = picture.question.put if picture.question.setting else lambda at: ''
    axis.set_xticks(range(len(places)), map(put, places))
    axis.set_xlim(-0.4, len(places) - 0.6)
    return lines


def _scale(axis, panels):
    """The axis starts at 0 or is logarithmic, with readable numbers."""
    values = [value for series in panels for points in series.values()
              for _, _, *ends in points for value in ends]
    if min(values) > 0 and max(values) / min(values) > _LOGARITHMIC:
        axis.set_yscale('log')
        axis.yaxis.set_minor_formatter(NullFormatter())
    else:
        axis.set_ylim(0, None)
        axis.yaxis.set_major_locator(MaxNLocator(5))
    axis.yaxis.set_major_formatter('{x:,.10g}')
