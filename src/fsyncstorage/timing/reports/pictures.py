"""What pictures a document has, and what is in them; `drawing` draws them.

A picture answers one question.  It has panels that differ in one thing: the
figure that is shown, or what was added to the syncs; in each panel the
contestants, by how many commit or read at a time, or by size.  Races that
differ in more make a picture each.
"""

import dataclasses
import typing

from .. import document as documents
from .. import quiet
from .. import statistics
from .. import tables
from .. import wording
from ..zeo.tables import conditions


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
class Question:
    """The pictures of races of one workload."""

    name: str
    words: str
    workload: str
    #: The setting along the axis, and what it is; None where there is none.
    setting: str | None
    along: str
    #: What goes up, with its unit.
    up: str
    #: Figures by the titles of their panels.  A single one may have no title:
    #: its panels differ in the settings `apart`, and `panel` is their title.
    figures: dict
    scale: float = 1
    conditions: typing.Callable = lambda settings: ''
    #: How the values of the setting are put.
    put: typing.Callable = str
    apart: tuple = ('sync_latency',)
    panel: typing.Callable = lambda settings: wording.added(
        settings.get('sync_latency', 0.0))

    @property
    def alike(self):
        """Do the numbers of one panel bear comparison with the next one's?"""
        return len(self.figures) == 1


@dataclasses.dataclass(frozen=True)
class Picture:
    #: Of its files, without an ending.
    name: str
    question: Question
    #: What all of it shares.
    conditions: str
    #: All of the document, whether or not they are in this picture.
    contestants: list
    panels: list
    footer: str


def _of_commits(settings):
    tree = 'one shared tree' if settings.get('shared') else 'one tree a thread'
    return f'IIBTree, {tree}'


def _of_loads(settings):
    return (f'{settings["committers"]} threads commit,'
            f' {wording.added(settings["sync_latency"])}')


def of_zeo(settings):
    return ', '.join(conditions(settings))


def _of_blobs(settings):
    return (f'{wording.count(settings["clients"], "client")},'
            f' {of_zeo(settings)}')


def _of_reads_beside(settings):
    return f'{of_zeo(settings)}, {wording.added(settings["sync_latency"])}'


_TIMES = {
    'the median': 'p50_seconds',
    '99 of 100 are faster': 'p99_seconds',
    'the slowest': 'max_seconds',
}
_READS = 'cold', 'hot', 'steamin', 'prefetch'
_BLOBS = 'cold', 'cached', 'direct'
_MB = 1 << 20

QUESTIONS = (
    Question(
        'commits', 'How many commits a second?', 'commits',
        'threads', 'threads that commit', 'commits a second',
        {'': 'txn_per_second'}, conditions=_of_commits),
    Question(
        'batches', 'How many commits share a sync?', 'commits',
        'threads', 'threads that commit', 'commits in a sync',
        {'': 'commits_per_sync'}, conditions=_of_commits),
    Question(
        'loads', 'How long does a load take while others commit?', 'loads',
        None, '', 'milliseconds a load', _TIMES, 1e3, _of_loads),
    Question(
        'zeo-commits', 'How many commits a second, over ZEO?', 'write',
        'clients', 'client processes', 'commits a second',
        {'': 'txn_per_second'}, conditions=of_zeo),
    Question(
        'zeo-commit-times', 'How long does a commit take, over ZEO?', 'write',
        'clients', 'client processes', 'milliseconds a commit (median)',
        {'': 'p50_seconds'}, 1e3, of_zeo),
    Question(
        'zeo-reads', 'How many objects can be read a second?', 'read',
        'clients', 'client processes', 'objects a second, all clients',
        {how: f'{how}_per_second' for how in _READS}, conditions=of_zeo),
    Question(
        'zeo-read-times', 'How long does it take to read an object?', 'read',
        'clients', 'client processes', 'microseconds an object (median)',
        {how: f'{how}_p50_seconds' for how in _READS[:-1]}, 1e6, of_zeo),
    Question(
        'light-commits', 'How many commits a second can the server take?',
        'light', 'connections', 'light connections', 'commits a second',
        {'': 'txn_per_second'}, conditions=of_zeo),
    Question(
        'light-commit-times', 'How long does the server take for a commit?',
        'light', 'connections', 'light connections',
        'milliseconds a commit (median)', {'': 'p50_seconds'}, 1e3, of_zeo),
    Question(
        'syncs', 'How long does it take to write and sync?', 'sync',
        None, '', 'microseconds', _TIMES, 1e6,
        lambda settings: f'{settings["place"]}, 1000 bytes at a time'),
    Question(
        'blob-reads', 'How many blobs can be read a second?', 'blob-read',
        'size', 'size of a blob', 'blobs a second, all clients',
        {how: f'{how}_per_second' for how in _BLOBS}, 1, _of_blobs,
        wording.size),
    Question(
        'blob-read-speeds', 'How fast are blobs read?', 'blob-read',
        'size', 'size of a blob', 'MB a second, all clients',
        {how: f'{how}_bytes_per_second' for how in _BLOBS}, 1 / _MB, _of_blobs,
        wording.size),
    Question(
        'blob-writes', 'How fast are blobs written?', 'blob-write',
        'size', 'size of a blob', 'MB a second, all clients',
        {'': 'write_bytes_per_second'}, 1 / _MB, _of_blobs, wording.size),
    Question(
        'reads-beside-commits',
        'How long does a cold read take while another client commits?',
        'read-beside-commit', None, '', 'milliseconds a read',
        _TIMES, 1e3, _of_reads_beside),
)


def of(document, questions=QUESTIONS):
    """All pictures of a document; none of what was not measured."""
    return [picture for question in questions
            for picture in _pictures(document, question)]


def _pictures(document, question):
    inside = {question.setting, *documents.AMOUNTS}
    if question.alike:
        inside.update(question.apart)
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
                question, ', '.join([question.conditions(shared),
                                     *_place(question, panels)]),
                list(document['contestants']), panels,
                _footer(document, races))


def _slug(name, value):
    if value is True:
        return name
    text = value if isinstance(value, str) else f'{value} {name}'
    return text.replace(' ', '-')


def places(panels):
    """All of them along the axis, in order."""
    return sorted({point.at for panel in panels
                   for points in panel.series.values() for point in points})


def _place(question, panels):
    """Where all of them are, when there is no axis to tell."""
    if question.setting and len(places(panels)) == 1:
        yield f'{question.along}: {question.put(*places(panels))}'


def _panels(document, question, races):
    for title, figure in question.figures.items():
        by_title = {}
        for race in races:
            settings = document['races'][race]['settings']
            by_title.setdefault(title or question.panel(settings), []).append(
                race)
        for its_title, those in by_title.items():
            yield Panel(its_title, {
                contestant: points
                for contestant in document['contestants']
                if (points := sorted(_points(
                    document, question, figure, those, contestant)))
                and _is_batch(figure, points)})


def _is_batch(figure, points):
    """More than there are who commit did not wait for the sync."""
    return figure != 'commits_per_sync' or all(
        point.median <= point.at * tables.ABOUT_ONE[1] for point in points)


def _points(document, question, figure, races, contestant):
    for race in races:
        values = documents.figures(document, race, contestant, figure)
        if values:
            settings = document['races'][race]['settings']
            yield Point(settings.get(question.setting, 0), *(
                value * question.scale
                for value in statistics.spread(values).values()))


def _footer(document, races):
    machine = document['machine']
    to_syncs = wording.all_added(
        document['races'][race]['settings'].get('sync_latency', 0.0)
        for race in races)
    # There, the first sentence is about the syncs of all races.
    _, _, others = document['added'].partition('. ')
    return ' '.join(filter(None, (
        f'{tables.rounds(document)}: median and range.', to_syncs, others,
        f'{machine["cpus"]} CPUs ({machine["cpu_model"]}),'
        f' {machine["system"]}, {machine["file_system"]}: one sync takes'
        f' {wording.duration(machine["sync_p50_seconds"])}.',
        quiet.warning(document), document['began'][:10])))
