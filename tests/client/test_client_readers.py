"""A client that reads by the processes of its server."""

import contextlib
import os
import random
import signal
import threading
from unittest import mock

from ZODB.POSException import POSKeyError
from ZODB.utils import maxtid
from ZODB.utils import p64
from ZODB.utils import u64

from fsyncstorage import core
from fsyncstorage.client import readers as client_readers
from fsyncstorage.client.failover import NoServer
from fsyncstorage.server import readers

from ..support import TestCase
from ..support import Thread
from ..support import oid
from ..support import until
from .connected import ConnectedTestCase
from .connected import commit

OBJECTS = 200


class Reading(ConnectedTestCase):

    readers = 2
    records = {number: b'%d' % number * 100 for number in range(OBJECTS)}

    def setUp(self):
        super().setUp()
        self.client = self.connect()

    def read_by_processes(self):
        return self.in_loop(lambda: self.figures.requests)

    def now(self):
        """Before which a transaction reads that begins now."""
        return p64(u64(self.tid) + 1)

    def check_all(self, client, choice=None):
        records = list(self.records.items())
        if choice is not None:
            choice.shuffle(records)
        for number, data in records:
            self.assertEqual(client.loadBefore(oid(number), self.now()),
                             (data, self.tid, None))

    def kill_one(self):
        """Of the processes; False: there is none now."""
        pids = self.in_loop(lambda: [
            each._child.pid for each in self.server.readers._processes
            if each._child])
        with contextlib.suppress(ProcessLookupError):  # it was killed before
            for pid in pids[:1]:
                os.kill(pid, signal.SIGKILL)
        return pids

    def read_in_all(self):
        """By the processes, for the client, which goes."""
        self.client.close()
        until(lambda: not self.in_loop(lambda: self.server.readers._readers),
              'all is counted')
        return self.read_by_processes()

    def test_from_the_processes_and_from_the_cache(self):
        for _ in range(2):
            self.check_all(self.client)
        self.assertEqual(self.read_in_all(), OBJECTS)
        self.assertEqual(self.server.stats['1'].loads, OBJECTS)

    def test_many_threads(self):
        """They have fewer readers than they are."""
        client = self.connect(read_channels=3)
        threads = [Thread(self.check_all, client, random.Random(seed))
                   for seed in range(12)]
        for thread in threads:
            thread.result()
        until(self.read_by_processes, 'they are counted')
        self.assertLessEqual(
            self.in_loop(lambda: len(self.server.readers._readers)), 3)

    def test_what_only_the_server_can_say(self):
        self.assertRaises(POSKeyError, self.client.load, oid(OBJECTS))
        self.assertIsNone(
            self.client.loadBefore(oid(1), self.tid))
        self.check_all(self.client)

    def test_prefetched(self):
        """Each is asked for once; when it is wanted, its answer is here, or on
        the way."""
        self.client.prefetch(
            (oid(number) for number in range(OBJECTS + 5)), self.now())
        self.check_all(self.client)
        # What there is not is not kept.
        self.assertRaises(POSKeyError, self.client.load, oid(OBJECTS))
        self.assertEqual(self.read_in_all(), OBJECTS + 5 + 1)

    def test_what_changes_behind_a_prefetch(self):
        """Its answer is not that of a load which begins afterwards."""
        other = self.connect()
        self.client.prefetch([oid(1)], maxtid)
        until(self.read_by_processes, 'it is answered')
        tid = commit(other, {1: b'new'}, self.tid)
        self.client.ping()
        self.assertEqual(self.client.load(oid(1)), (b'new', tid))

    def test_a_process_that_is_killed(self):
        """Loads go on over the stream, and then by the next process."""
        self.patch(readers, RETREAT=0)
        self.patch(client_readers, RETREAT=0)
        self.check_all(self.client)
        stop = threading.Event()

        def read():
            while not stop.is_set():
                with contextlib.closing(self.connect()) as client:
                    self.check_all(client)

        threads = [Thread(read) for _ in range(3)]
        for _ in range(5):
            until(self.kill_one, 'a process reads')
        stop.set()
        for thread in threads:
            thread.result()

    def test_a_blob(self):
        data = os.urandom(1 << 20)
        serial = self.store_blob(300, data)
        client = self.connect(blob_dir=self.path('cache'))
        with open(client.loadBlob(oid(300), serial), 'rb') as file:
            self.assertEqual(file.read(), data)
        until(self.read_by_processes, 'it came by a process')
        # What a process does not find, the server looks for.
        self.assertRaises(POSKeyError, client.loadBlob, oid(300), self.tid)

    def test_a_blob_whose_reader_is_lost(self):
        """The rest of it comes on another way."""
        self.readers = 1
        self.serve_again()
        data = os.urandom(1 << 26)
        serial = self.store_blob(300, data)
        client = self.connect(blob_dir=self.path('cache'))
        self.check_all(client)  # so the process runs
        loading = Thread(client.loadBlob, oid(300), serial)
        until(lambda: self.in_loop(lambda: self.figures.sent) > 1 << 22,
              'some of it was sent')
        self.kill_one()
        with open(loading.result(), 'rb') as file:
            self.assertEqual(file.read(), data)


class Opening(TestCase):
    """Behind a proxy that lets streams through, and no readers."""

    def test_a_reader_is_tried_more_and_more_seldom(self):
        clock, tries = [0.0], []

        def open_one(within):
            tries.append(clock[0])
            raise NoServer('a proxy')

        self.patch(client_readers.time, monotonic=lambda: clock[0])
        several = client_readers.Readers('a client', 4, open_one)
        with self.assertLogs('fsyncstorage.client.readers', 'INFO') as logs:
            for clock[0] in range(3600):
                self.assertRaises(client_readers.Lost, several.take)
        self.assertEqual(
            tries, [0, 5, 15, 35, 75, 155, 315, 635, 1235, 1835, 2435, 3035])
        self.assertEqual(
            [record.levelname for record in logs.records],
            ['WARNING'] + ['INFO'] * 11)


class ReadingByTwins(Reading):
    """Where the core was not built."""

    level = 2

    def setUp(self):
        self.patch(core, load=None)
        environment = mock.patch.dict(os.environ, FSYNC_CORE='off')
        environment.start()
        self.addCleanup(environment.stop)
        super().setUp()
