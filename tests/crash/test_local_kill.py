"""Local readers of a server that is killed again and again (I14).

As in test_local_views: each view must have exactly the transactions up to the
last one that the reader was told of.  What there was is known from the file.
"""

import bisect
import contextlib
import pathlib
import random
import threading
import unittest

from ZEO.Exceptions import ClientDisconnected
from ZODB.POSException import POSError
from ZODB.utils import p64
from ZODB.utils import u64

from fsyncstorage.client.storage import FsyncClient
from fsyncstorage.format import objectmap as layout

from ..client.connected import begin
from ..client.connected import store
from ..client.localanswers import LocalAnswers
from ..support import PATIENCE
from ..support import TestCase
from ..support import Thread
from ..support import commit
from ..support import oid
from ..support import until
from .serverprocess import ServerProcess

ACCOUNTS = 20
CONFIG = """
%import fsyncstorage
<zeo>
  address {0}/zeo.sock
</zeo>
<fsyncstorage 1>
  path {0}/Data.fs
  durability {1}
  sync-interval 5ms
  local-reads on
</fsyncstorage>
"""


@unittest.skipUnless(layout.is_possible(), 'needs sealed memory')
class Killed(ServerProcess, TestCase):

    level = 2
    lives, views_of_a_life = 2, 100
    durability = 'group-commit'

    def setUp(self):
        super().setUp()
        storage = self.open()
        commit(storage, {number: b'0' for number in range(ACCOUNTS)})
        storage.close()
        pathlib.Path(self.path('zeo.conf')).write_text(
            CONFIG.format(self.directory, self.durability))
        self.end = threading.Event()
        self.seen = []
        self.answers = LocalAnswers(self)

    def connect(self):
        client = FsyncClient(
            self.path('zeo.sock'), wait_timeout=PATIENCE)
        self.addCleanup(client.close)
        return client

    def write(self, client):
        choice = random.Random(0)
        while not self.end.is_set():
            try:
                self.write_one(client, choice)
            except (POSError, ClientDisconnected):
                self.end.wait(0.01)  # until there is a server again

    def write_one(self, client, choice):
        transaction = begin(client)
        try:
            for number in choice.sample(range(ACCOUNTS), 2):
                store(client, transaction, number,
                      b'%d' % choice.getrandbits(60),
                      self.load(client, number, client.lastTransaction()))
            client.tpc_vote(transaction)
            client.tpc_finish(transaction)
        except BaseException:
            with contextlib.suppress(ClientDisconnected):
                client.tpc_abort(transaction)
            raise

    def load(self, client, number, told):
        return client.loadBefore(oid(number), p64(u64(told) + 1))[1]

    def view(self, client):
        while not self.end.is_set():
            told = client.lastTransaction()
            with contextlib.suppress(ClientDisconnected):
                self.seen.append((told, [
                    self.load(client, number, told)
                    for number in range(ACCOUNTS)]))

    def test_each_view_is_of_one_moment_and_of_the_last(self):
        self.start()
        threads = []
        try:
            client = self.connect()
            threads = [Thread(self.write, self.connect()),
                       Thread(self.view, client)]
            for _ in range(self.lives):
                until(lambda: client._server.local is not None
                      and client._server.local.source is not None, 'local')
                before = len(self.seen)
                until(lambda: len(self.seen) >= (
                    before + self.views_of_a_life), 'views')
                self.kill()
                self.start()
                until(client.is_connected, 'connected')
        finally:
            self.end.set()
            try:
                for each in threads:
                    each.result()
            finally:
                self.kill()
        self.check()

    def check(self):
        written = [[] for _ in range(ACCOUNTS)]
        for transaction in self.open().iterator():
            for record in transaction:
                written[u64(record.oid)].append(record.tid)
        for told, found in self.seen:
            self.assertEqual(found, [
                tids[bisect.bisect_right(tids, told) - 1]
                for tids in written])
        self.assertGreater(self.answers.known, len(self.seen) * ACCOUNTS // 4)


class KilledOften(Killed):

    level = 3
    lives = 30


class KilledUnderInterval(Killed):

    durability = 'interval'
