"""The pictures of a document, and what is in them; `drawing` draws them.

A picture answers one of the `questions`.  It has panels that differ in one
thing: the figure that is shown, or what was added to the syncs.  A panel has
the contestants, by number of threads or clients, or by size.  Races that
differ in more than that are in pictures of their own.
"""

import dataclasses
import typing

from ..results import document as documents
from ..results import estimates
from ..results import quiet
from ..results import tables
from ..results.questions import QUESTIONS
from ..results.questions import Question
from ..results.questions import conditions
from ..results.wording import duration


class Point(typing.NamedTuple):
    """The median of the rounds, and their range."""

    at: int
    median: float
    low: float
    high: float


class Panel(typing.NamedTuple):
    title: str
    #: Points by contestant.
    series: dict


@dataclasses.dataclass(frozen=True)
class Picture:
    #: The name of its files, without an ending.
    name: str
    question: Question
    #: What all races in it share, in words.
    conditions: str
    #: All contestants of the document, also those that are not shown.
    contestants: list
    panels: list
    footer: str


def of(document, questions=QUESTIONS):
    """All pictures of a document, without those that would be empty."""
    return [picture for question in questions
            if question.picture
            for picture in _pictures(document, question)]


def _pictures(document, question):
    inside = {question.setting, *documents.AMOUNTS}
    if question.alike:
        inside.add(question.apart)
    groups = documents.grouped(document, question.workload, inside)
    differing = [
        name for name in dict.fromkeys(key for one, _ in groups for key in one)
        if len({one.get(name) for one, _ in groups}) > 1]
    for shared, races in groups:
        panels = [panel for panel in _panels(document, question, races)
                  if panel.series]
        if panels:
            yield Picture(
                '-'.join([question.name, *(
                    _slug(name, shared[name]) for name in differing
                    if shared.get(name))]),
                question, ', '.join(filter(None, (
                    conditions(shared), *_place(question, panels)))),
                list(document['contestants']), panels, _footer(document))


def _slug(name, value):
    if value is True:
        return name
    text = value if isinstance(value, str) else f'{value} {name}'
    return text.replace(' ', '-')


def places(panels):
    """All places of points along the axis, in order."""
    return sorted({point.at for panel in panels
                   for points in panel.series.values() for point in points})


def _place(question, panels):
    """Yields the place of all points, if they are drawn without an axis."""
    if question.setting and len(places(panels)) == 1:
        yield f'{question.along}: {question.put(*places(panels))}'


def _panels(document, question, races):
    for title, figure in question.figures.items():
        by_title = {}
        for race in races:
            settings = document['races'][race]['settings']
            by_title.setdefault(title or conditions({
                question.apart: settings.get(question.apart, 0.0)
            }), []).append(race)
        for its_title, those in by_title.items():
            yield Panel(its_title, {
                contestant: points
                for contestant in document['contestants']
                if (points := sorted(_points(
                    document, question, figure, those, contestant)))
                and (figure != 'commits_per_sync' or all(
                    tables.waited(point.median, point.at)
                    for point in points))})


def _points(document, question, figure, races, contestant):
    for race in races:
        values = documents.values(document, race, contestant, figure)
        if values:
            settings = document['races'][race]['settings']
            yield Point(settings.get(question.setting, 0), *(
                value * question.scale
                for value in estimates.spread(values.values()).values()))


def _footer(document):
    machine = document['machine']
    # The first sentence is about the syncs, which the conditions have, too.
    _, _, others = document['added'].partition('. ')
    return ' '.join(filter(None, (
        f'{tables.rounds(document)}: median and range.', others,
        f'{machine["cpus"]} CPUs ({machine["cpu_model"]}),'
        f' {machine["system"]}, {machine["file_system"]}: one sync takes'
        f' {duration(machine["sync_p50_seconds"])}.',
        quiet.warning(document), document['began'][:10])))
