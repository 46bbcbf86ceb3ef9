"""What pictures a document has, and what is in them; `drawing` draws them.

A picture answers one question.  It has panels that differ in one thing: the
figure that is shown, what was added to the syncs, or the web server; in each
panel the contestants, by how many commit or read at a time, or by size.  Races
that differ in more make a picture each.
"""

import dataclasses
import typing

from .. import document as documents
from .. import statistics
from .. import tables
from .. import wording
from ..disk import probing
from ..zeo import phrases as zeowording


class Point(typing.NamedTuple):
    """The median of the rounds, and their range."""

    at: int
    median: float
    low: float
    high: float


@dataclasses.dataclass(frozen=True)
class Panel:
    title: str
    #: Points by contestant.
    series: dict


@dataclasses.dataclass(frozen=True)
class Picture:
    #: Of its files, without an ending.
    name: str
    question: str
    #: All of the document, whether or not they are in this picture.
    contestants: list
    #: What all of it shares.
    conditions: str
    #: The axes, with their units.
    along: str
    up: str
    put: typing.Callable
    panels: list
    #: Do the numbers of one panel bear comparison with those of the next?
    alike: bool
    footer: str


@dataclasses.dataclass(frozen=True)
class Question:
    """The pictures of races of one workload."""

    name: str
    words: str
    workload: str
    #: The setting along the axis, and what it is; None where there is none.
    setting: str | None
    along: str
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


def _of_commits(settings):
    tree = 'one shared tree' if settings.get('shared') else 'one tree a thread'
    more = (f', {wording.size(settings["size"])} more a transaction'
            if 'size' in settings else '')
    return f'IIBTree, {tree}{more}'


def _of_syncs(settings):
    return f'{settings["place"]}, {len(probing.RECORD)} bytes at a time'


def _of_loads(settings):
    return (f'{settings["committers"]} threads commit,'
            f' {wording.added(settings["sync_latency"])}')


def of_zeo(settings):
    return ', '.join(zeowording.conditions(settings))


def _of_blobs(settings):
    return f'{wording.count(settings["clients"], "client")}, ' + of_zeo(
        settings)


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
        None, '', 'milliseconds a load',
        _TIMES, 1e3, _of_loads),
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
        _of_syncs),
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
    return [
        picture
        for question in questions
        for picture in _pictures(document, question)]


def _pictures(document, question):
    groups = _groups(document, question)
    names = _names(question, [shared for shared, _ in groups])
    for name, (shared, races) in zip(names, groups):
        panels = [
            panel for panel in _panels(document, question, races)
            if panel.series]
        if panels:
            yield Picture(
                name, question.words, list(document['contestants']),
                ', '.join([question.conditions(shared),
                           *_place(question, panels)]),
                question.along, question.up, question.put, panels,
                len(question.figures) == 1, _footer(document, races))


def _place(question, panels):
    """Where all of them are, when there is no axis to tell."""
    places = {point.at for panel in panels
              for points in panel.series.values() for point in points}
    if question.setting and len(places) == 1:
        yield f'{question.along}: {question.put(*places)}'


def _groups(document, question):
    """Races of one picture each, with the settings that they share."""
    inside = {question.setting, *documents.AMOUNTS}
    if len(question.figures) == 1:
        inside.update(question.apart)
    found = []
    for number in tables.races_of(document, question.workload):
        settings = document['races'][number]['settings']
        shared = {name: value for name, value in settings.items()
                  if name not in inside}
        for others, races in found:
            if others == shared:
                races.append(number)
                break
        else:
            found.append((shared, [number]))
    return found


def _names(question, groups):
    """Each has the values of those settings that are not always the same."""
    different = [
        name for name in dict.fromkeys(key for one in groups for key in one)
        if len({one.get(name) for one in groups}) > 1]
    return ['-'.join([question.name, *(
        _slug(name, one[name]) for name in different if one.get(name))])
            for one in groups]


def _slug(name, value):
    if value is True:
        return name
    text = value if isinstance(value, str) else f'{value} {name}'
    return text.replace(' ', '-')


def _panels(document, question, races):
    for title, figure in question.figures.items():
        by_title = {}
        for race in races:
            settings = document['races'][race]['settings']
            by_title.setdefault(title or question.panel(settings), []).append(
                race)
        for its_title, those in by_title.items():
            yield Panel(
                its_title, _series(document, question, figure, those))


def _series(document, question, figure, races):
    found = {}
    for contestant in document['contestants']:
        points = [
            _point(document, question, figure, race, contestant)
            for race in races]
        points = sorted(point for point in points if point)
        if points and _is_batch(figure, points):
            found[contestant] = points
    return found


def _is_batch(figure, points):
    """More than there are who commit did not wait for the sync."""
    return figure != 'commits_per_sync' or all(
        point.median <= point.at * tables.ABOUT_ONE[1] for point in points)


def _point(document, question, figure, race, contestant):
    values = documents.figures(document, race, contestant, figure)
    if not values:
        return None
    found = statistics.spread(values)
    at = document['races'][race]['settings'].get(question.setting, 0)
    return Point(at, *(
        found[name] * question.scale for name in ('median', 'min', 'max')))


def _footer(document, races):
    machine = document['machine']
    return (
        f'{tables.rounds(document)}: median and range.'
        f' {_added(document, races)} {machine["cpus"]} CPUs'
        f' ({machine["cpu_model"]}), {machine["system"]},'
        f' {machine["file_system"]}: one sync takes'
        f' {wording.duration(machine["sync_p50_seconds"])}.'
        f' {document["began"][:10]}')


def _added(document, races):
    """To the syncs of these; and what else was, as the document says."""
    to_syncs = wording.all_added(
        document['races'][race]['settings'].get('sync_latency', 0.0)
        for race in races)
    # There, the first sentence is about the syncs of all races.
    _, _, others = document['added'].partition('. ')
    return f'{to_syncs} {others}'.rstrip()
