"""I11 and I16: after a power cut at any moment, a node comes back to what a
log says, and to the blobs that it names, all of them and no others.

A standby, its packs and the start of a node are recorded; of each, directories
are built that a power cut could have left, and a node is started over them.
None may be refused, and each must have the bytes of the log, whether it is the
log of that moment, or another node has led since.  The log with blobs is made
by storages that write into it: blobs are stored, replaced and undone, one
writer follows the other, and leaves a batch that is given up.

What a node does is recorded by the harness, beside a log in memory, which
keeps all that it was given.  The marks in the recording say how many records
the log had (in the place of the time).

(A primary, which is a storage, is in test_crash_replicator.)
"""

import contextlib
import functools
import glob
import itertools
import os
import random
import threading
import typing
import unittest
from unittest import mock

from fsyncstorage import datafile
from fsyncstorage.pack.plan import NothingToDo
from fsyncstorage.quorum.files import state as states
from fsyncstorage.quorum.following.rejoin import rejoin
from fsyncstorage.quorum.history.fold import step
from fsyncstorage.quorum.history.record import Blob
from fsyncstorage.quorum.history.record import Data
from fsyncstorage.quorum.history.record import parse
from fsyncstorage.quorum.history.record import place_of
from fsyncstorage.quorum.log.interface import Unanswered
from fsyncstorage.quorum.log.reading import Reader
from fsyncstorage.quorum.log.reading import Refused
from fsyncstorage.storage import opening
from fsyncstorage.storage import recovery

from ..format.sealing import window_of
from ..memory import scratch_directory
from ..often import often
from ..quorum.blobnodes import found_blobs
from ..quorum.blobnodes import named_blobs
from ..quorum.fakelog import FakeLog
from ..quorum.logged import IN_PROCESS
from ..quorum.logged import Logged
from ..quorum.logged import apply as apply_one
from ..quorum.logged import bootstrap
from ..quorum.logged import contents
from ..quorum.logged import restored
from ..quorum.nodes import led
from ..quorum.nodes import of_records
from ..quorum.nodes import state_behind
from ..quorum.samples import data
from ..quorum.samples import following
from ..support import PATIENCE
from ..support import oid
from .harness import campaign
from .harness import events
from .harness import past_seam
from .harness import workloads
from .harness.judge import BLOB
from .harness.judge import DISAGREES
from .harness.judge import INVENTED
from .harness.judge import REFUSED
from .harness.judge import Problem
from .harness.ledger import Ledger
from .harness.logged import record as record_writers
from .harness.recorder import Recorder
from .harness.recorder import RecordingDisk

#: Of each recording of a workload, and of each start.
IMAGES, IMAGES_OF_A_START = often(30, 120), often(10, 20)


class Recorded(typing.NamedTuple):

    recording: campaign.Recording
    logged: Logged


def rejoined(path, engine, has_blobs):
    """The start of a node."""
    return rejoin(
        path, FakeLog(engine), threading.Event(), IN_PROCESS,
        os.path.join(os.path.dirname(path), 'blobs') if has_blobs else None)


class Node:
    """A node whose disk is recorded."""

    has_blobs = False

    def __init__(self, directory, logged, seed):
        self.path = os.path.join(directory, 'Data.fs')
        self.logged = logged
        self.random = random.Random(seed)
        self.recorder = Recorder(directory)

    def mark(self):
        self.recorder.mark(events.Passed(len(self.logged.engine.records)))

    def rejoin(self):
        return rejoined(self.path, self.logged.engine, self.has_blobs)


def record(workload, logged=None, image=campaign.EMPTY, seed=1, make=Node):
    """Record what `workload(node)` does, in the directory of an image."""
    logged = Logged() if logged is None else logged
    with scratch_directory() as scratch, campaign.quiet():
        directory = os.path.join(scratch, 'site')
        image.write(directory)
        if not image.files:
            bootstrap(os.path.join(directory, 'Data.fs'))
        node = make(directory, logged, seed)
        start = len(node.recorder.log)
        node.mark()
        with mock.patch.object(
                datafile, 'disk', RecordingDisk(node.recorder)
                ), past_seam.recorded(node.recorder):
            workload(node)
        log = node.recorder.log[:]
        campaign.check_that_it_explains(log, directory)
    return Recorded(
        campaign.Recording(log, start, Ledger(), False), logged)


# What nodes do

def follow(node, steps=60):
    """A standby, of writers that come and go, and whose packs are swapped, or
    given up."""
    logged, choose = node.logged, node.random
    logged.objects = 5
    logged.lead().write(60, 500, 5, 300, 60, 700, 20)
    node.mark()
    follower = node.rejoin()
    for _ in range(steps):
        step = choose.choice((
            'write', 'write', 'write', 'pack', 'pack', 'pack', 'give up',
            'lead', 'apply', 'apply', 'apply', 'sync', 'save', 'index'))
        if step == 'write':
            logged.write(*some_sizes(choose))
        elif step == 'pack':
            go_on_to_pack(logged, choose)
        elif step == 'give up':
            logged.write_some_of(
                *some_sizes(choose), 300, records=choose.randint(1, 5))
            node.mark()
            apply(follower, logged, choose.randint(1, 60))
            logged.lead()
        elif step == 'lead':
            logged.lead()
        elif step == 'apply':
            apply(follower, logged, choose.randint(1, 60))
        else:
            follower.sync()
            if step == 'save':
                follower.save()
            elif step == 'index':
                follower.save_index()
        node.mark()
    apply(follower, logged, 1000)
    follower.close()


def go_on_to_pack(logged, choose):
    if logged.state.pack is None:
        logged.begin_pack()
    elif choose.random() < .2:
        logged.end_pack()
    else:
        try:
            logged.swap()
        except NothingToDo:
            logged.end_pack()


def some_sizes(choose):
    return [choose.choice((5, 60, 500, 1500))
            for _ in range(choose.randint(1, 3))]


def apply(follower, logged, number):
    reader = Reader(FakeLog(logged.engine), follower.state)
    while number > 0 and (given := reader.read()):
        for applied in given:
            apply_one(follower, applied)
            wait_for_pack(follower)
        number -= len(given)


def wait_for_pack(follower):
    """What its thread does is done: the same in each run."""
    pack = follower._repacking._pack
    if pack is not None and not pack.wait(PATIENCE):
        raise AssertionError('a pack takes too long')


def start(node):
    node.rejoin().close()


# What is made of an image

class Judge:
    """A start over an image must give what the log says.

    The log is the one of the cut, or another node has led since.  It is never
    refused: it has all that was acknowledged.
    """

    has_blobs = False

    def __init__(self, logged):
        self._logged = logged
        self._count = 0
        self._logs = {}

    def _log(self, number, went_on):
        """The engine, and what a file has that follows it."""
        key = number, went_on
        if key not in self._logs:
            engine = restored(self._logged.engine, number)
            if went_on:
                self._go_on(engine)
            self._logs[key] = engine, contents(engine.records)
        return self._logs[key]

    @staticmethod
    def _go_on(engine):
        """Another node leads."""
        other = Logged(engine, 'other').lead()
        other.write(60, 500).write(1500).write(5)

    def verdict(self, directory, standing, thorough):
        self._count += 1
        number = int(standing.now)
        problems = self._start(
            directory, *self._log(number, self._count % 2 == 0))
        if thorough and not problems:  # and another start, when it went on
            problems = self._start(directory, *self._log(number, True))
        return problems

    def _start(self, directory, engine, expected):
        path = os.path.join(directory, 'Data.fs')
        try:
            follower = rejoined(path, engine, self.has_blobs)
        except (Refused, Unanswered, OSError) as error:
            return [Problem(REFUSED, f'{type(error).__name__}: {error}')]
        opened = follower.hand_over()
        with opened.file, contextlib.closing(opened.lock_file):
            return [*self._problems(path, follower, opened, expected)]

    @staticmethod
    def _problems(path, follower, opened, expected):
        if follower.state != expected.state:
            yield Problem(DISAGREES, f'it is at {follower.state}')
        kept = states.load(path)
        if kept.state.end != expected.state.end:
            yield Problem(DISAGREES, f'{kept} is kept')
        content = opened.content
        with open(path, 'rb') as file:
            found = file.read()
        if found != expected.content:
            yield Problem(INVENTED, 'the file is not what the log says')
        known, damage = recovery.read_on(
            window_of(found), opening.nothing_known())
        if damage is not None or (
                known.index.items() != content.index.items()
                or (known.end, known.tid) != (content.end, content.tid)):
            yield Problem(DISAGREES, 'the index is not that of the file')


class NodeCase(unittest.TestCase):

    def judge(self, recorded, images, by):
        count, wrong = campaign.wrong(campaign.trial(
            recorded.recording, by(recorded.logged), images))
        self.assertEqual(wrong, {})
        return count

    @staticmethod
    def torn(recorded, number):
        """So many of the images that a recording may leave."""
        return itertools.islice(campaign.cases(
            recorded.recording, '512-byte blocks', 9 * number), 0, None, 9)


class CrashQuorum(NodeCase):

    level = 2

    def test_a_standby(self):
        for seed in range(often(3, 400)):
            with self.subTest(seed=seed):
                count = self.judge(record(follow, seed=seed), IMAGES, Judge)
                self.assertEqual(count, IMAGES)

    def test_the_start_of_a_standby(self):
        """A power cut in a start, and after it."""
        first = record(follow, seed=3)
        for case in self.torn(first, often(4, 200)):
            logged = Logged(restored(
                first.logged.engine, int(case.standing.now)))
            with self.subTest(case.words):
                count = self.judge(
                    record(start, logged, case.image),
                    IMAGES_OF_A_START, Judge)
                self.assertGreater(count, 0)  # it may have little to do


# With blobs

class Writers(workloads.Workload):
    """Storages that write into a log, one after the other."""

    blobs = True

    def prepare(self, site):
        pass

    def run(self, site):
        for number in range(3):
            site.open()
            site.commit_blobs({1: 10 + number, 2: 0, 3: 3000})
            tid = site.commit_blobs({1: 5, 4: 700})
            site.commit_undo(tid)
            site.commit_blobs({5: 20 + number})
            site.close()
            give_up_a_batch(site.make.engine)


def give_up_a_batch(engine):
    """Its blobs are staged, and it never comes to its end."""
    state, id = state_behind(engine), b'given up'.ljust(16)
    engine.blobs[id, 0] = b'nobody has it'
    raw = following(state, data(state, b'x', state.end + 9, tuple(
        Blob(id, oid(number), tid, 13, bytes(32))
        for number in (1, 9) for tid in (b'\x7f' * 8, bytes(8)))))
    engine.append(engine.head, place_of(raw), raw)


@functools.cache
def whole_log():
    found = record_writers(Writers())
    engine = of_records(found.records)
    engine.blobs = found.staged
    return engine


class Log:
    """It comes to have what that log has, a record at a time."""

    def __init__(self, whole, number=0):
        self.engine = restored(whole, number)
        self._left = iter(whole.records[number:])

    def grow(self, number):
        for raw in itertools.islice(self._left, number):
            self.engine.append(self.engine.head, place_of(raw), raw)


class BlobNode(Node):

    has_blobs = True


def mislead(follower):
    """One member shows a record that nobody else has, and names a blob that
    is gone: the node may have brought another one for it."""
    state = follower.state
    if state.incomplete is not None or not state.epoch:
        return
    there = [raw for raw in follower.log._engine.records
             if isinstance(parse(raw).body, Data) and parse(raw).body.blobs]
    tid = b'\x7f' * 8
    blobs = [blob._replace(oid=oid(8), tid=tid)
             for raw in there[-1:] for blob in parse(raw).body.blobs[:1]]
    blobs.append(Blob(b'nobody'.ljust(16), oid(9), tid, 13, bytes(32)))
    raw = following(state, data(
        state, b'late' * 300, state.end + 1200, tuple(blobs)))
    with contextlib.suppress(Refused):
        follower.apply(step(state, raw))
        raise AssertionError('it was applied')


def follow_with_blobs(node, steps=30):
    choose, follower = node.random, node.rejoin()
    for _ in range(steps):
        what = choose.choice((
            'grow', 'apply', 'apply', 'save', 'start', 'mislead'))
        if what == 'grow':
            node.logged.grow(choose.randint(1, 6))
        elif what == 'mislead':
            mislead(follower)
        elif what == 'apply':
            apply(follower, node.logged, choose.randint(1, 4))
            follower.sync()
        elif what == 'save':
            follower.sync()
            follower.save()
        elif choose.random() < 0.3:
            follower.close()
            follower = node.rejoin()
        node.mark()
    follower.close()


class BlobJudge(Judge):
    """Also where the log has no more than what was kept: the node had followed
    one member that was wrong.  (It may see in the file that it was more than
    one transaction; then it is refused.)"""

    has_blobs = True

    def verdict(self, directory, standing, thorough):
        if thorough:
            kept = states.load(os.path.join(directory, 'Data.fs')).state
            problems = self._start(
                directory, *self._log(kept.place.sequence, True))
            return [each for each in problems if each.kind != REFUSED]
        return super().verdict(directory, standing, thorough)

    def _start(self, directory, engine, expected):
        problems = super()._start(directory, engine, expected)
        blob_dir = os.path.join(directory, 'blobs')
        if not problems:
            expected = named_blobs(engine)
            found = found_blobs(blob_dir)
            if found.keys() - expected:
                problems.append(Problem(
                    INVENTED, f'{found.keys() - expected}'))
            elif found != expected:
                problems.append(Problem(BLOB, 'is not what the log says'))
            if left := glob.glob(os.path.join(directory, '*.blobs-*')):
                problems.append(Problem(INVENTED, f'{left} is left'))
        return problems

    @staticmethod
    def _go_on(engine):
        led(FakeLog(engine), state_behind(engine), 'other')


class CrashQuorumBlobs(NodeCase):

    level = 2

    def recorded(self, workload, seed=1, number=0, **image):
        return record(
            workload, Log(whole_log(), number), seed=seed, make=BlobNode,
            **image)

    def test_a_standby(self):
        judged, seeds = 0, often(2, 60)
        for seed in range(seeds):
            with self.subTest(seed=seed):
                judged += self.judge(
                    self.recorded(follow_with_blobs, seed), IMAGES,
                    BlobJudge)
        # Of one that has done little (18), there are fewer images.
        self.assertGreater(judged, 0.9 * seeds * IMAGES)

    def test_the_start_of_a_standby(self):
        torn = self.torn(
            self.recorded(follow_with_blobs, 3), often(3, 60))
        for case in torn:
            with self.subTest(case.words):
                self.assertGreater(self.judge(
                    self.recorded(
                        start, number=int(case.standing.now),
                        image=case.image), IMAGES_OF_A_START, BlobJudge), 0)
