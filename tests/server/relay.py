"""A relay on loopback between one client and its server, which cuts.

Each connection of the client goes through it: its stream, and its readers.
The relay takes them apart into messages, and knows the kind of each, so that a
Cut can name any byte of the exchange.  What happens there is one of these:

reset          both sides lose the connection, as if its machine had gone
closed         both sides are told that it has ended
frozen         nothing passes any more, until `settle` resets it
late           the client loses the connection.  What it has sent reaches the
               server later, when the client goes on with another connection;
               the server loses that at `settle`
answers        the server loses the connection.  What it has sent still reaches
               the client
anything else  is done by `call`, and the relay goes on
"""

import asyncio
import collections
import contextlib
import socket
import struct
import threading
import typing

from fsyncstorage.wire import frames

from ..support import PATIENCE

RECEIVED_AT_ONCE = 1 << 16
# Messages of the client until a cut is given up, since its message does not
# come.
MOST_MESSAGES = 1000

UP, DOWN = 'up', 'down'
#: A message is cut.
BEFORE, INSIDE, BEHIND = WHERE = 'before', 'inside', 'behind'
#: Kinds of messages on a stream; of a stock client, all are `zeo up` or `zeo
#: down`, and of a reader, `reader up` or `reader down`.
KINDS = {
    UP: {frames.Begin: 'begin', frames.Store: 'store', frames.Stores: 'store',
         frames.Vote: 'vote', frames.Finish: 'finish', frames.Trip: 'trip',
         frames.Abort: 'abort', frames.Ping: 'ping', frames.Ask: 'question'},
    DOWN: {frames.Welcome: 'welcome', frames.Refused: 'refused',
           frames.Voted: 'voted', frames.Conflicts: 'conflicts',
           frames.Error: 'error', frames.Done: 'done',
           frames.Aborted: 'aborted', frames.Invalid: 'invalid',
           frames.Pong: 'pong', frames.Outcome: 'outcome'},
}
#: Any other operation or answer.
OTHER = {UP: 'call', DOWN: 'result'}
ANSWERS = {frames.COMMITTED: 'committed',
           frames.NOT_COMMITTED: 'not committed', frames.UNKNOWN: 'not known'}
#: Languages, and how their first messages are called.
STREAM, READER, ZEO = 'stream', 'reader', 'zeo'
HELLOS = {STREAM: 'hello', READER: 'hello of a reader', ZEO: 'hello of zeo'}

# A socket that is closed resets its connection.
_NO_LINGER = struct.pack('ii', 1, 0)


class Cut(typing.NamedTuple):

    kind: str
    how: str
    #: How much of the message still passes: 0, 1, or in between.
    part: float
    #: All connections of the client, not only that of the message.
    all_of_them: bool = False
    #: What is late comes when a message of this kind does.
    until: str = 'begin'

    def passing(self, length):
        """Bytes of a message of so many."""
        if self.part in (0, 1):
            return length * int(self.part)
        return 1 + int(self.part * (length - 1))


class _Connection:
    """One of the client's, and the one to the server that belongs to it."""

    #: What the client has sent, and the server gets later.
    _held = None

    def __init__(self, client, server):
        client_reader, self._client = client
        server_reader, self._server = server
        self.readers = {UP: client_reader, DOWN: server_reader}
        self._writers = {UP: self._server, DOWN: self._client}
        self._greeted = set()  # ways on which something has come
        self._lost = set()  # ways on which nothing passes

    def kind(self, way, message):
        if way not in self._greeted:
            if frames.is_preface(bytes(message)):
                return 'preface'
            self._greeted.add(way)
            if way is DOWN:
                return 'greeting'
            self._language = _language(message)
            return HELLOS[self._language]
        if self._language is STREAM:
            return KINDS[way].get(
                _frame(message).__class__, OTHER[way])
        return f'{self._language} {way}'

    async def send(self, way, data):
        if way is UP and self._held is not None:
            self._held += data
        elif data and way not in self._lost:
            self._writers[way].write(data)
            await self._writers[way].drain()

    def ended(self, way):
        """Nothing more comes on this way."""
        if way is DOWN or self._held is None:
            self.close()

    def close(self):
        self._lost = {UP, DOWN}
        self._client.close()
        self._server.close()

    def reset(self):
        self._lost = {UP, DOWN}
        _reset(self._client)
        _reset(self._server)

    def lose_client(self):
        self._lost.add(DOWN)
        if UP not in self._lost:
            self._held = bytearray()
        _reset(self._client)

    def lose_server(self):
        self._lost.add(UP)
        if self._server.can_write_eof():
            self._server.write_eof()

    def deliver(self):
        """What was late."""
        if self._held is not None:
            self._server.write(self._held)
            self._held = None
            self._lost.add(UP)


class Relay:
    """All methods run in its loop."""

    def __init__(self, server_address, call=None):
        """`call` is called with the cuts that are none of its own."""
        self.server_address = server_address
        self._call = call
        self.port = None
        #: The last of the cuts was made or given up.
        self.over = threading.Event()
        self.is_given_up = False
        #: An error of its own.
        self.failure = None
        #: Of each kind of message, how many there were.
        self.seen = collections.Counter()
        #: Of those that told what became of a commit, what they said.
        self.answers = collections.Counter()
        #: Those that were made.
        self.made = collections.Counter()
        self._cuts = collections.deque()
        #: How many came from the client since it was armed.
        self.messages = 0
        self._connections = set()
        self._late = []
        self._until = None
        #: What is late has come.
        self.came = threading.Event()
        self._frozen = []
        self._flows = asyncio.Event()
        self._flows.set()

    async def open(self):
        self._listening = await asyncio.start_server(
            self._serve, '127.0.0.1', 0)
        self.port = self._listening.sockets[0].getsockname()[1]

    def close(self):
        self._listening.close()

    def arm(self, cuts):
        """Make these, one behind the other."""
        self.over.clear()
        self.is_given_up = False
        self.messages = 0
        self._cuts.extend(cuts)

    def settle(self):
        """Nothing is frozen or late any more."""
        for connection in self._frozen:
            connection.reset()
        self._frozen = []
        self._flows.set()
        self._deliver()
        for connection in self._late:
            connection.close()
        self._late = []

    def reset(self):
        """Each connection."""
        self.settle()
        for connection in list(self._connections):
            connection.reset()

    # Passing on

    async def _serve(self, *client):
        try:
            server = await asyncio.open_connection(*self.server_address)
        except OSError:  # it was killed
            _reset(client[1])
            return
        connection = _Connection(client, server)
        self._connections.add(connection)
        try:
            await asyncio.gather(
                self._pump(connection, UP), self._pump(connection, DOWN))
        except Exception as error:
            self.failure = error
        finally:
            self._connections.discard(connection)
            connection.close()

    async def _pump(self, connection, way):
        buffer = bytearray()
        with contextlib.suppress(OSError):
            while data := await connection.readers[way].read(
                    RECEIVED_AT_ONCE):
                buffer += data
                await self._pass_on(connection, way, buffer)
        connection.ended(way)

    async def _pass_on(self, connection, way, buffer):
        """The whole messages."""
        passing = bytearray()
        while message := _taken(buffer):
            kind = connection.kind(way, message)
            self.seen[kind] += 1
            if kind == 'outcome':
                self.answers[ANSWERS[_frame(message).word]] += 1
            self._let_come_late(kind, connection)
            cut = self._due(kind, way)
            if cut is None:
                passing += message
                continue
            most = cut.passing(len(message))
            try:
                await self._send(connection, way, passing + message[:most])
            finally:  # it may just have been lost by itself
                self._make(cut, connection)
            passing = message[most:]
        await self._send(connection, way, passing)

    async def _send(self, connection, way, data):
        await self._flows.wait()
        await connection.send(way, data)

    def _let_come_late(self, kind, connection):
        if kind == self._until and connection not in self._late:
            self._deliver()

    def _deliver(self):
        self._until = None
        for connection in self._late:
            connection.deliver()
        self.came.set()

    # Cuts

    def _due(self, kind, way):
        if not self._cuts:
            return None
        if kind == self._cuts[0].kind:
            return self._cuts.popleft()
        self.messages += way is UP
        if self.messages == MOST_MESSAGES:
            self._cuts.clear()
            self.is_given_up = True
            self.reset()
            self.over.set()
        return None

    def _make(self, cut, connection):
        affected = list(self._connections) if cut.all_of_them else [connection]
        if cut.how == 'reset':
            for each in affected:
                each.reset()
        elif cut.how == 'closed':
            for each in affected:
                each.close()
        elif cut.how == 'frozen':
            self._frozen = affected
            self._flows.clear()
        elif cut.how == 'late':
            self._late, self._until = affected, cut.until
            self.came.clear()
            for each in affected:
                each.lose_client()
        elif cut.how == 'answers':
            for each in affected:
                each.lose_server()
        else:
            self._call(cut.how)
        self.made[cut.kind, _place(cut.part), cut.how] += 1
        if not self._cuts:
            self.over.set()


class Relays:
    """A context: relays, and the thread that they run in."""

    def __enter__(self):
        self._relays = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error):
        asyncio.run_coroutine_threadsafe(self._end(), self._loop)
        self._thread.join(PATIENCE)
        self._loop.close()
        for relay in self._relays:
            if relay.failure is not None:
                raise relay.failure

    async def _end(self):
        for relay in self._relays:
            relay.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._loop.stop()

    def open(self, *args):
        async def opened():
            relay = Relay(*args)
            await relay.open()
            self._relays.append(relay)
            return relay

        return asyncio.run_coroutine_threadsafe(
            opened(), self._loop).result(PATIENCE)

    def do(self, function, *args):
        """What it returns, called in the loop."""
        async def done():
            return function(*args)

        return asyncio.run_coroutine_threadsafe(
            done(), self._loop).result(PATIENCE)


def _language(hello):
    body = _body(hello)
    if frames.MAGIC not in body:
        return ZEO
    is_stream = isinstance(frames.taken(body), frames.Hello)
    return STREAM if is_stream else READER


def _body(message):
    return bytes(message[frames.LENGTH.size:])


def _frame(message):
    return frames.taken(_body(message))


def _taken(buffer):
    """A whole message from the front; None if it has not come."""
    if len(buffer) < frames.LENGTH.size:
        return None
    end = frames.LENGTH.size + frames.LENGTH.unpack_from(buffer)[0]
    if len(buffer) < end:
        return None
    message = buffer[:end]
    del buffer[:end]
    return message


def _place(part):
    return {0: BEFORE, 1: BEHIND}.get(part, INSIDE)


def _reset(writer):
    socket_ = writer.get_extra_info('socket')
    with contextlib.suppress(OSError):
        socket_.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    writer.transport.abort()
