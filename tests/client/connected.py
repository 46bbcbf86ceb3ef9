"""A client of ours; a server in a thread, to be held up and cut off."""

import contextlib
import threading
from unittest import mock

from ZODB.Connection import TransactionMetaData
from ZODB.utils import maxtid
from ZODB.utils import z64

from fsyncstorage import wire
from fsyncstorage.client import link
from fsyncstorage.client.readchannel import ReadChannel
from fsyncstorage.client.storage import FsyncClient
from fsyncstorage.server.blobsender import SENT_AT_ONCE
from fsyncstorage.server.channel import Channel

from ..server.channels import ChannelTestCase
from ..server.channels import client_context
from ..support import PATIENCE
from ..support import commit as commit_to
from ..support import oid
from ..support import until


class ConnectedTestCase(ChannelTestCase):

    #: What is stored before: number -> data.
    records = {}
    #: Commits and invalidations have a channel.
    commit_channel = True

    def setUp(self):
        super().setUp()
        self.patch(link, is_possible=self.commit_channel)
        #: The tid of it.
        self.tid = commit_to(self.storage, self.records)
        self.serve()

    def connect(self, address=None, make=FsyncClient, **options):
        if self.tls:
            options['ssl'] = client_context()
        client = make(
            address or self.server.acceptor.addr, wait_timeout=PATIENCE,
            **options)
        self.addCleanup(client.close)
        return client

    def serve_again(self, name='Data.fs'):
        """Another server at the same address, with another instance."""
        self.address = self.server.acceptor.addr
        self.server.close()
        self.thread.join()
        self.storage = self.open(name, blob_dir=self.path('blobs'))
        self.serve()

    # The server

    def sessions(self):
        """The connections of clients, not their channels."""
        return self.in_loop(lambda: [
            session.connection for session in self.server.services[
                '1'].sessions])

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

    def until_asked(self, number):
        """So many requests have come on channels, since it began."""
        until(lambda: self.figures.requests == number, 'asked')

    def close_channels(self):
        self.in_loop(lambda: [
            each.abort() for each in list(self.server.connections)
            if isinstance(each, Channel)])

    # The client

    def cut_off(self, client):
        """End the connection; return when there is another one."""
        generation = client._connection_generation
        connection, = self.sessions()
        self.in_loop(connection.abort)
        until(lambda: client._connection_generation >= generation + 2
              and client.is_connected(), 'connected again')

    def in_client_loop(self, client, function, *args):
        """What it returns, called in the client's event loop."""
        link = client._server
        return link.io_call(link.apply_co(function, *args))

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
    """A patch: of each blob, what is behind a first piece waits for it."""
    blob = ReadChannel.blob

    def held(channel, oid, serial, offset, most):
        came = 0
        for event in blob(channel, oid, serial, offset, most):
            if came >= SENT_AT_ONCE and most == wire.LONGEST_BLOB:
                go_on.wait(PATIENCE)
            if event.__class__ is wire.Chunk:
                came += len(event.data)
            yield event

    return mock.patch.object(ReadChannel, 'blob', held)
