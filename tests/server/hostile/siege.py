"""A server, what it takes, an honest client of it, and the enemies."""

import contextlib
import glob
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
import time

from ZODB.Connection import TransactionMetaData
from ZODB.utils import z64

from fsyncstorage import FsyncStorage
from perf.ports import free_address

from ...client.talking import Talker
from ...support import PATIENCE
from ...support import oid
from ..serving import Peer
from ..serving import record
from . import attacks

CONFIG = """
%import fsyncstorage
<zeo>
  address 127.0.0.1:{port}
</zeo>
<fsyncstorage 1>
  path {directory}/Data.fs
  blob-dir {directory}/blobs
</fsyncstorage>
"""

# Of the enemies: one processor is left to the server and the honest client.
# (Enemies that take all of them show how long a starved machine takes.)
PROCESSES = min(4, max(1, (os.cpu_count() or 1) - 1))
BLOB_SIZE = 8 << 20
# Seconds that the enemies' connections may take to end.
AFTERWARDS = 60


class Server:
    """`fsync-runzeo`, in a directory."""

    def __init__(self, directory):
        self.address = free_address()
        self.serials = self._fill(directory)
        config = os.path.join(directory, 'zeo.conf')
        with open(config, 'w') as file:
            file.write(CONFIG.format(
                port=self.address[1], directory=directory))
        self.log = os.path.join(directory, 'log')
        with open(self.log, 'w') as log:
            self.process = subprocess.Popen(
                [sys.executable, '-m', 'fsyncstorage.server.runzeo',
                 '-C', config], stderr=log, stdout=log, cwd=directory,
                env=dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)))
        self._wait()
        self.base = None

    def _fill(self, directory):
        storage = FsyncStorage(
            os.path.join(directory, 'Data.fs'),
            blob_dir=os.path.join(directory, 'blobs'))
        with contextlib.closing(storage):
            transaction = TransactionMetaData()
            storage.tpc_begin(transaction)
            storage.store(oid(attacks.SMALL), z64, record(), '', transaction)
            storage.store(oid(attacks.LARGE), z64,
                          b'x' * attacks.LARGE_SIZE, '', transaction)
            given = os.path.join(directory, 'given')
            with open(given, 'wb') as file:
                file.write(b'x' * BLOB_SIZE)
            storage.storeBlob(oid(attacks.BLOB), z64, record(), given, '',
                              transaction)
            storage.tpc_vote(transaction)
            tid = storage.tpc_finish(transaction)
        return dict.fromkeys((attacks.SMALL, attacks.LARGE, attacks.BLOB), tid)

    def _wait(self):
        for _ in range(300):
            with contextlib.suppress(OSError):
                socket.create_connection(self.address).close()
                return
            time.sleep(0.1)
        raise AssertionError('the server does not listen')

    # What it takes

    def memory(self):
        """Of the process that resolves conflicts, too."""
        pages = 0
        for pid in self.process.pid, *self._children():
            # (It may have ended in the meantime.)
            with contextlib.suppress(OSError), open(
                    f'/proc/{pid}/statm') as statm:
                pages += int(statm.read().split()[1])
        return pages * os.sysconf('SC_PAGE_SIZE')

    def _children(self):
        for path in glob.glob(f'/proc/{self.process.pid}/task/*/children'):
            with contextlib.suppress(OSError), open(path) as file:
                yield from file.read().split()

    def files(self):
        return len(os.listdir(f'/proc/{self.process.pid}/fd'))

    def threads(self):
        return len(os.listdir(f'/proc/{self.process.pid}/task'))

    def close(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(PATIENCE)
        finally:
            self.process.kill()
            self.process.wait()


class Honest(threading.Thread):
    """A client that loads and commits all the time, and how long it waits."""

    def __init__(self, server):
        super().__init__(daemon=True)
        self._server = server
        self._peer = Peer(server.address)
        with contextlib.closing(Talker(server.address)) as talker:
            self.instance = talker.welcome.instance
        self._serials = server.serials
        self._serial = z64
        self._ended = False
        self.waits = []  # (seconds, what, when)
        self.error = None

    def run(self):
        try:
            while not self._ended:
                self._note('load', self._peer.load, attacks.SMALL)
                self._note('read', self._peer.call, 'loadSerial',
                           oid(attacks.SMALL), self._serials[attacks.SMALL])
                self._note('commit', self._commit)
                self._note('new client', self._new_client)
                time.sleep(0.02)
        except Exception as error:
            self.error = error

    def _commit(self):
        self._serial = self._peer.commit({5: record()}, self._serial)

    def _new_client(self):
        """It may have to try again: newcomers of one address make way for
        each other, and the enemies have the same."""
        while True:
            with contextlib.suppress(OSError):
                Peer(self._server.address).close()
                return

    def _note(self, what, function, *arguments):
        begun = time.monotonic()
        function(*arguments)
        self.waits.append((time.monotonic() - begun, what, begun))

    def end(self):
        self._ended = True
        self.join(60)
        self._peer.close()


class Siege:

    def __init__(self, directory):
        self.server = Server(directory)
        self.honest = Honest(self.server)
        self.honest.start()
        time.sleep(1)
        self.base = self.server.memory()
        self._spawn = multiprocessing.get_context('spawn')

    def attack(self, chosen, seconds):
        """Let them on it, together; return the peak of memory."""
        server = self.server
        names = [attack.__name__ for attack in chosen]
        enemies = [
            self._spawn.Process(target=attacks.run, args=(
                names[first::PROCESSES], server.address, self.honest.instance,
                server.serials, seconds))
            for first in range(min(PROCESSES, len(names)))]
        for enemy in enemies:
            enemy.start()
        peak = 0
        while any(enemy.is_alive() for enemy in enemies):
            peak = max(peak, server.memory())
            time.sleep(0.02)
        return peak

    def worst(self, since):
        """What the honest client waited for longest since then."""
        return max((wait for wait in self.honest.waits if wait[2] >= since),
                   default=(0, 'nothing', 0))

    def rest(self, files, threads):
        """What is left: (files, threads), at the latest after AFTERWARDS."""
        end = time.monotonic() + AFTERWARDS
        while True:
            left = self.server.files(), self.server.threads()
            if time.monotonic() > end or (
                    left[0] <= files and left[1] <= threads):
                return left
            time.sleep(0.1)

    def close(self):
        self.honest.end()
        return self.server.close()
