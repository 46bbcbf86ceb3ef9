"""Reads of a client: threads that read at the same time, and odd callers.

(By the processes of a server: test_client_readers.)
"""

import contextlib
import threading
from unittest import mock

from ZODB.utils import maxtid

from fsyncstorage.client import reads

from ..support import PATIENCE
from ..support import Thread
from ..support import oid
from ..support import until
from .connected import ConnectedTestCase


class Threads(ConnectedTestCase):

    records = {number: b'data %d' % number for number in range(1, 9)}

    @contextlib.contextmanager
    def asks(self, client):
        """What its threads learnt of who loads an object."""
        ask, answers = client._cache.ask, []

        def note(*args):
            answers.append(ask(*args))
            return answers[-1]

        with mock.patch.object(client._cache, 'ask', note):
            yield answers

    def test_one_object_is_asked_for_once(self):
        """Whoever wants it meanwhile gets the same answer."""
        client = self.connect()
        with self.loads_held_up(), self.asks(client) as asked:
            threads = [Thread(self.load, client, 1) for _ in range(8)]
            until(lambda: len(asked) == 8, 'all want it')
        for thread in threads:
            self.assertEqual(thread.result(), (b'data 1', self.tid, None))
        self.assertEqual(self.service.stats.loads, 1)

    def test_who_asks_for_the_others_is_interrupted(self):
        """Another one asks then."""
        self.patch(reads, SHARED_LOAD_WITHIN=2 * PATIENCE)
        client = self.connect()
        go_on, asked = threading.Event(), client._reads._asked

        def interrupted(*load):
            client._reads._asked = asked
            go_on.wait(PATIENCE)
            raise KeyboardInterrupt

        client._reads._asked = interrupted
        with self.asks(client) as wanted:
            threads = [Thread(self.load, client, 1) for _ in range(4)]
            until(lambda: len(wanted) == 4, 'all want it')
            go_on.set()
            found = []
            for thread in threads:
                with contextlib.suppress(KeyboardInterrupt):
                    found.append(thread.result())
        self.assertEqual(found, 3 * [(b'data 1', self.tid, None)])


class ThreadsOverTLS(Threads):

    tls = True


class ThreadsOverAUnixSocket(Threads):

    address = 'socket'


class Prefetching(ConnectedTestCase):
    """By odd callers."""

    records = {number: b'data' for number in range(1, 5)}

    def prefetch(self, client, *numbers):
        client.prefetch(map(oid, numbers), maxtid)

    def test_a_new_object(self):
        client = self.connect()
        client.prefetch([oid(1), None, oid(2)], maxtid)
        for number in 1, 2:
            self.assertEqual(self.load(client, number)[0], b'data')

    def test_a_load_within_a_load(self):
        """Of a finalizer, while answers are read."""
        client = self.connect()
        self.prefetch(client, 1, 2, 3)
        answered, found = client._cache.answered, []

        def answered_and_collected(load):
            if not found:
                found.append(None)
                found.append(self.load(client, 3)[0])
                self.prefetch(client, 4)
            answered(load)

        with mock.patch.object(
                client._cache, 'answered', answered_and_collected):
            data = Thread(self.load, client, 2).result()[0]
        self.assertEqual([data, found[1]], [b'data', b'data'])
