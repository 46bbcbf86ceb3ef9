"""Hostile frames at every stage of a connection: nothing grows, nobody waits.

Each test has a server process, a fuzzer that sends it frames of a seed, and an
honest client beside it, which must be answered all the while.  Afterwards the
process has the threads, the open files and about the memory that it had, no
file has appeared, and a commit succeeds.
"""

import collections
import contextlib
import os
import pickle
import socket
import threading
import unittest

import msgpack
from ZODB.utils import maxtid
from ZODB.utils import z64

from fsyncstorage.commit.policies import DEFAULT_READER_THREADS
from fsyncstorage.server.service import SLOW_THREADS
from perf import zeowire

from ..support import PATIENCE
from ..support import Thread
from ..support import until
from .fuzzing import TRANSACTION
from .fuzzing import ChannelFuzzer
from .fuzzing import Fuzzer
from .test_server_hostile import MOST_GROWTH
from .test_server_hostile import Hostile

# What the server says of each of them would fill the disk.
QUIETLY = """
<eventlog>
  level critical
  <logfile>
    path STDERR
  </logfile>
</eventlog>
"""

# Connections that are open at the same time.
AT_ONCE = 50
# Threads that begin when they are needed, and stay.
POOLS = DEFAULT_READER_THREADS + SLOW_THREADS


class HonestClient:
    """It commits, reads and asks, one thing after the other."""

    _oid = b'\x7f' * 8

    def __init__(self, address, encoding):
        self._encode, self._decode = (
            (msgpack.packb, msgpack.unpackb) if encoding == b'M5'
            else (_pickled, pickle.loads))
        self._inbox, self._messages = zeowire.Inbox(), collections.deque()
        self._number = 0
        self._serial = z64
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(PATIENCE)
        self._socket.connect(address)
        self._next()
        self._socket.sendall(zeowire.frame(encoding))
        self.call('register', '1', False)

    def close(self):
        self._socket.close()

    def commit(self):
        self._post('tpc_begin', TRANSACTION, b'', b'', {}, None, ' ')
        self._post('storea', self._oid, self._serial, b'data', TRANSACTION)
        self.call('vote', TRANSACTION)
        self._serial = self.call('tpc_finish', TRANSACTION)

    def check(self):
        data, tid, _ = self.call('loadBefore', self._oid, maxtid)
        assert (data, tid) == (b'data', self._serial)
        return self.call('get_info')

    def _post(self, name, *arguments):
        self._send(0, True, name, arguments)

    def call(self, name, *arguments):
        self._number += 1
        self._send(self._number, False, name, arguments)
        while True:
            number, flags, name, result = self._decode(self._next())
            if name == '.reply' and number == self._number:
                assert not flags, result
                return result

    def _send(self, *message):
        self._socket.sendall(zeowire.frame(self._encode(message)))

    def _next(self):
        while not self._messages:
            data = self._socket.recv(1 << 16)
            assert data, 'it was disconnected'
            self._messages += self._inbox.add(data)
        return self._messages.popleft()


def _pickled(message):
    return pickle.dumps(message, 3)


@unittest.skipUnless(os.path.exists('/proc/self/status'), 'asks Linux')
class Pickles(Hostile):

    level = 2
    count = 3000
    more_configuration = QUIETLY

    def fuzzer(self, client):
        return Fuzzer(1, self.honest, self.canary)

    def test_frames(self):
        client = HonestClient(self.address, self.honest)
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
        client.close()

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
        process = f'/proc/{self.process.pid}'
        with open(f'{process}/status') as file:
            threads = next(int(line.split()[1]) for line in file
                           if line.startswith('Threads'))
        return (threads, len(os.listdir(f'{process}/fd')),
                len(os.listdir(self.path('Data.fs-blobs/tmp'))))


def _read_to_the_end(peer):
    with contextlib.suppress(ConnectionError):
        while peer.recv(1 << 16):
            pass
    peer.close()


class Msgpack(Pickles):

    msgpack = True


class Channel(Pickles):

    def fuzzer(self, client):
        instance = client.call('get_info')['fsyncstorage']['instance']
        return ChannelFuzzer(1, instance)


class ManyPickles(Pickles):

    level = 3
    count = 1000000


class ManyMsgpack(Msgpack):

    level = 3
    count = 1000000


class ManyOnChannels(Channel):

    level = 3
    count = 1000000
