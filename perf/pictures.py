"""The pictures of a document; they need matplotlib.

A picture answers one of the `questions`.  It has panels that differ in one
thing: the figure that is shown, or what was added to the syncs.  A panel has
the contestants, by number of threads or clients, or by size.  Races that
differ in more than that are in pictures of their own.

A contestant has the same colour and the same mark in all of them.
"""

import textwrap
import typing

from matplotlib import rc_context
from matplotlib.figure import Figure

from fsyncstorage.timing.results import document as documents
from fsyncstorage.timing.results import tables
from fsyncstorage.timing.results.estimates import spread
from fsyncstorage.timing.results.questions import conditions
from fsyncstorage.timing.results.wording import added

from .questions import DRAWN

#: The width of a picture; its height depends on what is in it.
WIDTH, PIXELS = 6.5, 1200
#: Heights, in inches, of a panel, and of the texts.
_PANEL, _TEXTS = 2.7, 1.3
#: Characters in a line: of the question, and of the conditions below.
_QUESTION, _SMALL = 56, 100
#: Panels, and contestants of the legend, side by side.
_SIDE_BY_SIDE = 2

_STYLE = {
    'axes.grid': True,
    'axes.titlesize': 9,
    'figure.titlesize': 13,
    'grid.color': '#e4e4e4',
    'legend.frameon': False,
    'legend.title_fontsize': 8,
    'xtick.labelsize': 8,   # six sizes go side by side
}

#: For the colour-blind.
_MARKS = 'oXs^DPv'

#: The axis is logarithmic above this ratio of the largest value to the
#: smallest one.
_LOGARITHMIC = 40


class Picture(typing.NamedTuple):
    #: The name of its files, without an ending.
    name: str
    question: typing.Any
    #: What all races in it share.
    conditions: str
    #: Points (place, median, low, high) by contestant, by title of the panel.
    panels: dict
    #: All contestants of the document.
    contestants: list


def of(document):
    """All pictures of a document, without those that would be empty."""
    return [picture for question in DRAWN
            for picture in _pictures(document, question)]


def _are_alike(question):
    """Can the numbers of one panel be compared with those of another?"""
    return len(question.figures) == 1


def _pictures(document, question):
    inside = {question.setting, *documents.AMOUNTS}
    if _are_alike(question):
        inside.add('sync_latency')
    groups = documents.grouped(document, question.workload, inside)
    differing = [
        name for name in dict.fromkeys(key for one, _ in groups for key in one)
        if len({one.get(name) for one, _ in groups}) > 1]
    for shared, races in groups:
        if panels := _panels(document, question, races):
            yield Picture(
                '-'.join([question.name, *(
                    _slug(name, shared[name]) for name in differing
                    if shared.get(name))]),
                question, conditions(shared), panels,
                list(document['contestants']))


def _panels(document, question, races):
    panels = {}
    for title, figure in question.figures.items():
        for race in races:
            settings = document['races'][race]['settings']
            place = settings.get(question.setting, 0)
            for contestant in document['contestants']:
                values = documents.values(document, race, contestant, figure)
                if not values:
                    continue
                found = spread(values.values())
                # Those that did not wait for a sync share none.
                if figure == 'commits_per_sync' and not tables.waited(
                        found['median'], place):
                    continue
                panel = panels.setdefault(
                    title or added(settings.get('sync_latency', 0.0)), {})
                panel.setdefault(contestant, []).append((place, *(
                    value * question.scale for value in found.values())))
    return {title: {name: sorted(points) for name, points in panel.items()}
            for title, panel in panels.items()}


def _slug(name, value):
    if value is True:
        return name
    text = value if isinstance(value, str) else f'{value} {name}'
    return text.replace(' ', '-')


def save(picture, path):
    with rc_context(_STYLE):
        _draw(picture).savefig(path, dpi=PIXELS / WIDTH)


def _draw(picture):
    question, number = picture.question, len(picture.panels)
    are_alike = _are_alike(question)
    columns = min(_SIDE_BY_SIDE, number)
    rows = -(-number // columns)
    figure = Figure((WIDTH, rows * _PANEL + _TEXTS), layout='constrained')
    axes = list(figure.subplots(
        rows, columns, squeeze=False, sharey=are_alike).flat)
    for (title, series), axis in zip(picture.panels.items(), axes):
        axis.set_title(title, loc='left')
        axis.set_xlabel(question.along)
        _draw_panel(picture, series, axis)
        _scale(axis, picture.panels.values() if are_alike else [series])
    for axis in axes[number:]:
        axis.remove()
    figure.suptitle(textwrap.fill(question.words, _QUESTION))
    figure.supylabel(question.up)
    lines = {label: line for axis in axes[:number] for line, label in zip(
        *axis.get_legend_handles_labels())}
    figure.legend(
        lines.values(), lines, ncols=_SIDE_BY_SIDE,
        loc='outside lower center', title=textwrap.fill(
            f'{picture.conditions}: median and range of the rounds'
            .lstrip(': '), _SMALL))
    return figure


def _draw_panel(picture, series, axis):
    places = sorted({place for points in series.values()
                     for place, *_ in points})
    for contestant, points in series.items():
        number = picture.contestants.index(contestant)
        axis.errorbar(
            [places.index(place) for place, *_ in points],
            [median for _, median, _, _ in points],
            [[median - low for _, median, low, _ in points],
             [high - median for _, median, _, high in points]],
            color=f'C{number % 10}', marker=_MARKS[number % len(_MARKS)],
            label=contestant, capsize=2)
    put = picture.question.put if picture.question.setting else lambda at: ''
    axis.set_xticks(range(len(places)), map(put, places))
    axis.set_xlim(-0.4, len(places) - 0.6)


def _scale(axis, panels):
    """The axis starts at 0 or is logarithmic, with readable numbers."""
    values = [value for series in panels for points in series.values()
              for _, _, *ends in points for value in ends]
    if min(values) > 0 and max(values) / min(values) > _LOGARITHMIC:
        axis.set_yscale('log')
    else:
        axis.set_ylim(0, None)
    axis.yaxis.set_major_formatter('{x:,.10g}')
