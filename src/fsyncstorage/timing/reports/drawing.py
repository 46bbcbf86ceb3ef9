"""Draws `pictures` with matplotlib, which is an extra, as PNG or SVG.

A contestant has the same colour and the same mark in all of them.  The texts
can be read in a picture of 1200 pixels, and on a telephone.
"""

import itertools
import textwrap

from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator
from matplotlib.ticker import MaxNLocator
from matplotlib.ticker import NullFormatter

from ..results.wording import number
from . import pictures

#: Of a picture; the height is what it needs.
WIDTH, PIXELS = 6.5, 1200

#: The ten of matplotlib; marks tell them apart for the colour-blind.
_COLOURS = [f'C{number}' for number in range(10)]

_STYLE = {
    'axes.edgecolor': '#888888',
    'axes.spines.right': False,
    'axes.spines.top': False,
    'axes.grid': True,
    'axes.axisbelow': True,
    'axes.titlesize': 9,
    'axes.titlelocation': 'left',
    'figure.titlesize': 13,
    'figure.titleweight': 'bold',
    'figure.labelsize': 10,
    'grid.color': '#e4e4e4',
    'legend.frameon': False,
    'legend.title_fontsize': 8,
    # Texts stay texts: small files, and what has no such font has a narrower
    # one.
    'svg.fonttype': 'none',
    # The same picture makes the same file.
    'svg.hashsalt': 'fsync-time',
}

#: Inches.
_LINE, _PANEL_HEIGHT, _ROW_HEIGHT = 0.2, 2.7, 0.27
#: Characters a line: of the question, and of what is said below.
_QUESTION, _SMALL = 56, 104
#: And of a panel, by how many are side by side.
_IN_PANEL = {1: 66, 2: 30, 3: 18}
#: Contestants side by side, and their characters.
_IN_LEGEND, _LEGEND = 3, 66

#: From here on the small would vanish beside the large, and up to here there
#: is room for more than the powers of ten.
_LOGARITHMIC, _FINE = 40, 500


def save(picture, form, target):
    """Into a file, or a file object."""
    with rc_context(_STYLE):
        draw(picture).savefig(
            target, format=form, dpi=PIXELS / WIDTH,
            metadata={'Date': None} if form == 'svg' else None)


def looks_of(contestants):
    """Colour and mark of each; no two are the same."""
    return dict(zip(contestants, zip(
        itertools.cycle(_COLOURS), itertools.cycle('oXs^DPv'))))


def draw(picture):
    """Lines over an axis; or rows, where all that is drawn is at one place."""
    question = picture.question
    looks = {name: dict(color=colour, marker=mark, label=name)
             for name, (colour, mark) in looks_of(picture.contestants).items()}
    several = max(len(points) for panel in picture.panels
                  for points in panel.series.values()) > 1
    title = textwrap.fill(question.words, _QUESTION)
    below = textwrap.wrap(
        f'{picture.conditions}. {picture.footer}'.lstrip('. '), _SMALL)
    names = [name for name in looks if any(
        name in panel.series for panel in picture.panels)]
    columns = max(1, min(
        _IN_LEGEND, len(names), _LEGEND // max(map(len, names))))
    figure = Figure(layout='constrained')
    height = (_draw_lines if several else _draw_rows)(figure, picture, looks)
    shown = names if several else []
    figure.suptitle(title)
    figure.legend(
        [Line2D([], [], **looks[name]) for name in shown], shown,
        ncols=columns, loc='outside lower center', title='\n'.join(below))
    figure.set_size_inches(WIDTH, height + _LINE * (
        2 * title.count('\n') + 3 + len(below) + -(-len(shown) // columns)))
    return figure


def _draw_lines(figure, picture, looks):
    """Panels side by side; returns their height."""
    question = picture.question
    number = len(picture.panels)
    columns = 2 if number in (2, 4) else min(number, 3)
    # No label of an axis may touch the next one.
    most = max(
        sum(1 + len(question.put(at)) for at in pictures.places([panel]))
        for panel in picture.panels)
    while columns > 1 and _IN_PANEL[columns] < most:
        columns -= 1
    rows = -(-number // columns)
    axes = list(figure.subplots(
        rows, columns, squeeze=False, sharey=question.alike).flat)
    for panel, axis in zip(picture.panels, axes):
        axis.set_title(textwrap.fill(panel.title, _IN_PANEL[columns] + 10))
        places = pictures.places([panel])
        for order, (contestant, points) in enumerate(panel.series.items()):
            # A little apart, so that no range hides another.
            apart = (order - (len(panel.series) - 1) / 2) * 0.04
            axis.errorbar(
                [places.index(point.at) + apart for point in points],
                [point.median for point in points], _ranges(points),
                markersize=5, capsize=2, linewidth=1.4, elinewidth=0.9,
                **looks[contestant])
        axis.set_xticks(range(len(places)), map(question.put, places))
        axis.set_xlim(-0.4, len(places) - 0.6)
    for axis in axes[number:]:
        axis.remove()
    for axis in axes[max(0, number - columns):number]:
        axis.set_xlabel(question.along)
    _scale_all(figure, picture, 'y')
    figure.supylabel(question.up)
    return rows * _PANEL_HEIGHT


def _draw_rows(figure, picture, looks):
    """Panels one below the other, a row for each contestant."""
    heights = [len(panel.series) + 1 for panel in picture.panels]
    axes = figure.subplots(
        len(picture.panels), 1, squeeze=False, sharex=picture.question.alike,
        height_ratios=heights)
    for panel, axis in zip(picture.panels, axes.flat):
        axis.set_title(panel.title)
        for row, (contestant, (point,)) in enumerate(panel.series.items()):
            axis.errorbar(
                [point.median], [row], xerr=_ranges([point]), markersize=6,
                capsize=3, **looks[contestant])
            axis.annotate(
                number(point.median), (point.high, row), (6, 0),
                textcoords='offset points', va='center')
        axis.set_yticks(range(len(panel.series)), panel.series)
        axis.set_ylim(len(panel.series) - 0.4, -0.6)
        axis.grid(False, axis='y')
        # Room for the number behind the last one.
        axis.margins(x=0.2)
    axis.set_xlabel(picture.question.up)
    _scale_all(figure, picture, 'x')
    return (sum(heights) + len(heights)) * _ROW_HEIGHT


def _ranges(points):
    return [[point.median - point.low for point in points],
            [point.high - point.median for point in points]]


def _scale_all(figure, picture, direction):
    """From 0 on, or logarithmic, with numbers that can be read."""
    for panel, axes in zip(picture.panels, figure.axes):
        values = [
            value
            for one in (picture.panels if picture.question.alike else [panel])
            for points in one.series.values()
            for point in points for value in (point.low, point.high)]
        axis = getattr(axes, f'{direction}axis')
        if min(values) > 0 and max(values) / min(values) > _LOGARITHMIC:
            axes.set(**{f'{direction}scale': 'log'})
            fine = max(values) / min(values) < _FINE
            axis.set_major_locator(
                LogLocator(subs=(1, 2, 5) if fine else (1,)))
            axis.set_minor_formatter(NullFormatter())
        else:
            axes.set(**{f'{direction}lim': (0, None)})
            axis.set_major_locator(MaxNLocator(5))
        axis.set_major_formatter('{x:,.10g}')
