"""The messages of a transaction on the ZEO connection, until its vote.

Stores, checks, undos and blobs are gathered, and leave together with the
vote.  The first pieces of a large transaction leave earlier, and the storing
thread waits until they have left: memory stays bounded.

All messages go over the connection on which the transaction began, or fail:
another one may lead to a server that has not received the beginning.
"""

import struct

from ZEO.asyncio.futures import Future
from ZEO.Exceptions import ClientDisconnected

# Bytes of objects that are gathered before they leave.
GATHERED = 1 << 20
# Bytes that are counted for a message in addition to its object.
OVERHEAD = 100
# Bytes of a blob in one message.
MESSAGE_SIZE = 1 << 16

_LENGTH = struct.Struct('>I')


class Outgoing:

    def __init__(self, protocol, transaction, *description):
        self._protocol = protocol
        self.transaction = transaction  # its id
        #: The server knows of it, or will: set before anything is sent.
        self.begun = False
        self._messages = []  # (method, arguments), or iterators of such
        self._size = 0
        self.add('tpc_begin', (transaction, *description))

    def add(self, method, args):
        self._messages.append((method, args))
        self._size += OVERHEAD + sum(
            len(each) for each in args if each.__class__ is bytes)

    def add_iterator(self, messages):
        """Add messages that are too large to be held in memory."""
        self._messages.append(messages)
        self._size += GATHERED

    @property
    def full(self):
        return self._size >= GATHERED

    def _taken(self):
        """Yield what was gathered, as encoded messages."""
        messages, self._messages = self._messages, []
        self._size = 0
        for message in messages:
            for method, args in (
                    [message] if message.__class__ is tuple else message):
                yield self._protocol.encode(0, True, method, args)

    # In the event loop

    def _check(self, client):
        if client.protocol is not self._protocol or self._protocol.closed:
            raise ClientDisconnected('on a disconnected transaction')

    async def send(self, client):
        """Send what was gathered, and wait until it has left."""
        self._check(client)
        await self._flow()

    async def vote(self, client, *args):
        """Send what was gathered with the vote, and wait for the answer."""
        self._check(client)
        protocol = self._protocol
        transport = protocol.sm_protocol.transport
        if self.full or transport.get_write_buffer_size():
            await self._flow()
            return await protocol.call_sync('vote', args)
        messages = list(self._taken())
        number, future = self._expect()
        messages.append(protocol.encode(number, False, 'vote', args))
        transport.write(b''.join(
            part for message in messages
            for part in (_LENGTH.pack(len(message)), message)))
        return await future

    def _expect(self):
        """The number of a call, and a future for its answer."""
        protocol = self._protocol
        protocol.message_id += 1
        future = Future(loop=protocol.loop)
        protocol.futures[protocol.message_id] = future
        return protocol.message_id, future

    async def _flow(self):
        """Write what was gathered, as fast as the connection takes it."""
        number, future = self._expect()

        def messages():
            error = None
            try:
                yield from self._taken()
            except Exception as reason:
                # Not raised into the connection that iterates here.
                error = reason
            # A connection that is lost forgets its futures.
            if self._protocol.futures.pop(number, None) is None:
                return
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)

        self._protocol.write_message_iter(messages())
        await future


def blob_messages(path, oid, serial, data, transaction):
    """Yield the messages that store a blob."""
    yield 'storeBlobStart', ()
    with open(path, 'rb') as file:
        while piece := file.read(MESSAGE_SIZE):
            yield 'storeBlobChunk', (piece,)
    yield 'storeBlobEnd', (oid, serial, data, transaction)
