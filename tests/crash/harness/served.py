"""A storage behind a server, and what the clients of that are told.

Light clients commit all at once, over sockets.  The marks are made where they
read: a commit is acknowledged when its client has the reply, and published
when any client has heard of it.  (It is finishing when the server asks the
storage to finish it, which is a moment before it is appended.)

Each sync is held up until every client waits for one or has committed
everything, and has read all that the server has sent by then.  So what the
server says before its time stands in the log before the sync that would have
made it true.
"""

import contextlib
import os
import random
import selectors
import socket
import tempfile
import threading
from unittest import mock

from ZODB.utils import p64

from fsyncstorage.commit import asking
from fsyncstorage.server.server import Server

from ...server import light
from ...server import zeowire
from ...support import PATIENCE
from ...support import Thread
from .contents import record_of
from .ledger import Transaction
from .workloads import Workload

CLIENTS = 5
SIZES = 30, 700, 5000, 10, 1500  # of the objects of its commits
TRANSACTION = 1  # what a light client calls each of its transactions


class Served(Workload):

    images = 300

    def asks(self, client, count):
        """Does this commit ask to be durable, whatever the policy?"""
        return False

    def run(self, site):
        contents = [
            [Content(client, count, self.asks(client, count))
             for count in range(len(SIZES))]
            for client in range(CLIENTS)]
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.marking_finishes(site, contents))
            crowd = stack.enter_context(Crowd(site.recorder))
            address = stack.enter_context(_serving(site.storage))
            crowd.run([
                stack.enter_context(contextlib.closing(
                    Client(address, site, each)))
                for each in contents])
        site.close()

    @contextlib.contextmanager
    def marking_finishes(self, site, contents):
        """While this lasts, what the server commits is in the ledger."""
        storage = site.storage
        finish = self.finish_of(storage)
        by_name = {
            content.name: content for each in contents for content in each}

        def tpc_finish(transaction, f):
            # The order in which they finish is that of their tids.
            site.give_tid(transaction, site.next_tid())
            content = by_name[transaction.description]
            if content.asks:
                site.ledger.asking.add(site.last_tid)
            site.finishing(Transaction(site.last_tid, content.records, {}))
            return finish(transaction, f)

        with mock.patch.object(storage, 'tpc_finish', tpc_finish):
            yield

    def finish_of(self, storage):
        return storage.tpc_finish


class Asking(Served):
    """Every third commit asks to be durable."""

    def asks(self, client, count):
        return (client + count) % 3 == 0


@contextlib.contextmanager
def _serving(storage):
    """The address of a server, which closes the storage in the end."""
    with tempfile.TemporaryDirectory() as directory:
        server = Server(os.path.join(directory, 'socket'), {'1': storage})
        thread = Thread(server.loop)
        try:
            yield server.acceptor.addr
        finally:
            server.close()
            thread.result()


class Content:
    """Of one commit: two objects of this client."""

    def __init__(self, client, count, asks):
        self.name = b'%d of client %d' % (count, client)
        self.asks = asks
        source = random.Random(self.name)
        self.records = {
            p64(10 + 2 * client + number): record_of(
                source.randbytes(SIZES[(count * step + client) % len(SIZES)]))
            for number, step in enumerate((1, 2))}

    def messages(self, serial):
        extension = {asking.KEY: 'group-commit'} if self.asks else {}
        begin = zeowire.call(0, 'tpc_begin', TRANSACTION, b'', self.name,
                             extension, no_reply=True)
        stores = [
            zeowire.call(0, 'storea', oid, serial, data, TRANSACTION,
                         no_reply=True)
            for oid, data in self.records.items()]
        vote = zeowire.call(zeowire.VOTE, 'vote', TRANSACTION)
        return b''.join([begin, *stores, vote])


class Client(light.Client):
    """Commits one content after the other, and marks what it reads."""

    #: It has asked for something that no sync holds up.
    busy = False
    #: Nothing is left to commit.
    done = False

    def __init__(self, address, site, contents):
        super().__init__(address)
        self.socket.settimeout(PATIENCE)
        self._site = site
        self._contents = iter(contents)

    def commit(self):
        content = next(self._contents, None)
        self.done = content is None
        if not self.done:
            self.busy = True
            self.socket.sendall(content.messages(self._serial))

    def _replied(self, message_id, result):
        if message_id == zeowire.VOTE:
            self.busy = False
        finished = super()._replied(message_id, result)
        if finished:
            self._site.acknowledged(result)
            self.commit()
        return finished

    def _see(self, tid):
        self._site.published(tid)


class Crowd:
    """Drives clients, and holds up syncs meanwhile.

    A context: it must outlive the server, which may be about to sync when all
    else is done.
    """

    def __init__(self, recorder):
        self._recorder = recorder
        self._held = 0  # syncs
        self._may_end = threading.Semaphore(0)
        self._heard, self._told = socket.socketpair()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._heard.close()
        self._told.close()

    def _hold(self, file):
        """Some thread begins a sync."""
        if file is not None:
            self._told.send(b'.')
            self._may_end.acquire(timeout=PATIENCE)

    def _sync_began(self):
        self._held += len(self._heard.recv(1))

    def run(self, clients):
        """Return when they have committed everything."""
        others, self._recorder.on_sync = self._recorder.on_sync, self._hold
        try:
            with selectors.DefaultSelector() as selector:
                self._run(clients, selector)
        finally:
            self._recorder.on_sync = others
            self._may_end.release()

    def _run(self, clients, selector):
        selector.register(self._heard, selectors.EVENT_READ, self._sync_began)
        for client in clients:
            selector.register(
                client.socket, selectors.EVENT_READ, client.receive)
            client.commit()
        while self._held or not all(client.done for client in clients):
            ready = selector.select(PATIENCE)
            assert ready, 'the server is silent'
            for key, _ in ready:
                key.data()
            if self._held and _nothing_else_happens(clients):
                self._held -= 1
                self._may_end.release()


def _nothing_else_happens(clients):
    """Nobody waits for anything but a sync, and all that was said is heard."""
    if not _anybody_is_busy(clients):
        for client in clients:
            client.call('ping')
    return not _anybody_is_busy(clients)


def _anybody_is_busy(clients):
    return any(client.busy for client in clients)
