"""Running the suites of ZEO over a pair of nodes.

Each database of a test is a pair, over a log in memory.  The server that a
test starts is one node, in a thread of this process, and the other one
follows.  When the server is stopped, the other one takes over, and has the
same bytes.  If a server of this database is started once more, the node that
took over is the one that serves.
"""

import contextlib
import os
import shutil
from unittest import mock

import ZEO.tests.forker

from fsyncstorage.quorum.beginning.bootstrap import begin
from fsyncstorage.quorum.beginning.copying import copied
from fsyncstorage.quorum.etcd.section import Section
from fsyncstorage.quorum.history.record import node_name
from fsyncstorage.quorum.roles import holding

from ..quorum.fakelog import FakeLog
from ..quorum.roles import InProcess
from ..quorum.roles import Timed

# Nobody is asked at these addresses (Pairs).
CONFIG = """
%import fsyncstorage
<fsyncstorage 1>
  path NODE/Data.fs
  durability quorum
  {more}
  <quorum>
    node NODE
    log {name}
    etcd http://127.0.0.1:1 http://127.0.0.1:2 http://127.0.0.1:3
    lease 60s
  </quorum>
</fsyncstorage>
"""
WITH_BLOBS = 'blob-dir NODE/blobs'
#: Where the first server has them.
BLOBS_OF_THE_FIRST = 'pair-database/a/blobs'
CREATE = '# create\n'


def config(name='database', create=False, more=''):
    return CREATE * create + CONFIG.format(name=name, more=more)


class Pair:
    """One database, in a directory of its own."""

    lease = 60.0
    patience = 3600.0

    def __init__(self, name):
        self._home = os.path.abspath(f'pair-{name}')
        shutil.rmtree(self._home, ignore_errors=True)
        self.engine = Timed(None)
        self.check = lambda log: None
        first, second = self._nodes = [
            InProcess(self, each) for each in ('a', 'b')]
        log = FakeLog(self.engine)
        begin(first.path, log)
        copied(first.path, second.path, log, node_name(second.name))

    def path(self, name):
        return os.path.join(self._home, name)

    def start(self, start, storage, *args, **options):
        """Call `start` for the node whose turn it is."""
        served, other = self._nodes
        address, stop = start(
            storage.replace('NODE/', f'{self.path(served.name)}/').replace(
                'NODE', served.name), *args, **options)
        other.open()
        other.follows()

        def stop_it(*args):
            try:
                stop(*args)
                other.leads()
                assert_same(served, other)
            finally:
                other.close()
            self._nodes.reverse()

        return address, stop_it


def assert_same(served, other):
    """(What a pack removes of blobs, the other one may have yet.)"""
    for name, content in _content(served).items():
        assert _content(other).get(name) == content, (
            f'{other.path} and {served.path} are not the same: {name}')


def _content(node):
    """Of its file, and of its blobs by their names."""
    paths = [node.path, *(
        os.path.join(directory, name)
        for directory, _, names in os.walk(node.blob_dir)
        for name in names if name.endswith('.blob'))]
    found = {}
    for path in paths:
        with open(path, 'rb') as file:
            found[os.path.relpath(path, os.path.dirname(node.path))] = (
                file.read())
    return found


class Pairs:
    """Those of one test, by the names of their databases."""

    def __init__(self):
        self._pairs = {}
        self._start = ZEO.tests.forker.start_zeo_server

    def start(self, storage, zeo=None, port=None, keep=False, **options):
        create = storage.startswith(CREATE)
        storage = storage.removeprefix(CREATE)
        name = storage.partition(' log ')[2].split()[0]
        if create or name not in self._pairs:
            self._pairs[name] = Pair(name)
        # (What is not kept would be gone before it is compared.)
        return self._pairs[name].start(
            self._start, storage, zeo, port, True, threaded=True, **options)

    def log_of(self, section):
        return FakeLog(self._pairs[section.log].engine)


@contextlib.contextmanager
def pairs():
    found = Pairs()
    with mock.patch.object(Section, 'open_log', lambda section: (
            found.log_of(section))), \
            mock.patch.object(Section, 'check_log', lambda *args: None), \
            mock.patch.object(holding, 'ASKED_EVERY', 1 / 600), \
            mock.patch.object(
                ZEO.tests.forker, 'start_zeo_server', found.start):
        yield
