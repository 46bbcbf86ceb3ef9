"""A planned change of the node that leads, under load: a commit that meets it
can be tried again, and nothing is lost or made twice.

Each thread increments a counter of its own, time after time, in one trip or in
two.  Some commits are large, or have a blob or new objects.
"""

import contextlib
import threading

import transaction
from persistent.mapping import PersistentMapping
from transaction.interfaces import TransientError
from ZODB.blob import Blob
from ZODB.DB import DB

from fsyncstorage.client.storage import FsyncClient
from fsyncstorage.quorum.roles import stepdown

from ..support import PATIENCE
from ..support import Thread
from ..support import until
from .pair import OnEtcd
from .pair import Pair

#: Of each of the two clients.
THREADS = 8
#: One commit in so many.
WITH_A_BLOB, WITH_NEW_OBJECTS, LARGE = 7, 11, 97
#: Bytes that leave in several pieces.
LARGE_ONE = [1 << 20] * 6


class InTwoTrips(FsyncClient):

    def tpc_vote(self, txn):
        return super().tpc_vote(txn)


class Counter:

    def __init__(self, db, name):
        self.name = name
        self.counted = 0
        self._db = db
        self._manager = transaction.TransactionManager()
        with contextlib.closing(db.open(self._manager)) as connection:
            for attempt in self._manager.attempts():
                with attempt:
                    connection.root()[name] = PersistentMapping(value=0)

    def run(self, is_over):
        with contextlib.closing(self._db.open(self._manager)) as connection:
            while not is_over():
                mapping = connection.root()[self.name]
                assert mapping['value'] == self.counted
                self._change(mapping, self.counted + 1)
                try:
                    self._manager.commit()
                except TransientError:
                    self._manager.abort()
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


class UnderLoad(Pair):

    level = 3
    times = 2

    def setUp(self):
        super().setUp()
        for each in self.nodes:
            each.configure(f'blob-dir {each.home}/blobs')

    def connect(self, client=FsyncClient):
        storage = client(
            [each.address for each in self.nodes], wait_timeout=PATIENCE,
            blob_dir=self.path(f'cache {client.__name__}'))
        db = DB(storage, pool_size=THREADS + 1)
        self.addCleanup(db.close)
        return db

    def test_all_can_be_tried_again(self):
        self.both()
        counters = [
            Counter(db, f'{number} of {db.storage.__class__.__name__}')
            for db in (self.connect(), self.connect(InTwoTrips))
            for number in range(THREADS)]
        over = threading.Event()
        threads = [Thread(each.run, over.is_set) for each in counters]
        try:
            for _ in range(self.times):
                self.step_down()
        finally:
            over.set()
        for each in threads:
            each.result()
        with self.connect().transaction() as connection:
            for each in counters:
                self.assertEqual(
                    connection.root()[each.name]['value'], each.counted)
        self.ends_equal()

    def step_down(self):
        first, second = sorted(self.nodes, key=lambda each: not each.leads)
        self.assertTrue(stepdown.ask(self.log()))
        until(lambda: second.leads, 'the other one leads')
        until(lambda: first.stands_by, 'it follows now')


class UnderLoadOnEtcd(OnEtcd, UnderLoad):

    times = 20
