"""The same for a node whose commits go to a log, too (`quorum`).

The node's machine loses its power, and the log does not: it has what had
landed by then; and one record more, perhaps, which was on its way.  Then the
node starts again from its files and the log, and must have just what the log
has, and all that was acknowledged; and the blobs that the log names, and no
others.

A record of the log lands when it is sent, or only when its answer is read:
before the disk is synced, or behind that.
"""

import contextlib
import glob
import os
import typing
from unittest import mock

from ZODB.POSException import StorageError

from fsyncstorage import FsyncStorage
from fsyncstorage.pack import agreed
from fsyncstorage.quorum.following import repacking
from fsyncstorage.quorum.leading import keeping
from fsyncstorage.quorum.leading.replicator import Replicator

from ...memory import scratch_directory
from ...quorum import packed
from ...quorum.blobnodes import found_blobs
from ...quorum.blobnodes import named_blobs
from ...quorum.fakelog import FakeLog
from ...quorum.logged import bootstrap
from ...quorum.nodes import content_of
from ...quorum.nodes import of_records
from ...quorum.nodes import started
from . import campaign
from . import events
from .contents import references_of
from .judge import REFUSED
from .judge import Judge
from .judge import Problem
from .site import Site

#: What its file is not.
DIFFERS = 'differs'


class MarkingLog(FakeLog):

    def __init__(self, engine, mark, is_late):
        super().__init__(engine)
        self._mark = mark
        self._is_late = is_late
        self._asked = None

    def ask(self, before, place, raw):
        self._mark(events.Sent(place.sequence, raw))
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
        engine.landed = lambda raw: self.mark(
            events.Landed(len(engine.records) + 1))

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
            agreed, 'refuse_a_wrapper', lambda references: None), \
            mock.patch.object(repacking, 'referencesf', references_of), \
            mock.patch.object(packed, 'references', references_of):
        yield


class Logged(typing.NamedTuple):
    """What a workload left behind, on the disk and in the log."""

    recording: campaign.Recording
    #: What the log had before, and all that came to it.
    records: list
    #: The chunks of the blobs that were staged.
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
            bootstrap(os.path.join(directory, 'Data.fs'))
        else:
            over.write(directory)
        with Site(directory, node, workload.blobs, ledger=ledger,
                  standing=standing) as site:
            node.mark = site.recorder.mark
            site.recorder.mark(events.Landed(len(records)))
            workload.prepare(site)
            start = len(site.recorder.log)
            workload.run(site)
            log = site.recorder.log[:]
        node.mark = lambda event: None
        campaign.check_that_it_explains(site.recorder.log, directory)
    return Logged(
        campaign.Recording(log, start, site.ledger, workload.blobs),
        node.engine.records, node.engine.blobs)


def _engine(records, staged):
    engine = of_records(records)
    engine.blobs = dict(staged)
    return engine


def keep(site):
    """Save what the node keeps, as its thread does now and then."""
    site.storage.replica._keeper.save()


# Verdicts

class NodeJudge(Judge):
    """A start over an image and the log gives what the log says.

    The log has what had landed, or one record more.
    """

    def __init__(self, logged):
        recording = logged.recording
        super().__init__(  # it promises all
            None, 'group-commit', recording.ledger, recording.blobs)
        self._logged = logged
        self._has_blobs = recording.blobs
        self._count = 0

    def verdict(self, directory, standing, thorough=False):
        self._count += 1
        records = self._logged.records[:standing.landed]
        number, raw = standing.sent
        if number == len(records) + 1 and self._count % 2:
            records.append(raw)
        return list(self._problems(directory, standing, Node(
            _engine(records, self._logged.staged))))

    def _problems(self, directory, standing, node):
        path = os.path.join(directory, 'Data.fs')
        blob_dir = os.path.join(directory, 'blobs') if (
            self._has_blobs) else None
        try:
            with contextlib.closing(node(path, blob_dir)) as storage:
                yield from self.compare(self.look(storage), standing)
        except (AssertionError, OSError, StorageError) as error:
            yield Problem(REFUSED, f'{type(error).__name__}: {error}')
            return
        with open(path, 'rb') as file:
            if file.read() != content_of(node.engine):
                yield Problem(DIFFERS, 'from what the log says')
        if blob_dir and found_blobs(blob_dir) != named_blobs(node.engine):
            yield Problem(DIFFERS, 'in its blobs from what the log says')
        if left := glob.glob(f'{path}.quorum.*'):
            yield Problem(DIFFERS, f'{left} is left')


def trial(logged, number):
    """(model, case, problems) of about so many images."""
    with references_are_ours():
        yield from campaign.trial(
            logged.recording, NodeJudge(logged), number)
