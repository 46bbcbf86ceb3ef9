"""Draws `pictures` with matplotlib, which is an extra, as PNG and SVG files.

A contestant has the same colour and the same mark in all of them.  The texts
can be read in a picture of 1200 pixels, and on a telephone.
"""

import itertools
import os
import textwrap

from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter
from matplotlib.ticker import LogLocator
from matplotlib.ticker import MaxNLocator
from matplotlib.ticker import NullFormatter

from ..wording import number
from . import pictures

#: Of a picture; the height is what it needs.
WIDTH, PIXELS = 6.5, 1200

#: Colours that can be told apart by the colour-blind, stock in grey.
LOOKS = {
    'filestorage': ('#555555', 'o'),
    'filestorage:no-fsync': ('#9a9a9a', 's'),
    'filestorage:vote-fsync': ('#777777', 'v'),
    'fsync:group-commit': ('#d55e00', 'o'),
    'fsync:per-commit': ('#b8860b', 'D'),
    'fsync:two-sync': ('#cc79a7', '^'),
    'fsync:interval': ('#4aa3dc', 'P'),
    'fsync:none': ('#0072b2', 's'),
    'zeo': ('#000000', 'X'),
    'zeo:shared': ('#8a8a8a', 'X'),
    'zeo:fsyncstorage': ('#8a8a8a', 'D'),
    'fsync-zeo': ('#b8860b', '>'),
    'fsync-client': ('#c4161c', 'p'),
    'fsync-client:zeo': ('#e377c2', '<'),
    'relstorage:postgresql': ('#1f4e9c', '^'),
    'relstorage:sqlite': ('#009e73', 'v'),
    'relstorage:sqlite-normal': ('#66c2a5', 'd'),
}
_SPARE = [(colour, mark) for mark in '*XpHd' for colour in (
    '#7b3294', '#1b7837', '#a6611a', '#c51b7d', '#2166ac')]

_STYLE = {
    'font.size': 10,
    'axes.edgecolor': '#888888',
    'axes.spines.right': False,
    'axes.spines.top': False,
    'axes.grid': True,
    'axes.axisbelow': True,
    'axes.titlesize': 9,
    'grid.color': '#e4e4e4',
    'figure.constrained_layout.use': True,
    'legend.frameon': False,
    # Texts stay texts: small files, and what has no such font has a narrower
    # one.
    'svg.fonttype': 'none',
    # The same picture makes the same file.
    'svg.hashsalt': 'fsync-time',
}

#: Inches.
_LINE, _MARGIN = 0.2, 0.12
_PANEL_HEIGHT, _ROW_HEIGHT = 2.7, 0.27
#: Characters a line, for texts of these sizes.
_QUESTION, _TEXT, _SMALL = (13, 56), (10, 78), (8, 106)
#: And those of a panel, by how many are side by side.
_IN_PANEL = {1: 66, 2: 30, 3: 18}
#: Contestants side by side, and their characters.
_IN_LEGEND, _LEGEND = 3, 66

#: From here on the small would vanish beside the large, and up to here there
#: is room for more than the powers of ten.
_LOGARITHMIC, _FINE = 40, 500


def save_all(document, directory, formats, questions=pictures.QUESTIONS):
    """Each picture in each format; the directory is made for the first."""
    for picture in pictures.of(document, questions):
        os.makedirs(directory, exist_ok=True)
        path = os.path.join(directory, picture.name)
        save(picture, {form: f'{path}.{form}' for form in formats})


def save(picture, targets):
    """Into files, or file objects, by format."""
    with rc_context(_STYLE):
        figure = draw(picture)
        for form, target in targets.items():
            figure.savefig(
                target, format=form, dpi=PIXELS / WIDTH,
                metadata={'Date': None} if form == 'svg' else None)


def looks_of(contestants):
    """Colour and mark of each; no two are the same."""
    spare = itertools.cycle(_SPARE)
    return {name: LOOKS.get(name) or next(spare) for name in contestants}


def draw(picture):
    """Texts above and below; lines over an axis, or a row for each number."""
    several = max(len(points) for panel in picture.panels
                  for points in panel.series.values()) > 1
    above = [*_wrapped(picture.question.words, *_QUESTION),
             *_wrapped(picture.conditions, *_TEXT)]
    below = _wrapped(picture.footer, *_SMALL)
    looks = looks_of(picture.contestants)
    drawn = {name for panel in picture.panels for name in panel.series}
    names = [name for name in looks if name in drawn]
    draw_body, body = (
        (_draw_lines, _lines_height(picture)) if several
        else (_draw_rows, _rows_height(picture)))
    heights = (
        len(above) * _LINE * 1.2 + _MARGIN,
        body,
        -(-len(names) // _legend_columns(names)) * _LINE + _MARGIN
        if several else 0.01,
        len(below) * _LINE * 0.75 + _MARGIN)
    figure = Figure((WIDTH, sum(heights)))
    top, middle, legend, bottom = figure.subfigures(
        4, 1, height_ratios=heights, hspace=0)
    _write(top, above)
    draw_body(middle, picture, looks)
    if several:
        handles = dict(
            pair for axes in middle.axes
            for pair in zip(*reversed(axes.get_legend_handles_labels())))
        legend.legend(
            [handles[name] for name in names], names,
            ncols=_legend_columns(names), loc='center')
    _write(bottom, below, color='#555555')
    return figure


def _legend_columns(names):
    return max(1, min(
        _IN_LEGEND, len(names), _LEGEND // max(map(len, names))))


def _wrapped(text, size, width):
    return [(line, size) for line in textwrap.wrap(text, width)]


def _write(part, lines, **style):
    """The lines of a text, from the left margin on."""
    for position, (line, size) in enumerate(lines):
        part.text(
            _MARGIN / WIDTH, 1 - (position + 0.3) / (len(lines) + 0.3), line,
            va='top', fontsize=size,
            fontweight='bold' if size == _QUESTION[0] else 'normal', **style)


def _grid(picture):
    """Rows and columns: no label of an axis may touch the next one."""
    number = len(picture.panels)
    columns = 2 if number in (2, 4) else min(number, 3)
    most = max(
        sum(1 + len(picture.question.put(at)) for at in
            pictures.places([panel])) for panel in picture.panels)
    while columns > 1 and _IN_PANEL[columns] < most:
        columns -= 1
    return -(-number // columns), columns


def _lines_height(picture):
    return _grid(picture)[0] * _PANEL_HEIGHT + _LINE


def _draw_lines(figure, picture, looks):
    """Panels side by side."""
    rows, columns = _grid(picture)
    axes = list(figure.subplots(
        rows, columns, squeeze=False, sharey=picture.question.alike).flat)
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
                label=contestant, **_look(looks, contestant))
        axis.set_xticks(range(len(places)), map(picture.question.put, places))
        axis.set_xlim(-0.4, len(places) - 0.6)
    for axis in axes[len(picture.panels):]:
        axis.remove()
    _scale_all(figure, picture, 'y')
    figure.supxlabel(picture.question.along, fontsize=10)
    figure.supylabel(picture.question.up, fontsize=10)


def _rows_height(picture):
    rows = sum(len(panel.series) + 2 for panel in picture.panels)
    return rows * _ROW_HEIGHT + 2 * _LINE


def _draw_rows(figure, picture, looks):
    """Panels one below the other, with the heights of their rows."""
    axes = figure.subplots(
        len(picture.panels), 1, squeeze=False, sharex=picture.question.alike,
        height_ratios=[len(panel.series) + 1 for panel in picture.panels])
    for panel, axis in zip(picture.panels, axes.flat):
        axis.set_title(panel.title, loc='left')
        for row, (contestant, (point,)) in enumerate(panel.series.items()):
            axis.errorbar(
                [point.median], [row], xerr=_ranges([point]), markersize=6,
                capsize=3, **_look(looks, contestant))
            axis.annotate(
                number(point.median), (point.high, row), (6, 0),
                textcoords='offset points', va='center')
        axis.set_yticks(range(len(panel.series)), panel.series)
        axis.set_ylim(len(panel.series) - 0.4, -0.6)
        axis.grid(False, axis='y')
        # Room for the number behind the last one.
        axis.margins(x=0.2)
    _scale_all(figure, picture, 'x')
    figure.supxlabel(picture.question.up, fontsize=10)


def _look(looks, contestant):
    return dict(zip(('color', 'marker'), looks[contestant]))


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
            axis.set_major_locator(MaxNLocator(5, steps=(1, 2, 2.5, 5, 10)))
        axis.set_major_formatter(FuncFormatter(
            lambda value, _: f'{value:,.10g}'))
