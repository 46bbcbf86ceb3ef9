"""A ZEO server that stores nothing and answers at once.

It shows what the light clients of the timing driver can do by themselves, and
does what no server should: tids that fall, invalidations that never come.
"""

import itertools
import pickle
import selectors
import socket
import threading

from ZODB.utils import p64

from fsyncstorage.timing.zeo import zeowire


class FakeServer:
    """Serves in a thread, until the `with` ends.

    `tids` are what it gives to commits, one after the other.
    """

    def __init__(self, tids=None, invalidates=True, error=None):
        self._tids = tids or map(p64, itertools.count(1))
        self._invalidates = invalidates
        self._error = error
        self.stored = []
        self._clients = {}
        self._selector = selectors.DefaultSelector()
        self._listener = socket.create_server(('127.0.0.1', 0), backlog=64)
        self.address = self._listener.getsockname()
        self._stop, self._stopped = socket.socketpair()

    def __enter__(self):
        for one in (self._listener, self._stopped):
            self._selector.register(one, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self.serve)
        self._thread.start()
        return self

    def __exit__(self, *error):
        self._stop.close()
        self._thread.join()
        for one in (self._listener, self._stopped, self._selector,
                    *self._clients):
            one.close()

    def serve(self):
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._stopped:
                    return
                if key.fileobj is self._listener:
                    self._accept()
                else:
                    try:
                        self._receive(key.fileobj)
                    except ConnectionError:  # it closed the connection
                        self._drop(key.fileobj)

    def _accept(self):
        client, _ = self._listener.accept()
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._clients[client] = zeowire.Inbox()
        self._selector.register(client, selectors.EVENT_READ)
        client.sendall(zeowire.frame(zeowire.HANDSHAKE))

    def _drop(self, client):
        self._selector.unregister(client)
        del self._clients[client]
        client.close()

    def _receive(self, client):
        data = client.recv(1 << 16)
        if not data:
            raise ConnectionError('closed')
        for message in self._clients[client].add(data):
            if message != zeowire.HANDSHAKE:
                message_id, _, name, arguments = pickle.loads(message)
                answer = getattr(self, name)(client, *arguments)
                if message_id:
                    self._send(client, message_id, 0, '.reply', answer)

    def _send(self, client, *message):
        client.sendall(zeowire.frame(pickle.dumps(message, 3)))

    def register(self, client, storage, read_only):
        return p64(0)

    def new_oids(self, client, number):
        return [p64(7)]

    def ping(self, client):
        return None

    def tpc_begin(self, client, *arguments):
        pass

    def storea(self, client, oid, serial, record, transaction):
        self.stored.append((serial, record))

    def vote(self, client, transaction):
        if self._error:
            self._send(client, zeowire.VOTE, 2, '.reply', (self._error, ()))
        return ()

    def tpc_finish(self, client, transaction):
        tid = next(self._tids)
        if self._invalidates:
            for other in self._clients:
                if other is not client:
                    self._send(
                        other, 0, True, 'invalidateTransaction', (tid, []))
        return tid
