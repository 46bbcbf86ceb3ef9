"""Nodes in one process, each with the host that it would have in its own."""

import os
import shutil
import threading
import time

from fsyncstorage import FsyncStorage
from fsyncstorage.quorum.beginning.bootstrap import begin
from fsyncstorage.quorum.following import standby
from fsyncstorage.quorum.log.interface import Unanswered
from fsyncstorage.quorum.roles import role
from fsyncstorage.storage.host import Host

from ..support import TestCase
from ..support import Thread
from ..support import until
from .fakelog import Engine
from .fakelog import FakeLog


class Timed(Engine):
    """Its leases last as long as they say."""

    @property
    def now(self):
        return time.monotonic()

    @now.setter
    def now(self, value):
        pass


class NodeLog(FakeLog):
    """One of the logs of a node, which may be cut off from it."""

    def __init__(self, node, engine):
        super().__init__(engine)
        self._node = node

    def _call(self, name, *args):
        if self._node.is_away:
            raise Unanswered(name)
        answer = super()._call(name, *args)
        if self._node.is_away:
            raise Unanswered(name)
        return answer


class Recording(Host):
    """What it is told to do, in order."""

    def __init__(self, engine):
        self._engine = engine
        self.done = []
        self.has_ended = threading.Event()

    may_leave = True

    def hang_up(self):
        self.done.append('hang up')
        self.holder_then = self._engine.holder()

    def go_on(self):
        self.done.append('go on')

    def end(self, reason, again):
        self.done.append(('end', again))
        self.has_ended.set()


class InProcess:
    """One node."""

    def __init__(self, test, name):
        self._test = test
        self.name = name
        self.path = test.path(os.path.join(name, 'Data.fs'))
        os.makedirs(os.path.dirname(self.path))
        self.blob_dir = test.path(os.path.join(name, 'blobs'))
        self.is_away = False
        self.host = Recording(test.engine)
        self.logs = []
        self.node = self.storage = None
        self._opening = None

    def open_log(self):
        log = NodeLog(self, self._test.engine)
        self.logs.append(log)
        return log

    def open(self):
        """Begin to; `leads` waits for the storage."""
        def make(primary, opened):
            return FsyncStorage(self.path, durability='quorum',
                                replica=primary, opened=opened,
                                blob_dir=self.blob_dir)

        def show(node):
            self.node = node
            shown.set()

        def opening():
            self.storage = role.opened(
                self.path, role.Setup(
                    self.name, self._test.lease, self.open_log,
                    self._test.check,
                    self._test.patience), 1 << 26, make, show,
                blob_dir=self.blob_dir, host=self.host)
            return self.storage

        shown = threading.Event()
        self._opening = Thread(opening)
        shown.wait()

    def leads(self):
        self.storage = self._opening.result()
        return self.storage

    def follows(self):
        """It has what the log had by now."""
        head = self._test.engine.head.sequence
        until(lambda: self.node.role == role.STANDBY
              and self.node.stats().get('sequence', 0) >= head, 'it follows')

    def close(self):
        if self._opening is None:
            return
        if self.storage is None:
            self.node.close()
            self._opening.join()
        else:
            self.storage.close()
        self._opening = self.storage = None


class RolesTest(TestCase):

    #: Seconds.
    lease = 1.0
    #: For a disk: nobody's is tried here, unless a test says so.
    patience = 3600.0

    def setUp(self):
        super().setUp()
        self.patch(standby, LOOK_EVERY=0.01)
        self.engine = Timed(None)
        self.check = lambda log: None
        self.a, self.b = InProcess(self, 'a'), InProcess(self, 'b')
        begin(self.a.path, FakeLog(self.engine))
        for suffix in '', '.quorum':
            shutil.copy(self.a.path + suffix, self.b.path + suffix)
        for each in self.a, self.b:
            self.addCleanup(each.close)

    def both(self):
        """`a` leads, and `b` follows."""
        self.a.open()
        self.a.leads()
        self.b.open()
        self.b.follows()
