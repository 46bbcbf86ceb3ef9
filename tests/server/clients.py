"""Clients of a server that is killed: they log what it told them, and go on.

Each has objects of its own, stores them in turn, and logs each answer before
it goes on with the next.  So of each object there is what the log says, or
what its client stored after that, whose answer was cut off.
"""

import contextlib
import itertools
import os
import tempfile
import threading
import time

from ZEO.ClientStorage import ClientStorage
from ZEO.Exceptions import ClientDisconnected
from ZODB.blob import Blob
from ZODB.Connection import TransactionMetaData
from ZODB.tests.StorageTestBase import zodb_pickle

from fsyncstorage.client.storage import FsyncClient
from fsyncstorage.errors import OutcomeUnknown
from perf import light
from perf import zeowire

from ..support import PATIENCE
from ..support import oid

OBJECTS = 20  # of each client
TRANSACTION = 1  # what a light client calls each of its transactions


def content(number, count):
    """Of an object, the count-th time that it is stored."""
    return b'%d %d ' % (number, count) * (20 + number % 100)


class Log:
    """What the clients were told: a line for each commit."""

    def __init__(self, path):
        self._file = open(path, 'a+b', buffering=0)
        self.close = self._file.close
        #: Released for each line.
        self.lines = threading.Semaphore(0)

    def acknowledged(self, number, count, tid):
        self._file.write(b'%d %d %s\n' % (number, count, tid.hex().encode()))
        self.lines.release()

    def count(self):
        self._file.seek(0)
        return sum(1 for line in self._file)

    def newest(self):
        """number -> (count, tid)"""
        newest = {}
        self._file.seek(0)
        for line in self._file:
            number, count, tid = line.decode().split()
            newest[int(number)] = int(count), bytes.fromhex(tid)
        return newest


class Client:

    #: What it raises when the server is gone.
    disconnected = ConnectionError

    def __init__(self, address, log, place):
        self._address = address
        self._log = log
        self.numbers = range(place * OBJECTS, (place + 1) * OBJECTS)
        self._counts = dict.fromkeys(self.numbers, 0)
        #: It was told of a commit by this server, or has failed.
        self.goes_on = threading.Event()

    def close(self):
        """All is over."""

    def run(self, tids, killed):
        """Commit until the server is killed; `tids` are those of the objects
        that there are."""
        self.goes_on.clear()
        try:
            with self.connected():
                for number in itertools.cycle(self.numbers):
                    self.store(number, tids)
        except self.disconnected:
            if not killed.is_set():
                raise
        finally:
            self.goes_on.set()

    def store(self, number, tids):
        count = self._counts[number] + 1
        tid = self.commit(number, tids[number], content(number, count))
        self._log.acknowledged(number, count, tid)
        self._counts[number] = count
        tids[number] = tid
        self.goes_on.set()


class LightClient(Client):
    """Straight over a socket."""

    @contextlib.contextmanager
    def connected(self):
        self._connection = light.Client(self._address)
        self._connection.socket.settimeout(PATIENCE)
        with contextlib.closing(self._connection):
            yield

    def commit(self, number, tid, data):
        self._send('tpc_begin', TRANSACTION, b'', b'', {})
        self._send('storea', oid(number), tid, data, TRANSACTION)
        self._connection.call('vote', TRANSACTION)
        return self._connection.call('tpc_finish', TRANSACTION)

    def _send(self, name, *arguments):
        self._connection.socket.sendall(
            zeowire.call(0, name, *arguments, no_reply=True))

    def look_up(self, storage, number):
        """Content and tid."""
        return storage.load(oid(number))


class PackingClient(LightClient):
    """Packs when it has stored each of its objects."""

    packs = 0

    def store(self, number, tids):
        super().store(number, tids)
        if number == self.numbers[-1]:
            self._connection.call('pack', time.time(), True)
            self.packs += 1


class BlobClient(Client):
    """A stock client, which connects again by itself."""

    disconnected = ClientDisconnected
    make = ClientStorage
    _storage = None

    def close(self):
        if self._storage is not None:
            self._storage.close()
            self._blobs.cleanup()

    @contextlib.contextmanager
    def connected(self):
        if self._storage is None:
            self._blobs = tempfile.TemporaryDirectory()
            self._storage = self.make(
                self._address, blob_dir=self._blobs.name,
                wait_timeout=PATIENCE)
            # Where no server answers, ZEO tries again after a second or two.
            self._storage._server.client.connect_poll = 0
        self._storage._server.timeout = PATIENCE
        self._storage.ping()  # waits until there is a connection
        # No server is started before each client has found this one killed.
        self._storage._server.timeout = 1
        yield

    def commit(self, number, tid, data):
        path = os.path.join(self._storage.temporaryDirectory(), 'given')
        with open(path, 'wb') as file:
            file.write(data)
        transaction = TransactionMetaData()
        self._storage.tpc_begin(transaction)
        try:
            self._storage.storeBlob(
                oid(number), tid, zodb_pickle(Blob()), path, '', transaction)
            self._storage.tpc_vote(transaction)
            return self._storage.tpc_finish(transaction)
        except self.disconnected:
            self._storage.tpc_abort(transaction, timeout=0)
            raise

    def look_up(self, storage, number):
        _, tid = storage.load(oid(number))
        with open(storage.loadBlob(oid(number), tid), 'rb') as file:
            return file.read(), tid


class ChannelClient(BlobClient):
    """A client of ours, which commits on its channel.

    A server that was killed cannot say what became of a commit.
    """

    disconnected = ClientDisconnected, OutcomeUnknown
    make = FsyncClient
