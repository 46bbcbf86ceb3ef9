"""A process with a client of several nodes, whose threads count until its
input ends.

    python -m tests.quorum.counting PORT,PORT one|two CACHE

Each thread increments a counter of its own, time after time, in one trip or in
two, and tries nothing again: an error is one that its application would see.
Some commits are large, or have a blob or new objects.  At the end one line, in
JSON, has what is counted, and the errors.
"""

import contextlib
import json
import sys
import threading

import transaction
from persistent.mapping import PersistentMapping
from ZODB.blob import Blob
from ZODB.DB import DB

from fsyncstorage.client.storage import FsyncClient

THREADS = 8
#: One commit in so many.
WITH_A_BLOB, WITH_NEW_OBJECTS, LARGE = 7, 11, 97
#: Bytes: more than is kept in memory, and leaves in several pieces.
LARGE_ONE = [1 << 20] * 6


class Counter:

    def __init__(self, db, name):
        self.name = name
        self.counted = 0
        self.errors = []
        self._db = db
        self._manager = transaction.TransactionManager()

    def begin(self):
        with self._manager:
            connection = self._db.open(self._manager)
            connection.root()[self.name] = PersistentMapping(value=0)
        connection.close()

    def run(self, is_over):
        with contextlib.closing(self._db.open(self._manager)) as connection:
            while not is_over():
                self._count(connection.root()[self.name])

    def _count(self, mapping):
        try:
            if mapping['value'] != self.counted:
                self.errors.append(
                    f'{self.name}: {mapping["value"]}, not {self.counted}')
            self._change(mapping, self.counted + 1)
            self._manager.commit()
        except Exception as error:
            self._manager.abort()
            self.errors.append(f'{self.name}: {error!r}')
        else:
            self.counted += 1

    def _change(self, mapping, number):
        mapping['value'] = number
        if not number % WITH_A_BLOB:
            mapping['blob'] = Blob(b'%d' % number * 10_000)
        if not number % WITH_NEW_OBJECTS:
            mapping['new'] = [
                PersistentMapping(value=number) for _ in range(40)]
        if not number % LARGE:
            mapping['large'] = [
                PersistentMapping(value=bytes(size)) for size in LARGE_ONE]


class InTwoTrips(FsyncClient):

    def tpc_vote(self, txn):
        return super().tpc_vote(txn)


CLIENTS = {'one': FsyncClient, 'two': InTwoTrips}


def main(ports, trips, cache):
    client = CLIENTS[trips](
        [('127.0.0.1', int(port)) for port in ports.split(',')],
        wait_timeout=60, blob_dir=cache)
    with contextlib.closing(DB(client, pool_size=THREADS + 1)) as db:
        counters = [Counter(db, f'{trips}.{number}')
                    for number in range(THREADS)]
        for each in counters:
            each.begin()
        print('counting', flush=True)
        over = threading.Event()
        threads = [threading.Thread(target=each.run, args=(over.is_set,))
                   for each in counters]
        for each in threads:
            each.start()
        sys.stdin.read()
        over.set()
        for each in threads:
            each.join()
    print(json.dumps({
        'counted': {each.name: each.counted for each in counters},
        'errors': sum((each.errors for each in counters), [])}))


if __name__ == '__main__':
    main(*sys.argv[1:])
