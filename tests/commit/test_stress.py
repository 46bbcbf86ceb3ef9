"""Many threads at once: commits, reads, packs, undos.

For a moment, and at level 3 for a minute with 64 threads, under every policy.
"""

import gc
import random
import resource
import threading

import transaction
import ZODB
from BTrees.Length import Length
from BTrees.OOBTree import OOBTree
from persistent.mapping import PersistentMapping
from ZODB.POSException import ConflictError
from ZODB.POSException import ReadConflictError
from ZODB.POSException import UndoError

from fsyncstorage.commit import policies

from ..often import LEVEL
from ..often import often
from ..support import TestCase


class Stress(TestCase):

    level = 2
    threads = often(16, 64)
    seconds = often(0.3, 60)

    def test_each_policy(self):
        for policy in often(('interval', 'group-commit'), policies.POLICIES):
            with self.subTest(policy):
                self.run_policy(policy)

    def run_policy(self, policy):
        storage = self.open(
            policy, durability=policy, sync_interval='20ms',
            blob_dir=self.path(f'{policy}-blobs'))
        db = ZODB.DB(storage, pool_size=self.threads + 8)
        self.db = db
        with db.transaction() as connection:
            root = connection.root()
            root['shared'] = Length()
            root['own'] = OOBTree({
                number: PersistentMapping(count=0)
                for number in range(self.threads)})
        self.stop = threading.Event()
        self.errors = []
        self.packs, self.packed_away = 0, []
        self.counts = [0] * self.threads
        self.shared = [0] * self.threads
        workers = [threading.Thread(target=self.guard, args=(call, *args))
                   for call, *args in [
                       *((self.commit, n) for n in range(self.threads)),
                       (self.read,), (self.read,), (self.iterate,),
                       (self.undo,), (self.pack,)]]
        for worker in workers:
            worker.start()
        self.watch()
        self.stop.set()
        for worker in workers:
            worker.join(60)
        self.assertFalse(any(worker.is_alive() for worker in workers))
        self.assertEqual(self.errors, [])
        # Each pack can do so to each transaction that there is.
        self.assertLessEqual(
            len(self.packed_away), self.packs * len(workers))
        self.check(db)
        db.close()
        reopened = ZODB.DB(self.open(
            policy, blob_dir=self.path(f'{policy}-blobs')))
        self.check(reopened)
        reopened.close()

    def watch(self):
        """Of a minute: memory is flat, no more after all of it than after a
        part."""
        self.stop.wait(self.seconds / 4)
        early = self.memory()
        self.stop.wait(self.seconds * 3 / 4)
        if LEVEL == 3:
            self.assertLess(self.memory(), early * 1.25 + (16 << 20))

    def memory(self):
        gc.collect()
        with open('/proc/self/statm') as file:
            return int(file.read().split()[1]) * resource.getpagesize()

    def check(self, db):
        """No update was lost, and none was made up."""
        with db.transaction() as connection:
            root = connection.root()
            self.assertEqual(
                [root['own'][n]['count'] for n in range(self.threads)],
                self.counts)
            self.assertEqual(root['shared'](), sum(self.shared))
        self.assertGreater(sum(self.counts), self.threads)

    def guard(self, call, *args):
        try:
            while not self.stop.is_set():
                try:
                    call(*args)
                except ReadConflictError:
                    # A pack to the present took what it looked at.
                    self.packed_away.append(call.__name__)
        except BaseException as error:
            self.errors.append((call.__name__, repr(error)))
            self.stop.set()

    def commit(self, number):
        manager = transaction.TransactionManager()
        connection = self.db.open(manager)
        try:
            for _ in range(20):
                with manager:
                    root = connection.root()
                    mapping = root['own'][number]
                    mapping['count'] += 1
                    mapping['text'] = 'x' * random.randrange(2000)
                self.counts[number] += 1
                try:
                    with manager:  # resolved, not conflicting, when it can be
                        connection.root()['shared'].change(1)
                    self.shared[number] += 1
                except ConflictError:
                    pass
        finally:
            connection.close()

    def read(self):
        before = list(self.counts)
        with self.db.transaction() as connection:
            own = connection.root()['own']
            connection.cacheMinimize()
            for number in range(self.threads):
                # What was acknowledged before we began is there.
                assert own[number]['count'] >= before[number]

    def iterate(self):
        tids = [record.tid for record in self.db.storage.iterator()]
        assert tids == sorted(set(tids))
        last = self.db.storage.lastTransaction()
        assert last >= tids[-1]
        for tid, oids in self.db.storage.lastInvalidations(10):
            assert oids or tid

    def undo(self):
        """Undo something of its own, again and again."""
        manager = transaction.TransactionManager()
        connection = self.db.open(manager)
        try:
            with manager:
                connection.root().setdefault('undone', PersistentMapping())
            with manager:
                manager.get().note('to be undone')
                connection.root()['undone']['value'] = random.random()
            log = self.db.storage.undoLog(
                0, -1, lambda entry: entry['description'] == b'to be undone')
            if log:
                self.db.undo(log[0]['id'], manager.get())
                manager.commit()
        except (UndoError, ConflictError):
            manager.abort()
        finally:
            connection.close()

    def pack(self):
        self.packs += 1
        self.db.pack()
        self.stop.wait(self.seconds / 10)
