"""Many clients that cost next to nothing, and commit as fast as they can.

A stock client needs more processor time for a commit than a server does, so
with a few of them the clients would be the limit.  Here one process drives all
connections, each with an object of its own, straight over sockets.

It also checks what a server promises on each connection: that tids, in replies
and in invalidations, rise strictly, and that a client has been told of all
commits of the others when the server answers a later question.
"""

import contextlib
import selectors
import socket
import time

from ZODB.utils import z64

from fsyncstorage.timing.running import crew
from fsyncstorage.timing.running.sampling import Race

from . import zeowire


def race(**settings):
    return Race(
        'light', settings, measure,
        ('txn_per_second', 'p50_seconds', 'p99_seconds'))


def measure(contestant, directory, *, connections, seconds, **site_settings):
    """Time the commits of one contestant; return its figures."""
    with contestant.running(directory, **site_settings) as site:
        [[stretch, wrong]], [usage] = crew.processes(
            site, [_driver(site.address, connections, seconds)])
    return {
        **crew.commits([stretch], usage),
        **crew.busy([stretch], usage, 'driver'),
        **wrong,
    }


@crew.job
def _driver(address, connections, seconds, start):
    with contextlib.ExitStack() as stack:
        clients = [
            stack.enter_context(contextlib.closing(Client(address)))
            for _ in range(connections)]
        start()
        return drive(clients, seconds)


def drive(clients, seconds):
    """Let the clients commit; return a stretch, and counts of errors."""
    began, cpu = time.perf_counter(), time.process_time()
    end = began + seconds
    with selectors.DefaultSelector() as selector:
        for client in clients:
            selector.register(client.socket, selectors.EVENT_READ, client)
            client.commit()
        busy = len(clients)
        while busy:
            for key, _ in selector.select():
                client = key.data
                # A client that is done is still told of commits, and reads.
                if client.receive():
                    if time.perf_counter() < end:
                        client.commit()
                    else:
                        busy -= 1
    stretch = crew.Stretch(
        began, time.perf_counter(), crew.durations(clients),
        time.process_time() - cpu)
    for client in clients:
        client.call('ping')
    told = sum(client.invalidations for client in clients)
    return stretch, {
        'tids_not_rising': sum(client.tids_not_rising for client in clients),
        'invalidations_late': (
            len(stretch.durations) * (len(clients) - 1) - told),
    }


class Client:
    """One connection; it only blocks until it is ready to commit."""

    def __init__(self, address):
        self.durations = []
        self.invalidations = 0
        self.tids_not_rising = 0
        self._inbox = zeowire.Inbox()
        self._answer = None
        self._tid = z64
        self._serial = z64
        self.socket = socket.socket(
            socket.AF_UNIX if isinstance(address, str) else socket.AF_INET)
        try:
            self._connect(address)
            self._register()
        except BaseException:
            self.close()
            raise

    def _connect(self, address):
        self.socket.connect(address)
        if self.socket.family == socket.AF_INET:
            # As ZEO's own client does.
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def _register(self):
        greeting, = self._inbox.add(self._read())
        if not greeting.startswith(zeowire.HANDSHAKE):  # ours adds its own
            raise ConnectionError(f'the server speaks {greeting!r}')
        self.socket.sendall(zeowire.frame(zeowire.HANDSHAKE))
        self._tid = self.call('register', '1', False)
        oid, = self.call('new_oids', 1)
        self._vote = zeowire.Vote(oid)

    def close(self):
        self.socket.close()

    def call(self, name, *arguments):
        """Call a method of the server, and wait for the answer."""
        self.socket.sendall(zeowire.call(zeowire.CALL, name, *arguments))
        self._answer = None
        while self._answer is None:
            self.receive()
        return self._answer[0]

    def commit(self):
        self._began = time.perf_counter()
        self.socket.sendall(self._vote.messages(
            self._serial, len(self.durations)))

    def receive(self):
        """Handle the data that came; is the commit done?"""
        done = False
        for message in self._inbox.add(self._read()):
            message_id, flags, name, arguments = zeowire.read(message)
            if name == 'invalidateTransaction':
                self.invalidations += 1
                self._see(arguments[0])
            elif name == '.reply':
                if flags:
                    error, its = arguments
                    raise ConnectionError(f'the server answered {error}{its}')
                done |= self._replied(message_id, arguments)
        return done

    def _replied(self, message_id, result):
        if message_id == zeowire.VOTE:
            self.socket.sendall(zeowire.FINISH_MESSAGE)
        elif message_id == zeowire.FINISH:
            self.durations.append(time.perf_counter() - self._began)
            self._see(result)
            self._serial = result
        else:
            self._answer = [result]
        return message_id == zeowire.FINISH

    def _see(self, tid):
        if tid <= self._tid:
            self.tids_not_rising += 1
        self._tid = tid

    def _read(self):
        data = self.socket.recv(1 << 16)
        if not data:
            raise ConnectionError('the server closed the connection')
        return data
