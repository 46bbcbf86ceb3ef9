"""Many clients commit to one object, for as long as somebody likes.

    python -m tests.server.hotobject SECONDS [CLIENTS]

Half of the transactions change the hot object alone, a quarter of them another
one besides, and a quarter only another one.  So a transaction that waits for
two objects can be passed by those that want only one of them.  Each client is
a process: ours with one trip a commit, ours with two, and stock, in turn.

It is counted how often each vote is passed by later ones, by a watch that
knows nothing of how `commit.locks` counts that; and each increment that a
client was told of has to be there.
"""

import argparse
import collections
import contextlib
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import threading
from unittest import mock

import ZEO
import ZODB
from persistent.mapping import PersistentMapping
from ZODB.POSException import ConflictError

from fsyncstorage import FsyncStorage
from fsyncstorage.commit import turns
from fsyncstorage.commit.locks import MOST_PASSED
from fsyncstorage.commit.locks import Locks
from fsyncstorage.server.server import Server

from ..resource import BEHIND
from ..resource import Resource
from . import reader

KINDS = 'ours', 'two trips', 'stock'
OTHERS = range(1, 4)
HOT = 0


class Watch(Locks):
    """Counts by how many later ones each owner was passed."""

    def __init__(self, votes=math.inf):
        super().__init__()
        #: Set when so many votes were served.
        self.enough = threading.Event()
        self._votes = votes
        self._served = 0
        # In the order in which they came: owner -> [its objects, passed].
        self._came = {}
        #: How many owners were passed so often before they were served.
        self.passed = collections.Counter()

    def ask(self, owner, written, read=()):
        written = frozenset(written)
        if not self.knows(owner):
            self._came[owner] = [written, 0]
        return super().ask(owner, written, read)

    def let_go(self, owner):
        self._came.pop(owner, None)
        return super().let_go(owner)

    def _grant(self, owner, written, read):
        if owner in self._came:
            for earlier, it in self._came.items():
                if earlier == owner:
                    break
                it[1] += not it[0].isdisjoint(written)
            self.passed[self._came.pop(owner)[1]] += 1
            self._served += 1
            if self._served == self._votes:
                self.enough.set()
        super()._grant(owner, written, read)

    @property
    def most(self):
        """By how many one of them was passed."""
        return max(self.passed, default=0)


class Outcome:
    """What came of it."""

    def __init__(self, watch, told, there):
        self.watch = watch
        #: By object: the increments that clients were told of, and those that
        #: are in the file.
        self.told = told
        self.there = there

    def problems(self):
        if self.watch.most > MOST_PASSED:
            yield f'a vote was passed by {self.watch.most} later ones'
        if self.told != self.there:
            yield f'clients were told of {self.told}, there are {self.there}'

    def __str__(self):
        passed = ', '.join(f'{number} by {by}' for by, number
                           in sorted(self.watch.passed.items()))
        return f'{sum(self.there)} commits; votes that were passed: {passed}'


def run(clients, watch, seconds):
    """Let so many clients commit, until there were enough or time is over."""
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory())
        stack.enter_context(mock.patch.object(turns, 'Locks', lambda: watch))
        storage = FsyncStorage(
            os.path.join(directory, 'Data.fs'), durability='none')
        stack.callback(storage.close)
        server = stack.enter_context(served(storage))
        with contextlib.closing(ZEO.connection(server.addr)) as connection:
            populate(connection)
        processes = [stack.enter_context(client(server.addr, number))
                     for number in range(clients)]
        watch.enough.wait(seconds)
        # They end with their input.
        told = [json.loads(process.communicate()[0]) for process in processes]
        with contextlib.closing(ZEO.connection(server.addr)) as connection:
            there = values(connection)
    return Outcome(watch, list(map(sum, zip(*told))), there)


@contextlib.contextmanager
def served(storage):
    server = Server(('127.0.0.1', 0), {'1': storage})
    thread = threading.Thread(target=server.loop)
    thread.start()
    try:
        yield server
    finally:
        server.close()
        thread.join()


@contextlib.contextmanager
def client(address, number):
    host, port = address
    process = subprocess.Popen(
        [sys.executable, '-m', __spec__.name, '--client',
         KINDS[number % len(KINDS)], host, str(port)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, 'PYTHONPATH': os.pathsep.join(sys.path)})
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def populate(connection):
    for name in (HOT, *OTHERS):
        connection.root()[name] = PersistentMapping(value=0)
    connection.transaction_manager.commit()


def values(connection):
    return [connection.root()[name]['value'] for name in (HOT, *OTHERS)]


# A client

def commit_until_the_input_ends(kind, host, port):
    """Print, for each object, how often it was told that it changed it."""
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set())).start()
    told = [0] * (1 + len(OTHERS))
    connection = ZODB.connection(reader.CLIENTS[kind]((host, int(port))))
    with contextlib.closing(connection):
        while not ended.is_set():
            names = choice()
            try:
                increment(connection, names, kind == 'two trips')
            except ConflictError:
                connection.transaction_manager.abort()
                continue
            for name in names:
                told[name] += 1
    print(json.dumps(told))


def choice():
    other = random.choice(OTHERS)
    return random.choice([(HOT,), (HOT,), (HOT, other), (other,)])


def increment(connection, names, two_trips):
    under_way = connection.transaction_manager.begin()
    if two_trips:
        under_way.join(Resource(BEHIND))
    for name in names:
        connection.root()[name]['value'] += 1
    connection.transaction_manager.commit()


def main(arguments):
    if arguments[:1] == ['--client']:
        commit_until_the_input_ends(*arguments[1:])
        return
    parser = argparse.ArgumentParser(
        prog=f'python -m {__spec__.name}',
        description='Clients commit to one object; how often is a vote '
        'passed by later ones?')
    parser.add_argument('seconds', type=float)
    parser.add_argument('clients', type=int, nargs='?', default=16)
    options = parser.parse_args(arguments)
    outcome = run(options.clients, Watch(), options.seconds)
    print(outcome)
    problems = list(outcome.problems())
    print(*problems or ['No problem.'], sep='\n')
    sys.exit(bool(problems))


if __name__ == '__main__':
    main(sys.argv[1:])
