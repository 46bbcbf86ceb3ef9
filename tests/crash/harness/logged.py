"""The same for a node whose commits go to a log, too (`quorum`).

The node's machine loses its power, and the log does not: it has what had
landed by then; and one record more, perhaps, which was on its way.  Then the
node starts again from its files and the log, and must have just what the log
has, and all that was acknowledged; and the blobs that the log names, and no
others.

A `Record` of the log lands when it is sent, or only when its answer is read:
before the disk is synced, or behind that.
"""

import contextlib
import glob
import itertools
import os
import random
import shutil
import typing
from unittest import mock

from ZODB.POSException import StorageError

from fsyncstorage import FsyncStorage
from fsyncstorage.pack import agreed
from fsyncstorage.pack import unopened
from fsyncstorage.quorum.leading import keeping
from fsyncstorage.quorum.leading.replicator import Replicator

from ...memory import scratch_directory
from ...quorum import packed
from ...quorum.blobnodes import found_blobs
from ...quorum.blobnodes import named_blobs
from ...quorum.fakelog import FakeLog
from ...quorum.nodes import begin_log
from ...quorum.nodes import content_of
from ...quorum.nodes import of_records
from ...quorum.nodes import started
from . import campaign
from . import images
from . import powercut
from .contents import references_of
from .judge import REFUSED
from .judge import Judge
from .judge import Problem
from .ledger import Ledger
from .ledger import Standing
from .site import Site
from .tearing import MODELS

#: What its file is not.
DIFFERS = 'differs'


class Sent(typing.NamedTuple):
    """A mark: this record is on its way."""

    number: int
    raw: bytes


class Landed(typing.NamedTuple):
    """A mark: the log has so many records."""

    number: int


class MarkingLog(FakeLog):

    def __init__(self, engine, mark, is_late):
        super().__init__(engine)
        self._mark = mark
        self._is_late = is_late
        self._asked = None

    def ask(self, before, place, raw):
        self._mark(Sent(place.sequence, raw))
        if self._is_late:
            self._asked = before, place, raw
        else:
            super().ask(before, place, raw)

    def answered(self):
        if self._is_late:
            self.append(*self._asked)
        else:
            super().answered()

    def stop(self):
        pass

    def close(self):
        pass


class Node:
    """Opens the storage of a node, again and again, over one log."""

    def __init__(self, engine, is_late=False, replicator=Replicator):
        self.engine = engine
        self._is_late = is_late
        self._replicator = replicator
        self.mark = lambda event: None
        engine.landed = lambda raw: self.mark(Landed(len(engine.records) + 1))

    def __call__(self, path, blob_dir=None, **options):
        log = MarkingLog(
            self.engine, lambda event: self.mark(event), self._is_late)
        return started(
            FsyncStorage, path, log, f'node{len(self.engine.records)}',
            self._replicator, durability='quorum', group_commit_delay=0,
            blob_dir=blob_dir, **options)


@contextlib.contextmanager
def references_are_ours():
    """While this lasts, each node finds the references in our records."""
    with mock.patch.object(
            agreed, 'version_of', lambda references: agreed.VERSION), \
            mock.patch.object(unopened, 'referencesf', references_of), \
            mock.patch.object(packed, 'references', references_of):
        yield


class Recording(typing.NamedTuple):
    """What a workload left behind, on the disk and in the log."""

    log: list
    start: int
    ledger: Ledger
    #: What the log had before, and all that came to it.
    records: list
    #: Whether there are blobs, and the chunks of those that were staged.
    blobs: bool
    staged: dict


def record(workload, over=None, records=(), ledger=None, standing=None,
           staged=None, **of_node):
    node = Node(_engine(records, staged or {}), **of_node)
    with scratch_directory() as scratch, campaign.quiet(), \
            references_are_ours(), mock.patch.object(
            keeping, 'LATE', 3600.0):  # what is kept is kept when told
        directory = os.path.join(scratch, 'site')
        if over is None:
            os.mkdir(directory)
            begin_log(os.path.join(directory, 'Data.fs'))
        else:
            over.write(directory)
        with Site(directory, node, workload.blobs, ledger=ledger,
                  standing=standing) as site:
            node.mark = site.recorder.mark
            site.recorder.mark(Landed(len(records)))
            workload.prepare(site)
            start = len(site.recorder.log)
            workload.run(site)
            log = site.recorder.log[:]
        node.mark = lambda event: None
        campaign.check_that_it_explains(site.recorder.log, directory)
    return Recording(log, start, site.ledger, node.engine.records,
                     workload.blobs, node.engine.blobs)


def _engine(records, staged):
    engine = of_records(records)
    engine.blobs = dict(staged)
    return engine


def keep(site):
    """Save what the node keeps, as its thread does now and then."""
    site.storage._replica._keeper.save()


# Cuts and images

# So many of its cases show all that differs in kind: three models; nothing,
# all, some; with a record that is on its way, and without.
TURNS = 3 * 3 * 2


class Cut(typing.NamedTuple):

    position: int
    standing: Standing
    disk: powercut.Disk
    #: What the log may have.
    histories: list


def cuts(recording):
    """Where the disk or the log changes, or something was promised."""
    standing, disk = Standing(), powercut.Disk()
    landed, sent = [], None
    log = recording.log
    for position, event in enumerate(log):
        if position >= recording.start and (
                isinstance(event, Sent | Landed)
                or campaign._is_worth_it(log, position)):
            yield Cut(position, standing.copy(), disk.copy(),
                      _histories(landed, sent))
        standing.after(event)
        disk.after(position, event)
        if isinstance(event, Landed):
            landed = recording.records[:event.number]
        elif isinstance(event, Sent):
            sent = event
    yield Cut(len(log), standing, disk, _histories(landed, sent))


def _histories(landed, sent):
    on_its_way = sent is not None and sent.number == len(landed) + 1
    return [landed, *([[*landed, sent.raw]] if on_its_way else [])]


class Case(typing.NamedTuple):

    image: images.Image
    standing: Standing
    records: list
    model: str
    words: str


def cases(recording, number):
    """At most about that many, spread over all cuts, histories and models."""
    found = campaign._spread(number, list(cuts(recording)))
    each = number // len(found)
    for place, cut in enumerate(found):
        # Where there are few of each, those of one cut are not of the next.
        yield from itertools.islice(
            _cases_of(cut), place % TURNS, place % TURNS + each)


def _cases_of(cut):
    """Of each model: nothing got there, all of it, and some of it."""
    spaces = {model: images.Space(cut.disk, tear)
              for model, tear in MODELS.items()}
    source = random.Random(f'{campaign.SEED} {cut.position}')
    for turn in itertools.count():
        for model, space in spaces.items():
            choice = _choice(turn, space.options, source)
            for records in cut.histories:
                yield Case(
                    space.image(choice), cut.standing, records, model,
                    f'cut at {cut.position}, {model}, choice {choice},'
                    f' {len(records)} records')


def _choice(turn, options, source):
    if turn == 0:
        return [0] * len(options)
    if turn == 1:
        return [each - 1 for each in options]
    return images.at_random(options, source)


# Verdicts

def trial(recording, number):
    """(model, case, problems) of about so many images."""
    judge = Judge(  # it promises all
        None, 'group-commit', recording.ledger, recording.blobs)
    with scratch_directory() as scratch, campaign.quiet(), \
            references_are_ours():
        for place, case in enumerate(cases(recording, number)):
            directory = os.path.join(scratch, str(place))
            yield case.model, case, list(
                _problems(judge, case, directory, recording))
            shutil.rmtree(directory, ignore_errors=True)


def _problems(judge, case, directory, recording):
    case.image.write(directory)
    path = os.path.join(directory, 'Data.fs')
    blob_dir = os.path.join(directory, 'blobs') if recording.blobs else None
    node = Node(_engine(case.records, recording.staged))
    try:
        with contextlib.closing(node(path, blob_dir)) as storage:
            yield from judge.compare(judge.look(storage), case.standing)
    except (AssertionError, OSError, StorageError) as error:
        yield Problem(REFUSED, f'{type(error).__name__}: {error}')
        return
    with open(path, 'rb') as file:
        if file.read() != content_of(node.engine):
            yield Problem(DIFFERS, 'from what the log says')
    if recording.blobs and found_blobs(blob_dir) != named_blobs(node.engine):
        yield Problem(DIFFERS, 'in its blobs from what the log says')
    if left := glob.glob(f'{path}.quorum.*'):
        yield Problem(DIFFERS, f'{left} is left')
