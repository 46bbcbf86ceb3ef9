"""Hostile frames at every stage of a connection: nothing grows, nobody waits.

Each test has a server process, a fuzzer that sends it frames of a seed, and an
honest client beside it, which must be answered all the while.  Afterwards the
process has the threads, the open files and about the memory that it had, no
file has appeared, and a commit succeeds.
"""

import collections
import contextlib
import glob
import os
import pathlib
import socket
import threading
import unittest

from ZEO.ClientStorage import ClientStorage
from ZODB.utils import maxtid
from ZODB.utils import z64

from fsyncstorage.commit.policies import DEFAULT_READER_THREADS
from fsyncstorage.server.service import SLOW_THREADS

from ..client.talking import Talker
from ..support import PATIENCE
from ..support import Thread
from ..support import commit
from ..support import oid
from ..support import read_to_the_end
from ..support import until
from .fuzzing import Fuzzer
from .fuzzing import ReaderFuzzer
from .fuzzing import StreamFuzzer
from .test_server_hostile import MOST_GROWTH
from .test_server_hostile import Hostile
from .test_server_hostile import in_status

# What the server says of each of them would fill the disk.
QUIETLY = """
<eventlog>
  level critical
  <logfile>
    path STDERR
  </logfile>
</eventlog>
"""

#: The number of the object of the honest client.
HONEST = 1 << 60
# Connections that are open at the same time.
AT_ONCE = 50
# Threads that begin when they are needed, and stay.
POOLS = DEFAULT_READER_THREADS + SLOW_THREADS


class HonestClient(ClientStorage):
    """A stock one.  It commits, reads and asks, one thing after the other, and
    is never disconnected."""

    _serial = z64

    def commit(self):
        self._serial = commit(
            self, {HONEST: b'data'}, {HONEST: self._serial}, lambda tid: None)

    def check(self):
        # (Its cache would answer a load.)
        data, tid, _ = self._call('loadBefore', oid(HONEST), maxtid)
        assert (data, tid) == (b'data', self._serial)
        assert self._connection_generation == 1


@unittest.skipUnless(os.path.exists('/proc/self/status'), 'asks Linux')
class Pickles(Hostile):

    level = 2
    count = 1500
    more_configuration = QUIETLY

    def fuzzer(self, client):
        return Fuzzer(1, self.honest, self.canary)

    def test_frames(self):
        client = HonestClient(self.address, wait_timeout=PATIENCE)
        self.addCleanup(client.close)
        fuzzer = self.fuzzer(client)
        self.send(fuzzer, 1000)  # what is allocated once
        client.commit()
        client.check()
        before, largest = self.figures(), self.largest()
        over = threading.Event()

        def go_on():
            while not over.wait(0.01):
                client.commit()
                client.check()

        honest = Thread(go_on)
        try:
            self.send(fuzzer, self.count)
        finally:
            over.set()
            honest.result()
        self.assertIsNone(self.process.poll(), 'it is alive')
        client.commit()
        self.assertFalse(os.path.exists(self.canary), 'code was run')
        self.wait_until_nothing_is_left(*before)
        self.assertLess(self.largest() - largest, MOST_GROWTH)

    def send(self, fuzzer, count):
        """Return when the server has taken all that it takes."""
        peers = collections.deque()
        for _ in range(count // fuzzer.frames):
            peer = socket.socket(socket.AF_UNIX)
            peer.settimeout(PATIENCE)
            peer.connect(self.address)
            peers.append(peer)
            with contextlib.suppress(ConnectionError):  # disconnected already
                peer.sendall(fuzzer.conversation())
                peer.shutdown(socket.SHUT_WR)
            if len(peers) == AT_ONCE:
                _read_to_the_end(peers.popleft())
        for peer in peers:
            _read_to_the_end(peer)

    def wait_until_nothing_is_left(self, threads, files, parts):
        bounds = threads + POOLS, files, parts
        until(lambda: all(map(int.__le__, self.figures(), bounds)),
              'no more threads, open files and parts of blobs than before')

    def figures(self):
        """Threads, open files, and parts of blobs of the server."""
        pids = self.pids()
        return (sum(in_status(pid, 'Threads') for pid in pids),
                sum(len(os.listdir(f'/proc/{pid}/fd')) for pid in pids),
                len(os.listdir(self.path('Data.fs-blobs/tmp'))))


def _read_to_the_end(peer):
    read_to_the_end(peer)
    peer.close()


class Msgpack(Pickles):

    msgpack = True


class OnReaders(Pickles):

    def fuzzer(self, client):
        talker = Talker(self.address)
        talker.close()
        return ReaderFuzzer(1, talker.welcome.instance)

    def pids(self):
        """The server, and the processes that read for it."""
        found = super().pids()
        for path in glob.glob(f'/proc/{found[0]}/task/*/children'):
            for pid in pathlib.Path(path).read_text().split():
                command = pathlib.Path(f'/proc/{pid}/cmdline').read_text()
                if 'readerprocess' in command:
                    found.append(int(pid))
        self.assertGreater(len(found), 1, 'a process reads')
        return found


class OnStreams(Pickles):

    def fuzzer(self, client):
        return StreamFuzzer(1, None)


class ManyPickles(Pickles):

    level = 3
    count = 1000000


class ManyMsgpack(Msgpack):

    level = 3
    count = 1000000


class ManyOnReaders(OnReaders):

    level = 3
    count = 1000000


class ManyOnStreams(OnStreams):

    level = 3
    count = 1000000
