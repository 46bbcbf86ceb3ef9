"""Views of local readers, while others write and packs come (I14).

Each transaction changes two accounts.  A view is what a reader finds in all of
them, as of the last transaction that it was told of.  In the end it is known
which transactions there were: each view must have exactly those.  So one that
is stale is wrong, as is one that has half of a transaction.
"""

import bisect
import random
import threading
import time
import unittest

from ZODB.POSException import ConflictError
from ZODB.serialize import referencesf

from fsyncstorage.format import objectmap as layout

from ..support import Thread
from ..support import oid
from .connected import begin
from .connected import store
from .localanswers import LocalAnswers
from .test_local import LocalTestCase
from .test_local import after

ACCOUNTS = 20


@unittest.skipUnless(layout.is_possible(), 'needs sealed memory')
class Views(LocalTestCase):

    level = 2
    records = {number: b'%d' % number for number in range(ACCOUNTS)}
    durability = 'group-commit'
    views, packs = 60, 2
    #: Part of the loads that the server is not asked for: else it would show
    #: nothing.
    locally = 0.5

    def open(self, name='Data.fs', **options):
        return super().open(
            name, **{'durability': self.durability, 'sync_interval': '1ms',
                     **options})

    def setUp(self):
        super().setUp()
        self.end = threading.Event()
        self.written = {number: [self.tid] for number in range(ACCOUNTS)}
        #: (told, tids of the accounts)
        self.seen = []
        self.answers = LocalAnswers(self)

    def write(self, client, seed):
        choice = random.Random(seed)
        while not self.end.is_set():
            numbers = choice.sample(range(ACCOUNTS), 2)
            transaction = begin(client)
            try:
                for number in numbers:
                    serial = self.read(client, number)[1]
                    store(client, transaction, number,
                          b'%d' % choice.getrandbits(60), serial)
                client.tpc_vote(transaction)
            except ConflictError:
                client.tpc_abort(transaction)
                continue
            tid = client.tpc_finish(transaction)
            for number in numbers:
                bisect.insort(self.written[number], tid)

    def view(self, client):
        while len(self.seen) < self.views:
            told = client.lastTransaction()
            self.seen.append((told, [
                client.loadBefore(oid(number), after(told))[1]
                for number in range(ACCOUNTS)]))

    def test_each_is_of_one_moment_and_of_the_last(self):
        writers = [Thread(self.write, self.connect(), seed)
                   for seed in range(2)]
        try:
            readers = [Thread(self.view, self.connect()) for _ in range(2)]
            for number in range(1, self.packs + 1):
                while (len(self.seen) < self.views * number // (self.packs + 1)
                       and any(each.is_alive() for each in readers)):
                    time.sleep(0.001)
                self.storage.pack(time.time(), referencesf, gc=False)
            for each in readers:
                each.result()
        finally:
            self.end.set()
            for each in writers:
                each.result()
        self.check()

    def check(self):
        wrong = []
        for told, found in self.seen:
            for number, tid in enumerate(found):
                tids = self.written[number]
                expected = tids[bisect.bisect_right(tids, told) - 1]
                if tid != expected:
                    wrong.append((told, number, tid, expected))
        self.assertEqual(wrong, [])
        self.assertGreaterEqual(len(self.seen), self.views)
        self.assertGreater(
            self.answers.known, len(self.seen) * ACCOUNTS * self.locally)


class ManyViews(Views):

    level = 3
    views, packs = 50_000, 20


class ViewsUnderInterval(Views):

    level = 3
    durability = 'interval'
    locally = 0.1
