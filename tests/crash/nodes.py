"""Nodes on a disk that forgets: what a power cut leaves, and what their start
makes of it.

What a node does is recorded by the harness, beside a log in memory, which
keeps all that it was given.  The marks in the recording say how many records
the log had (in the place of the time).
"""

import contextlib
import os
import random
import threading
import typing
from unittest import mock

from fsyncstorage import datafile
from fsyncstorage.pack.plan import NothingToDo
from fsyncstorage.quorum.files import state as states
from fsyncstorage.quorum.following.rejoin import rejoin
from fsyncstorage.quorum.log.interface import Unanswered
from fsyncstorage.quorum.log.reading import Reader
from fsyncstorage.quorum.log.reading import Refused
from fsyncstorage.storage import opening
from fsyncstorage.storage import recovery

from ..format.sealing import window_of
from ..memory import scratch_directory
from ..quorum.fakelog import FakeLog
from ..quorum.logged import IN_PROCESS
from ..quorum.logged import Logged
from ..quorum.logged import bootstrap
from ..quorum.logged import contents
from ..quorum.logged import restored
from ..support import PATIENCE
from .harness import campaign
from .harness import events
from .harness import past_seam
from .harness.judge import DISAGREES
from .harness.judge import INVENTED
from .harness.judge import REFUSED
from .harness.judge import Problem
from .harness.ledger import Ledger
from .harness.recorder import Recorder
from .harness.recorder import RecordingDisk


class Recorded(typing.NamedTuple):

    recording: campaign.Recording
    logged: Logged


class Node:
    """A node whose disk is recorded."""

    def __init__(self, directory, logged, seed):
        self.path = os.path.join(directory, 'Data.fs')
        self.logged = logged
        self.random = random.Random(seed)
        self.recorder = Recorder(directory)

    def mark(self):
        self.recorder.mark(events.Passed(len(self.logged.engine.records)))

    def rejoin(self):
        return rejoin(self.path, FakeLog(self.logged.engine),
                      threading.Event(), IN_PROCESS)


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
    """A standby, of writers that come and go."""
    logged, choose = node.logged, node.random
    logged.lead()
    node.mark()
    follower = node.rejoin()
    for _ in range(steps):
        step = choose.choice((
            'write', 'write', 'write', 'give up', 'lead', 'apply', 'apply',
            'apply', 'sync', 'save', 'index'))
        if step == 'write':
            logged.write(*some_sizes(choose))
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
        elif step == 'sync':
            follower.sync()
        elif step == 'save':
            follower.sync()
            follower.save()
        else:
            follower.sync()
            follower.save_index()
        node.mark()
    follower.close()


def follow_packs(node, steps=40):
    """A standby, and a writer whose packs are swapped, or given up."""
    logged, choose = node.logged, node.random
    logged.objects = 5
    logged.lead().write(60, 500, 5, 300, 60, 700, 20)
    node.mark()
    follower = node.rejoin()
    for _ in range(steps):
        step = choose.choice((
            'write', 'write', 'write', 'pack', 'pack', 'pack', 'lead',
            'apply', 'apply', 'apply', 'sync', 'save'))
        if step == 'write':
            logged.write(*some_sizes(choose))
        elif step == 'pack':
            go_on_to_pack(logged, choose)
        elif step == 'lead' and choose.random() < .3:
            logged.lead()
        elif step == 'apply':
            apply(follower, logged, choose.randint(1, 60))
        elif step == 'save':
            follower.sync()
            follower.save()
            follower.save_index()
        else:
            follower.sync()
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
            follower.apply(applied)
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
            follower = self._rejoined(path, engine)
        except (Refused, Unanswered, OSError) as error:
            return [Problem(REFUSED, f'{type(error).__name__}: {error}')]
        opened = follower.hand_over()
        with opened.file, contextlib.closing(opened.lock_file):
            return [*self._problems(path, follower, opened, expected)]

    @staticmethod
    def _rejoined(path, engine):
        return rejoin(path, FakeLog(engine), threading.Event(), IN_PROCESS)

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
