"""The calls of Python in a commit and a cold read: python -m tests.calls

Counted of all threads (`sys.setprofile`), local and over ZEO, beside stock in
the same process.  A move is a call from one room of the package into another;
a room is a directory, or a module that lies beside them.  With ``--moves``
each kind of move is listed.
"""

import argparse
import collections
import contextlib
import os
import sys
import tempfile
import threading

import ZEO.ClientStorage
import ZEO.StorageServer
import ZODB.FileStorage
from ZODB.Connection import TransactionMetaData
from ZODB.utils import maxtid
from ZODB.utils import z64

import fsyncstorage
from fsyncstorage import FsyncStorage
from fsyncstorage.client.storage import FsyncClient
from fsyncstorage.server.server import Server

from .support import oid

PACKAGE = os.path.dirname(fsyncstorage.__file__) + os.sep
# The first ones fill caches, and start threads.
WARM, TIMES = 10, 100
SIDES = {
    'ours': (FsyncStorage, Server, FsyncClient),
    'stock': (ZODB.FileStorage.FileStorage, ZEO.StorageServer.StorageServer,
              ZEO.ClientStorage.ClientStorage),
}


def room(code):
    if not code.co_filename.startswith(PACKAGE):
        return None
    return code.co_filename[len(PACKAGE):-len('.py')].split(os.sep)[0]


class Count:
    """Of calls and moves, by what a thread belongs to: that of its starter."""

    def __init__(self):
        self._owners = {threading.current_thread(): 'client'}
        self._stacks = collections.defaultdict(lambda: [None])
        self.clear()

    def clear(self):
        self.calls = collections.Counter()   # by owner
        self.moves = collections.Counter()   # by owner, from and to

    def own(self, thread, owner):
        self._owners[thread] = owner

    def profile(self, frame, event, _):
        thread = threading.current_thread()
        stack = self._stacks[thread]
        if event == 'call':
            owner = self._owners.get(thread, 'client')
            if frame.f_code is threading.Thread.start.__code__:
                self._owners.setdefault(frame.f_locals['self'], owner)
            self.calls[owner] += 1
            here = room(frame.f_code) or stack[-1]
            if here != stack[-1]:
                self.moves[owner, stack[-1], here] += 1
            stack.append(here)
        elif event == 'return' and len(stack) > 1:
            stack.pop()


class Side:
    """A storage, and a server and a client over it."""

    def __init__(self, name, home, count):
        self._storage, self._server, self._client = SIDES[name]
        self._home, self._count = os.path.join(home, name), count
        os.mkdir(self._home)

    def counted(self, do):
        """Calls by owner, and moves, of one of many of these."""
        for number in range(WARM):
            do(number)
        self._count.clear()
        for number in range(WARM, WARM + TIMES):
            do(number)
        calls, moves = self._count.calls, self._count.moves
        self._count.clear()
        return calls, moves

    def journeys(self):
        """What is counted, by name."""
        with contextlib.closing(self._open('local.fs')) as storage:
            yield 'a local commit', self.counted(committing(storage))
            yield 'a local cold read', self.counted(reading(storage))
        with contextlib.closing(self._open('served.fs')) as storage, \
                self._served(storage) as address:
            with contextlib.closing(self._client(address)) as client:
                yield 'a commit over ZEO', self.counted(committing(client))
            with contextlib.closing(self._client(address)) as client:
                yield 'a cold read over ZEO', self.counted(reading(client))

    def _open(self, name):
        storage = self._storage(os.path.join(self._home, name))
        for number in range(WARM + TIMES):
            commit(storage, number, z64)
        return storage

    @contextlib.contextmanager
    def _served(self, storage):
        server = self._server(('127.0.0.1', 0), {'1': storage})
        thread = threading.Thread(target=server.loop)
        self._count.own(thread, 'server')
        thread.start()
        try:
            yield server.acceptor.addr
        finally:
            server.close()
            thread.join()


def commit(storage, number, serial):
    transaction = TransactionMetaData()
    storage.tpc_begin(transaction)
    storage.store(oid(number), serial, b'x' * 200, '', transaction)
    storage.tpc_vote(transaction)
    return storage.tpc_finish(transaction)


def committing(storage):
    serials = {}

    def do(number):
        # Each changes the same object.
        serial = serials.get(0) or storage.load(oid(0))[1]
        serials[0] = commit(storage, 0, serial)

    return do


def reading(storage):
    return lambda number: storage.loadBefore(oid(number), maxtid)


def measured():
    """By side: by journey and owner, the calls; the moves."""
    found = {}
    with tempfile.TemporaryDirectory() as home:
        for name in SIDES:
            count = Count()
            threading.setprofile(count.profile)
            sys.setprofile(count.profile)
            found[name] = dict(Side(name, home, count).journeys())
            sys.setprofile(None)
            threading.setprofile(None)
    return found


def main():
    parser = argparse.ArgumentParser(
        prog='python -m tests.calls', description=__doc__.split('\n\n')[0])
    parser.add_argument('--moves', action='store_true')
    arguments = parser.parse_args()
    found = measured()
    print(f'{"":32}{"ours":>8}{"stock":>8}{"moves":>8}')
    for journey, (calls, moves) in found['ours'].items():
        for owner in sorted(calls):
            of_stock = found['stock'][journey][0][owner]
            own = {each: number for each, number in moves.items()
                   if each[0] == owner}
            print(f'{journey + ", " + owner:32}{calls[owner] / TIMES:8.0f}'
                  f'{of_stock / TIMES:8.0f}{sum(own.values()) / TIMES:8.0f}')
            if arguments.moves:
                for (_, begin, end), number in own.items():
                    print(f'{"":8}{number / TIMES:5.1f} from {begin or "-"}'
                          f' to {end}')


if __name__ == '__main__':
    main()
