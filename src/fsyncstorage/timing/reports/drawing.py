"""Draws `pictures` with matplotlib, which is an extra, as PNG or SVG.

A contestant has the same colour and the same mark in all of them.  The texts
can be read in a picture of 1200 pixels, and on a phone.
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

#: The width of a picture; its height depends on what is in it.
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
    # Texts stay texts: that makes small files.  Where the font is missing,
    # another one is shown.
    'svg.fonttype': 'none',
    # The same picture is the same file each time.
    'svg.hashsalt': 'fsync-time',
}

#: Heights, in inches.
_LINE, _PANEL_HEIGHT, _ROW_HEIGHT = 0.2, 2.7, 0.27
#: Characters in a line: of the question, and of the conditions below.
_QUESTION, _SMALL = 56, 104
#: Characters along the axis of a panel, by the number of panels side by side.
_IN_PANEL = {1: 66, 2: 30, 3: 18}
#: Contestants side by side in the legend, and characters in its line.
_IN_LEGEND, _LEGEND = 3, 66

#: Ratios of the largest to the smallest value.  Above the first ratio, the
#: axis is logarithmic; below the second one, it has room for labels between
#: the powers of ten.
_LOGARITHMIC, _FINE = 40, 500


def save(picture, form, target):
    """Draw a picture into a file; `target` is a path or a file object."""
    with rc_context(_STYLE):
        draw(picture).savefig(
            target, format=form, dpi=PIXELS / WIDTH,
            metadata={'Date': None} if form == 'svg' else None)


def looks_of(contestants):
    """How to draw each, for matplotlib; no two look the same."""
    return {
        name: dict(color=colour, marker=mark, label=name)
        for name, colour, mark in zip(
            contestants, itertools.cycle(_COLOURS),
            itertools.cycle('oXs^DPv'))}


def draw(picture):
    """Lines along an axis; or rows, if all points are at one place of it."""
    question = picture.question
    looks = looks_of(picture.contestants)
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
    """Draw panels side by side; return their height."""
    question = picture.question
    number = len(picture.panels)
    columns = 2 if number in (2, 4) else min(number, 3)
    # The labels of an axis must not touch.
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
            # A little apart, so that ranges do not hide each other.
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
    """Draw panels one below the other, with a row for each contestant."""
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
        # Leave room for the number to the right of the last point.
        axis.margins(x=0.2)
    axis.set_xlabel(picture.question.up)
    _scale_all(figure, picture, 'x')
    return (sum(heights) + len(heights)) * _ROW_HEIGHT


def _ranges(points):
    return [[point.median - point.low for point in points],
            [point.high - point.median for point in points]]


def _scale_all(figure, picture, direction):
    """Make axes start at 0 or be logarithmic, with readable numbers."""
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
