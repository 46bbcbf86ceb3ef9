"""How often does work go from one room to another?  python -m tests.moves

A room is a directory of the package, or a module that lies beside them.  A
move is a call into another room; a return is none.  Traced live, once each,
after the same thing was done some times: the finish of a storage, the server's
half of a finish, the two halves of a cold read, the client's half of a cold
blob.  With ``--calls`` each move is listed; with ``--modules`` each module is
a room of its own.
"""

import argparse
import collections
import os
import sys
import tempfile
import threading

import ZODB
from ZODB.blob import Blob
from ZODB.Connection import TransactionMetaData
from ZODB.utils import maxtid

import fsyncstorage
from fsyncstorage import FsyncStorage
from fsyncstorage.client.storage import FsyncClient
from fsyncstorage.server.server import Server

from .support import oid

PACKAGE = os.path.dirname(fsyncstorage.__file__) + os.sep
WARM = 5


class Trace:
    """Of all threads whose names begin so, while it is on."""

    def __init__(self, modules):
        self._modules = modules
        self._is_on = False
        self._stacks = collections.defaultdict(lambda: [None])
        self.moves = []  # (thread, from, to, function)

    def room(self, code):
        if not code.co_filename.startswith(PACKAGE):
            return None
        module = code.co_filename[len(PACKAGE):-len('.py')]
        return module if self._modules else module.split(os.sep)[0]

    def profile(self, frame, event, _):
        stack = self._stacks[threading.get_ident()]
        if event == 'call':
            room = self.room(frame.f_code) or stack[-1]
            if room != stack[-1] and self._is_on:
                self.moves.append((threading.current_thread().name, stack[-1],
                                   room, frame.f_code.co_name))
            stack.append(room)
        elif event == 'return' and len(stack) > 1:
            stack.pop()

    def of(self, function, *arguments):
        """The moves while it runs, by thread."""
        self.moves = []
        self._is_on = True
        result = function(*arguments)
        self._is_on = False
        return result, self.moves


class Journeys:

    def __init__(self, home, trace):
        self._home, self._trace = home, trace

    def path(self, name):
        return os.path.join(self._home, name)

    def local_finish(self):
        """finish of a storage"""
        storage = FsyncStorage(self.path('local.fs'))
        serial = oid(0)
        for _ in range(WARM):
            under_way = _voted(storage, serial)
            serial, moves = self._trace.of(storage.tpc_finish, under_way)
        storage.close()
        return moves

    def remote(self):
        """All that needs a server, which runs in a thread."""
        storage = FsyncStorage(
            self.path('served.fs'), blob_dir=self.path('blobs'))
        threading.setprofile(self._trace.profile)
        server = Server(('127.0.0.1', 0), {'1': storage})
        thread = threading.Thread(target=server.loop, name='server')
        thread.start()
        threading.setprofile(None)
        try:
            self._plant(storage)
            return self._of_a_client(server.acceptor.addr)
        finally:
            server.close()
            thread.join()

    @staticmethod
    def _plant(storage):
        serial = oid(0)
        for _ in range(WARM):
            under_way = _voted(storage, serial)
            serial = storage.tpc_finish(under_way)

    def _of_a_client(self, address):
        client = FsyncClient(address, blob_dir=self.path('cached'))
        database = ZODB.DB(client)
        for _ in range(WARM):
            finish = self._finish(database)
            read = self._read(address)
            blob = self._blob(database, address)
        database.close()
        return {
            'a finish over ZEO, the server\'s half': _server(finish),
            'a cold read, the client\'s half': _own(read),
            'a cold read, the server\'s half': _server(read),
            'a cold blob, the client\'s half': _own(blob),
        }

    def _finish(self, database):
        storage = database.storage
        under_way = _voted(storage, storage.load(oid(1))[1])
        return self._trace.of(storage.tpc_finish, under_way)[1]

    def _read(self, address):
        client = FsyncClient(address)
        client.loadBefore(oid(0), maxtid)  # opens the channel
        moves = self._trace.of(client.loadBefore, oid(1), maxtid)[1]
        client.close()
        return moves

    def _blob(self, database, address):
        with database.transaction() as connection:
            blob = connection.root.blob = Blob(b'x' * 100_000)
        with tempfile.TemporaryDirectory(dir=self._home) as cache:
            client = FsyncClient(address, blob_dir=cache)
            _, serial, _ = client.loadBefore(blob._p_oid, maxtid)
            moves = self._trace.of(
                client.loadBlob, blob._p_oid, serial)[1]
            client.close()
        return moves


def _voted(storage, serial):
    under_way = TransactionMetaData()
    storage.tpc_begin(under_way)
    storage.store(oid(1), serial, b'x' * 200, '', under_way)
    storage.tpc_vote(under_way)
    return under_way


def _own(moves):
    return [move for move in moves if move[0] == 'MainThread']


def _server(moves):
    return [move for move in moves if move[0] != 'MainThread'
            and 'zeo client' not in move[0]]


def main():
    parser = argparse.ArgumentParser(
        prog='python -m tests.moves', description=__doc__.split('\n\n')[0])
    parser.add_argument('--calls', action='store_true')
    parser.add_argument('--modules', action='store_true')
    arguments = parser.parse_args()
    trace = Trace(arguments.modules)
    with tempfile.TemporaryDirectory() as home:
        journeys = Journeys(home, trace)
        sys.setprofile(trace.profile)
        found = {'a finish of a storage': journeys.local_finish(),
                 **journeys.remote()}
        sys.setprofile(None)
    for name, moves in found.items():
        rooms = {move[2] for move in moves}
        print(f'{len(moves):3} moves between {len(rooms):2} rooms: {name}')
        if arguments.calls:
            for move in moves:
                print('     ', *move, sep='  ')


if __name__ == '__main__':
    main()
