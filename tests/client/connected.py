"""A client of ours, and a server to be held up and cut off."""

import contextlib
import threading
from unittest import mock

from ZODB.Connection import TransactionMetaData
from ZODB.utils import maxtid
from ZODB.utils import z64

from fsyncstorage.client import failover
from fsyncstorage.client.storage import FsyncClient
from fsyncstorage.server.blobstream import BlobStream

from ..server.oneserver import OneServerTestCase
from ..server.oneserver import client_context
from ..support import PATIENCE
from ..support import commit as commit_to
from ..support import oid


class ConnectedTestCase(OneServerTestCase):

    #: What is stored before: number -> data.
    records = {}

    def setUp(self):
        super().setUp()
        self.patch(failover, FIRST_PAUSE=0.01)  # before it looks again
        #: The tid of the records.
        self.tid = commit_to(self.storage, self.records)
        self.serve()

    def end_server(self):
        self.address = self.server.addr
        self.server.close()
        self.thread.join()

    def serve_again(self, name='Data.fs'):
        """Another server at the same address, with another instance."""
        self.end_server()
        self.storage = self.open(
            name, blob_dir=self.path('blobs'), readers=self.readers)
        self.serve()

    def connect(self, address=None, make=FsyncClient, **options):
        if self.tls:
            options['ssl'] = client_context()
        client = make(address or self.server.addr,
                      **{'wait_timeout': PATIENCE, **options})
        self.addCleanup(client.close)
        return client

    # The server

    def sessions(self):
        """Those of the clients that are connected."""
        return self.in_loop(lambda: list(self.service.sessions))

    def session(self):
        """That of the only client."""
        session, = self.sessions()
        return session

    def transactions(self):
        """How many have begun and not ended."""
        return self.in_loop(lambda: self.server.stats['1'].active_txns)

    @contextlib.contextmanager
    def loads_held_up(self):
        """Loads begin, and are looked up, when the `with` is left."""
        go_on = threading.Event()
        load = self.storage.loadBefore

        def load_later(*args):
            go_on.wait(PATIENCE)
            return load(*args)

        with mock.patch.object(self.storage, 'loadBefore', load_later):
            self.nothing_is_cached()
            try:
                yield
            finally:
                go_on.set()

    # The client

    def cut_off(self, client):
        """The server ends the stream of its only client; return when there is
        another one."""
        with self.another_stream(client):
            self.in_loop(self.session().connection.abort)

    @contextlib.contextmanager
    def another_stream(self, client):
        """When the `with` is left, wait until the client has one."""
        stream = client._failover.stream
        yield
        client._failover.wait(PATIENCE, beyond=stream)

    def load(self, client, number, tid=maxtid):
        return client.loadBefore(oid(number), tid)


def begin(client):
    transaction = TransactionMetaData()
    client.tpc_begin(transaction)
    return transaction


def store(client, transaction, number, data, serial=z64):
    client.store(oid(number), serial, data, '', transaction)


def vote(client, records, serial=z64):
    transaction = begin(client)
    for number, data in records.items():
        store(client, transaction, number, data, serial)
    client.tpc_vote(transaction)
    return transaction


def commit(client, records, serial=z64):
    return client.tpc_finish(vote(client, records, serial))


def blobs_held_up(go_on):
    """A patch: of each blob, what is behind a first piece waits for this
    event."""
    read = BlobStream._read

    def held(stream):
        if stream._file.tell():
            go_on.wait(PATIENCE)
        return read(stream)

    return mock.patch.object(BlobStream, '_read', held)
