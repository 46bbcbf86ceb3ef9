"""A bank that local readers look at while all that may happen does (I14).

Each transaction moves money between accounts, in one trip where it can.
Views are those of ZODB's connections, which read locally.  Meanwhile the
server packs, is killed again and again, and its file loses some of what was
not durable, as in a power cut.  The readers find the next server only when
others have written to the file there.

The sum of a view is always the same.  In the end it is known which
transactions there were: a view must have exactly those up to the last one that
its reader was told of, so one that is stale is wrong, too.
"""

import bisect
import contextlib
import os
import pathlib
import random
import signal
import subprocess
import sys
import threading
import time
import unittest

import transaction
import ZODB
from transaction.interfaces import TransientError
from ZODB.FileStorage import FileIterator
from ZODB.POSException import POSError
from ZODB.tests.MinPO import MinPO
from ZODB.utils import maxtid
from ZODB.utils import p64
from ZODB.utils import u64

from fsyncstorage.client.local import LocalReads
from fsyncstorage.client.localcounts import LocalCounts
from fsyncstorage.client.storage import FsyncClient
from fsyncstorage.format import UNCERTAIN
from fsyncstorage.format import objectmap as layout
from fsyncstorage.format.objectmap import MapReader
from fsyncstorage.local import handedover
from fsyncstorage.wire import frames

from ..client.talking import Talking
from ..often import often
from ..support import PATIENCE
from ..support import TestCase
from ..support import Thread
from ..support import oid
from ..support import until

ACCOUNTS = 20
#: With fewer or more, records would have other lengths.
MONEY = 10_000
CONFIG = """
%import fsyncstorage
<zeo>
  address {0}/zeo.sock
</zeo>
<fsyncstorage 1>
  path {0}/Data.fs
  durability {1}
  sync-interval 200ms
  pack-process off
  local-reads on
</fsyncstorage>
"""


class LocalAnswers:
    """How many loads of the clients in this process were answered by the data
    file itself, and how many were left to the server."""

    def __init__(self, test):
        self.known = self.uncertain = 0
        load = LocalReads.load_before

        def counted(reads, *args):
            answer = load(reads, *args)
            self.uncertain += answer is UNCERTAIN
            return answer

        answered = LocalCounts.answered

        def known(counts):
            self.known += 1
            return answered(counts)

        # (By the core, too.)
        test.patch(LocalCounts, answered=known)
        test.patch(LocalReads, load_before=counted)


@unittest.skipUnless(layout.is_possible(), 'needs sealed memory')
class Bank(TestCase):

    level = 3
    lives, views_of_a_life = often(3, 25), often(20, 1000)
    durability = 'group-commit'
    #: Part of the loads that the server is not asked for: else it would show
    #: nothing.
    locally = 0.25

    def setUp(self):
        super().setUp()
        self.choice = random.Random(0)
        with contextlib.closing(ZODB.DB(self.open())) as db:
            with db.transaction() as connection:
                for number in range(ACCOUNTS):
                    connection.root()[number] = MinPO(MONEY)
            with db.transaction() as connection:
                self.oids = [connection.root()[number]._p_oid
                             for number in range(ACCOUNTS)]
        pathlib.Path(self.path('zeo.conf')).write_text(
            CONFIG.format(self.directory, self.durability))
        #: (tid, oids) of the transactions that there are; and of those that
        #: there were, one list for each end that was lost.
        self.history, self.histories = [], []
        self.look_at_history()
        self.end = threading.Event()
        #: (the tid before which it read, the serials of the accounts)
        self.views, self.wrong_sums, self.lost = [], [], 0
        #: Money was moved so often; each time between so many accounts.
        self.moved, self.involved = 0, 2
        self.answers = LocalAnswers(self)
        #: Each source that was handed over, and its map.
        self.sources = []
        make = handedover.Source

        def made(data_file, object_map, instance, **options):
            source = make(data_file, object_map, instance, **options)
            self.sources.append((source, MapReader(object_map, instance)))
            return source

        self.patch(handedover, Source=made)
        #: The client that finds no server now; and who looks holds this.
        self.held_up, self.looking = None, threading.Lock()
        hello = FsyncClient._hello

        def held_up(client, flags):
            until(lambda: client is not self.held_up, 'it goes on')
            return hello(client, flags)

        self.patch(FsyncClient, _hello=held_up)

    # The server

    def start(self):
        self.began = time.time()
        self.server = subprocess.Popen(
            [sys.executable, '-m', 'fsyncstorage.server.runzeo', '-C',
             self.path('zeo.conf')], stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)

    def kill(self):
        self.server.kill()
        self.server.wait()

    def end_life(self, client):
        """Kill the server; return the map that the client had."""
        found = self.map_of(client)
        self.kill()
        return found

    def map_of(self, client):
        local = client._local
        used = local and local.source
        return next(
            (each for source, each in self.sources if source is used), None)

    def is_of_the_file(self, found):
        """Else a pack has just put another file in its place."""
        return found is not None and found.is_of(os.stat(self.path()))

    def look_at_history(self):
        """Note what is new in the file, and return where each ends.

        What a pack may remove was noted before."""
        last, ends = self.history[-1][0] if self.history else b'', {}
        with contextlib.closing(FileIterator(self.path())) as found:
            for each in found:
                ends[each.tid] = each._tend + 8
                if each.tid > last:
                    self.history.append(
                        (each.tid, [record.oid for record in each]))
        return ends

    def lose(self, ends, found):
        """Cut off some of what the killed server had not made durable; return
        how many transactions."""
        if not self.is_of_the_file(found):
            return 0
        possible = [
            end for end in ends.values() if end >= found.marks()[1]]
        kept = self.choice.choice(
            possible[:-1] or [os.path.getsize(self.path())])
        os.truncate(self.path(), kept)
        whole = [each for each in self.history
                 if ends.get(each[0], 0) <= kept]
        lost = len(self.history) - len(whole)
        if lost:
            self.lost += lost
            self.histories.append(self.history)
            self.history = whole
        return lost

    # Its clients

    def connect(self):
        client = FsyncClient(self.path('zeo.sock'), wait_timeout=PATIENCE)
        db = ZODB.DB(client)
        self.addCleanup(db.close)
        return client, db

    def repeat(self, db, once):
        """Until the end; what an application would try again is."""
        manager = transaction.TransactionManager()
        connection = db.open(manager)
        while not self.end.is_set():
            try:
                once(manager, connection)
            except (TransientError, POSError):
                with contextlib.suppress(TransientError, POSError):
                    manager.abort()
                self.end.wait(0.01)  # until there is a server again
        manager.abort()
        connection.close()

    def move_money(self, manager, connection):
        manager.begin()
        oids = sorted(random.sample(self.oids, self.involved))
        for number, oid in enumerate(oids):
            connection.get(oid).value += 1 if number % 2 else -1
        manager.commit()
        self.moved += 1

    def look(self, manager, connection):
        with self.looking:
            manager.begin()
            connection.cacheMinimize()
            accounts = [connection.get(oid) for oid in self.oids]
            if sum(each.value for each in accounts) != ACCOUNTS * MONEY:
                self.wrong_sums.append([each.value for each in accounts])
            self.views.append((connection._storage._start, [
                each._p_serial for each in accounts]))

    def test_each_view_is_of_one_moment_and_of_the_last(self):
        self.start()
        threads = []
        try:
            client, readers = self.connect()
            writers = self.connect()[1]
            threads = [
                *(Thread(self.repeat, writers, self.move_money)
                  for _ in range(2)),
                Thread(self.repeat, readers, self.look)]
            for life in range(self.lives):
                # If all are involved, a server writes records of the same
                # objects where those were that were lost.
                self.involved = ACCOUNTS if life % 4 > 1 else 2
                self.live(client)
        finally:
            self.held_up = None
            self.end.set()
            try:
                for each in threads:
                    each.result()
            finally:
                self.kill()
        self.check()

    def live(self, client):
        """The life of a server, and the begin of the next one."""
        for packs in True, False:
            until(client.is_connected, 'connected')
            until(lambda: client.stats()['reads_locally'], 'local')
            before = len(self.views)
            until(lambda: len(self.views) >= (
                before + self.views_of_a_life // 2), 'views')
            if packs:
                client.pack(self.began, wait=True)
        self.held_up = client
        with self.looking:
            source = self.end_life(client)
            lost = self.lose(self.look_at_history(), source)
            self.start()
            moved, asked_for = self.moved, self.answers.uncertain
            views = len(self.views)
            # As many, so that others are where the lost ones were.
            until(lambda: self.moved > moved + lost, 'moved')
        # What it needs is not durable: it waits for the server, or is wrong.
        until(lambda: (self.answers.uncertain > asked_for
                       or len(self.views) > views), 'a look without a server')
        self.held_up = None

    def check(self):
        self.look_at_history()
        self.assertEqual(self.wrong_sums, [])
        self.assertGreaterEqual(
            len(self.views), self.lives * self.views_of_a_life)
        # A view is of a tid behind the last transaction that was told.
        told = {}
        for history in (*self.histories, self.history):
            serials = {oid: [] for oid in self.oids}
            for tid, oids in history:
                told[p64(u64(tid) + 1)] = serials
                for oid in serials.keys() & oids:
                    serials[oid].append(tid)
        for start, found in self.views:
            expected = [tids[bisect.bisect_left(tids, start) - 1]
                        for tids in map(told[start].get, self.oids)]
            self.assertEqual(found, expected)
        self.assertGreater(
            self.answers.known, len(self.views) * ACCOUNTS * self.locally)


class BankUnderInterval(Bank):

    level = 2
    durability = 'interval'
    locally = 0.05

    def end_life(self, client):
        """Kill it when something is not durable, which can be lost."""
        until(lambda: self.stops_in_time(client), 'something to lose')
        return super().end_life(client)

    def stops_in_time(self, client):
        """Else it goes on, until more was committed."""
        self.server.send_signal(signal.SIGSTOP)
        found = self.map_of(client)
        if self.is_of_the_file(found) and found.marks()[1] < max(
                self.look_at_history().values()):
            return True
        self.server.send_signal(signal.SIGCONT)
        moved = self.moved
        until(lambda: self.moved > moved, 'moved')
        return False

    def check(self):
        super().check()
        self.assertGreater(self.lost, 0)


@unittest.skipUnless(layout.is_possible(), 'needs sealed memory')
class TheNextServer(Talking):

    def test_what_the_file_of_the_last_one_does_not_have(self):
        """When a client hears of it, it reads that file no more: the map of a
        server that was killed is not retired."""
        address = self.path('socket')
        first = self.serve(self.open(local_reads=True), address)
        self.talk(first).commit({1: b'old'})
        client = FsyncClient(address, wait_timeout=PATIENCE)
        self.addCleanup(client.close)
        until(lambda: client._local and client._local.source, 'local')
        verified, goes_on = [], threading.Event()
        hello, verify = client._hello, client._verify

        def held_up(flags):
            goes_on.wait(PATIENCE)
            return hello(flags)

        def look(*args):
            verify(*args)
            begins = p64(u64(client.lastTransaction()) + 1)
            verified.append(client._local and client._local.load_before(
                oid(1), begins))

        client._hello, client._verify = held_up, look
        first.close()
        server = self.serve(self.open(), address)
        found = self.talk(server).ask(frames.Load(0, oid(1), maxtid))
        self.talk(server).commit({1: b'new'}, found.serial)
        goes_on.set()
        until(lambda: verified, 'it has heard of it')
        self.assertIn(verified[0], (None, UNCERTAIN))
