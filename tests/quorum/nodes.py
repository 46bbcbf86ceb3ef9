"""Nodes with a storage each, over the log in memory."""

import contextlib
import os
import threading

from fsyncstorage import FsyncStorage
from fsyncstorage.quorum.files import state as states
from fsyncstorage.quorum.following.rejoin import rejoin
from fsyncstorage.quorum.history.record import parse
from fsyncstorage.quorum.history.record import place_of
from fsyncstorage.quorum.leading import keeping
from fsyncstorage.quorum.leading.replicator import Replicator
from fsyncstorage.quorum.leading.writer import Writer
from fsyncstorage.quorum.log.interface import Unanswered

from ..memory import scratch_directory
from ..support import PATIENCE
from ..support import TestCase
from ..support import Thread
from .fakelog import Engine
from .fakelog import FakeLog
from .logged import IN_PROCESS
from .logged import bootstrap
from .logged import contents
from .samples import LOG
from .samples import identify


class Line(FakeLog):
    """A node's log, which may be slow to answer."""

    def __init__(self, engine, told=lambda what: None):
        super().__init__(engine)
        self._told = told  # of each half of an append, when it begins
        #: Called before a chunk of a blob is staged.
        self.before_stage = lambda: None
        self._held = False
        self._changed = threading.Condition()
        self._waiting = threading.Semaphore(0)

    # What befalls it

    def hold_answers(self):
        self._waiting = threading.Semaphore(0)
        self._held = True

    def wait_for_question(self):
        """Return when somebody waits for an answer."""
        if not self._waiting.acquire(timeout=PATIENCE):
            raise AssertionError('nobody asked')

    def release_answers(self):
        with self._changed:
            self._held = False
            self._changed.notify_all()

    # The log

    def stage(self, id, number, data):
        self.before_stage()
        super().stage(id, number, data)

    def ask(self, before, place, raw):
        self._told('ask')
        super().ask(before, place, raw)

    def answered(self):
        self._told('answered')
        self._waiting.release()
        with self._changed:
            if not self._changed.wait_for(
                    lambda: not self._held or self.is_stopped, PATIENCE):
                raise AssertionError('an answer was held back for too long')
        if self.is_stopped:
            raise Unanswered('it was stopped')
        super().answered()

    def stop(self):
        super().stop()
        with self._changed:
            self._changed.notify_all()


def of_records(records):
    """A log that has these."""
    engine = Engine(LOG)
    engine.records += records
    if records:
        engine.head = place_of(records[-1])
    return engine


def started(storage, path, log, name, replicator=Replicator, **options):
    """The start of a node that leads: make a storage of its file."""
    follower = rejoin(path, log, threading.Event(), IN_PROCESS,
                      options.get('blob_dir'))
    try:
        writer = led(log, follower.state, name)
        return storage(
            path, replica=replicator(log, writer),
            opened=follower.hand_over(writer.state.epoch), **options)
    finally:
        follower.close()  # unless it was handed over


def state_behind(engine):
    return contents(engine.records).state


def content_of(engine):
    return contents(engine.records).content


def bodies(engine):
    return [parse(raw).body for raw in engine.records]


def led(log, state, name):
    """A writer that leads; it tries until it does."""
    writer = Writer(log, state, identify(name))
    writer.lead(name.encode().ljust(16))
    while True:
        with contextlib.suppress(Unanswered):
            if writer.advance():
                return writer


class NodeTest(TestCase):
    """Nodes are directories; `lead` starts one, or starts it again."""

    def setUp(self):
        super().setUp()
        in_memory = scratch_directory()  # there are many nodes
        self.directory = in_memory.__enter__()
        self.addCleanup(in_memory.__exit__, None, None, None)
        # What is kept is kept when it is told, and at a close.
        self.patch(keeping, LATE=3600.0)
        self.engine = Engine(LOG)
        self.starts = 0
        self.told = []  # what was done to the log and the disk, and by whom

    def lead(self, node='a', trims=None, **options):
        """The storage of a node that writes; its `line` leads to the log."""
        path = self.path_of(node)
        if not os.path.exists(path):
            bootstrap(path)
        line = Line(self.engine, self._tell)
        storage = started(
            FsyncStorage, path, line, self._name(node),
            lambda *args: Replicator(*args, trims=trims),
            durability='quorum', **options)
        storage.line = line
        # (A defect may let it wait for ever.)
        self.addCleanup(lambda: Thread(storage.close).result())
        self.told.clear()
        return storage

    def _name(self, node):
        self.starts += 1
        return f'{node}{self.starts}'

    def _tell(self, what):
        self.told.append((what, threading.get_ident()))

    def path_of(self, node):
        return self.path(os.path.join(node, 'Data.fs'))

    def content(self, node='a'):
        with open(self.path_of(node), 'rb') as file:
            return file.read()

    def kept(self, node='a'):
        return states.load(self.path_of(node)).state

    def has_what_the_log_has(self, node='a'):
        self.assertEqual(self.content(node), content_of(self.engine))
