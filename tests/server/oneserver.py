"""One server in a thread, whose loop a test may look into."""

import asyncio
import os
import ssl
import threading
from unittest import mock

import ZEO.asyncio.server
import ZEO.tests

from fsyncstorage.server.server import Server

from ..support import PATIENCE
from ..support import TestCase
from ..support import all_is_cached
from ..support import begin

_CERTIFICATES = os.path.dirname(ZEO.tests.__file__)


def server_context():
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*(
        os.path.join(_CERTIFICATES, name)
        for name in ('server.pem', 'server_key.pem')))
    return context


def client_context():
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.load_cert_chain(*(
        os.path.join(_CERTIFICATES, name)
        for name in ('client.pem', 'client_key.pem')))
    return context


class OneServerTestCase(TestCase):

    new_event_loop = staticmethod(asyncio.new_event_loop)
    tls = False
    address = '127.0.0.1', 0
    #: Of the server.
    options = {}
    #: Processes that read.  Without them, clients read over their streams, and
    #: a test sees and holds up all of it.
    readers = 0

    def setUp(self):
        super().setUp()
        all_is_cached(self)
        self.storage = self.open(
            blob_dir=self.path('blobs'), readers=self.readers)

    def serve(self, **storages):
        """A server in a thread, of `self.storage` as 1 and of others."""
        storages['1'] = self.storage
        address = self.address
        if isinstance(address, str):
            address = self.path(address)
        with mock.patch.object(ZEO.asyncio.server, 'new_event_loop',
                               self.new_event_loop):
            self.server = Server(
                address, storages, ssl=server_context() if self.tls else None,
                **self.options)
        self.thread = threading.Thread(target=self.server.loop)
        self.thread.start()
        self.addCleanup(self.thread.join)
        self.addCleanup(self.server.close)
        self.in_loop(list)  # it has begun: else a close would run the loop

    @property
    def service(self):
        return self.server.services['1']

    @property
    def figures(self):
        return self.service.figures

    def in_loop(self, function, *arguments):
        """What that returns, called between two callbacks of the loop."""
        called = threading.Event()
        result = []

        def call():
            result.append(function(*arguments))
            called.set()

        self.server.acceptor.event_loop.call_soon_threadsafe(call)
        self.assertTrue(called.wait(PATIENCE))
        return result[0]

    def nothing_is_cached(self):
        """Each load waits for a thread of the server."""
        self.patch(self.service, load_cached=mock.Mock(
            side_effect=BlockingIOError))

    def store_blob(self, number, data):
        """In the server's storage."""
        transaction = begin(self.storage)
        super().store_blob(self.storage, transaction, number, data)
        self.storage.tpc_vote(transaction)
        return self.storage.tpc_finish(transaction)
