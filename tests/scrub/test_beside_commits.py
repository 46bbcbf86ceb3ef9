"""A scrub beside commits and packs: what it reads from the disk is sound.

What is durable is never written again, whatever the policy, so that a read
past the page cache finds it whole.
"""

import pickle
import random
import threading
import time
from unittest import mock

from ZODB.serialize import referencesf
from ZODB.utils import z64

from fsyncstorage.commit.policies import POLICIES
from fsyncstorage.scrub import scrubbing
from fsyncstorage.storage import transaction

from ..pack.histories import state
from ..support import Thread
from ..support import begin
from ..support import oid
from .scrubs import DAMAGE
from .scrubs import ENDED
from .scrubs import INTERRUPTED
from .scrubs import ScrubTestCase

# Bytes of a transaction that is written at its vote.
LARGE = 100_000
ROUNDS = 3


class Committer:
    """Commits, in a thread, to objects of its own."""

    def __init__(self, case, storage, number, stop):
        self._case = case
        self._storage = storage
        self._rng = random.Random(number)
        self._first = number * 100
        self._serials = {}
        self._stop = stop
        self.done = set()

    def run(self):
        kinds = [self.small, self.several, self.large, self.unsealable,
                 self.blob, self.aborted]
        while not self._stop.is_set():
            kind = self._rng.choice(kinds)
            kind()
            self.done.add(kind.__name__)

    def small(self):
        self._commit(begin(self._storage), 1, 300)

    def several(self):
        self._commit(begin(self._storage), 20, 3000)

    def large(self):
        self._commit(begin(self._storage), 2, LARGE)

    def unsealable(self):
        """Its extension has no room for a seal."""
        self._commit(begin(self._storage, extension=pickle.dumps(
            {'x': 'y' * 65480})), 1, 300)

    def blob(self):
        path = self._case.path(f'blob of {self._first}')
        with open(path, 'wb') as file:
            file.write(b'content')
        under_way = begin(self._storage)
        number = self._first
        self._storage.storeBlob(
            oid(number), self._serials.get(number, z64), self._data(10),
            path, '', under_way)
        self._finish(under_way, [number])

    def aborted(self):
        """It was written, and the file is cut back."""
        under_way = begin(self._storage)
        self._store(under_way, 2, LARGE)
        self._storage.tpc_vote(under_way)
        self._storage.tpc_abort(under_way)

    def _commit(self, under_way, count, size):
        self._finish(under_way, self._store(under_way, count, size))

    def _store(self, under_way, count, size):
        numbers = range(self._first + 1, self._first + 1 + count)
        for number in numbers:
            self._storage.store(
                oid(number), self._serials.get(number, z64),
                self._data(size), '', under_way)
        return numbers

    def _data(self, size):
        return state(self._rng, []) + self._rng.randbytes(size)

    def _finish(self, under_way, numbers):
        self._storage.tpc_vote(under_way)
        tid = self._storage.tpc_finish(under_way)
        self._serials.update(dict.fromkeys(numbers, tid))


class BesideCommits(ScrubTestCase):
    level = 3  # processes, packs and passes by the dozen

    def setUp(self):
        super().setUp()
        self.patch(scrubbing, PASS_AT_LEAST=0)

    def check(self, policy):
        storage = self.scrubbed(
            durability=policy, pack_gc=False, blob_dir=self.path('blobs'),
            sync_interval='10ms', pack_keep_old=False)
        stop = threading.Event()
        committers = [
            Committer(self, storage, number, stop) for number in (1, 2)]
        with mock.patch.object(transaction, 'MOST_BYTES_AT_ONCE', LARGE):
            threads = [Thread(each.run) for each in committers]
            try:
                for _ in range(ROUNDS):
                    # One while a process reads, and one while it starts.
                    for _ in range(2):
                        storage.pack(time.time(), referencesf)
                    passes = len(self.heard.those(ENDED))
                    self.heard.wait(ENDED, passes + 2)
            finally:
                stop.set()
            for thread in threads:
                thread.result()
        storage.close()
        self.assertEqual([len(each.done) for each in committers], [6, 6])
        for words in DAMAGE, INTERRUPTED:
            self.assertEqual(
                [each.getMessage() for each in self.heard.those(words)], [])
        for record in self.heard.those(ENDED):
            self.assertIn(' 0 damaged', record.getMessage())


def _add_tests():
    for policy in POLICIES:
        def test(self, policy=policy):
            self.check(policy)

        name = f'test_{policy.replace("-", "_")}'
        test.__name__ = name
        setattr(BesideCommits, name, test)


_add_tests()
